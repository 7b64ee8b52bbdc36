#!/bin/sh
# What an image runs with: Python, ssh both ways, an init that reaps, ps and pkill, and a user without rights. No key stays
# in the image.
set -eu

export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends ca-certificates openssh-client openssh-server procps python3 tini
rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_*
# "*", not "!": sshd takes the latter for a locked account. The uid is one that no distribution gives away.
useradd --uid 10001 --create-home --shell /bin/bash --password '*' horovod
mkdir -p /run/sshd
install -d -o horovod -g horovod /etc/horovod /etc/horovod/ssh
# Login shells, and logins to a server that was started by hand, do not have the PATH of the image.
# shellcheck disable=SC2016
echo 'PATH=/opt/horovod/bin:$PATH' >/etc/profile.d/horovod.sh
echo 'SetEnv PATH=/opt/horovod/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
  >/etc/ssh/sshd_config.d/horovod.conf
