#!/usr/bin/env bash
# Makes sure that the Debian packages of the named groups are installed: tools/packages.sh build fuzz
# As root they are installed; anyone else is told the one command to run.
set -euo pipefail

build="g++ ccache cmake ninja-build libfmt-dev libhwy-dev libgtest-dev libgmock-dev nlohmann-json3-dev libeigen3-dev libssl-dev libyaml-dev"
fuzz="clang-14 libclang-rt-14-dev"
lint="clang-format-14 clang-tidy-14"
browser="chromium"  # shows the pages of the documentation
mpi="openmpi-bin libopenmpi-dev mpich libmpich-dev"
bench="$mpi libgloo-dev iperf3"
aarch64="g++-aarch64-linux-gnu qemu-user-static"
testbed="iproute2 nftables iputils-ping openssh-client openssh-server openssl zsh fish groff-base slurm-wlm munge"
images="buildah docker-compose docker.io mmdebstrap"
cloud="docker.io mmdebstrap python3-apt"

if ! command -v dpkg-query >/dev/null; then
  echo "not a Debian system: the build expects the equivalents of: $build" >&2
  exit 0
fi

wanted=""
for group in "$@"; do
  wanted+=" ${!group}"
  if [ "$group" = build ] && ! "${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null; then
    wanted+=" python3-venv"
  fi
done

missing=""
for package in $wanted; do
  state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=" $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
  echo "installing$missing"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # shellcheck disable=SC2086
  apt-get install -qq -y --no-install-recommends $missing >/dev/null
else
  echo "missing packages; please run:" >&2
  echo "  sudo apt-get update && sudo apt-get install -y$missing" >&2
  exit 1
fi
