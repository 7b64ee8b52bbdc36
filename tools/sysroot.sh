#!/usr/bin/env bash
# Fetches the libraries that a build for another kind of processor needs, and installs none of them:
#   tools/sysroot.sh arm64 build/aarch64-sysroot
# Needs Debian's package sources, not root.
set -euo pipefail
architecture=$1
folder=$(mkdir -p "$2" && cd "$2" && pwd)
packages=(libeigen3-dev libfmt-dev libgmock-dev libgtest-dev libssl-dev libyaml-dev nlohmann-json3-dev)
[ ! -e "$folder/complete" ] || exit 0

echo "fetching ${packages[*]} for $architecture"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/packages"
touch "$work/status"
apt() {
  apt-get -qq -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o APT::Sandbox::User= \
    -o Dir::State::Lists="$work/lists" -o Dir::State::Status="$work/status" -o Dir::Cache="$work/cache" "$@"
}
apt update
cd "$work/packages"
apt download "${packages[@]}"
for package in *.deb; do
  dpkg-deb -x "$package" "$folder"
done
touch "$folder/complete"
