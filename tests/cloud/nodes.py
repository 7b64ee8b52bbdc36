"""Hosts of a test bed as nodes of a cloud: with an /etc and a /var of their own, and a Docker engine."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from bed import Bed, Host, Machine

LIMIT = 60.0

# The hosts of a bed share the machine's files. What the roles change is laid over here, and is gone with the host.
# $1 is the folder for what the engine keeps: it cannot be on an overlay itself.
PREPARE = """
set -e
mkdir -p /run/own/keep "$1"
cp -a /etc/hosts /etc/hostname /etc/resolv.conf /etc/ssh /run/own/keep/
for folder in etc var root; do
  mkdir /run/own/$folder /run/own/$folder.work
  mount -t overlay overlay -o "lowerdir=/$folder,upperdir=/run/own/$folder,workdir=/run/own/$folder.work" /$folder
done
rm -rf /etc/ssh
rm -f /root/.bashrc /root/.profile /root/.bash_profile  # a login is not to do what this machine's user has it do
cp -a /run/own/keep/. /etc/
mkdir -p /var/lib/docker
mount --bind "$1" /var/lib/docker
ln -sfn /run /var/run
"""
ENGINE = ["dockerd", "--bridge=none", "--iptables=false", "--ip6tables=false"]


def prepare(machine: Machine, folder: Path) -> None:
    command = ["sh", "-c", PREPARE, "prepare", str(folder / machine.name)]
    machine.run(command, check=True, timeout=LIMIT, capture_output=True)


def start_engine(machine: Machine, folder: Path) -> subprocess.Popen[bytes]:
    """Returns when it answers; it ends with the bed."""
    log = folder / f"{machine.name}.log"
    with log.open("wb") as output:
        engine = machine.popen(ENGINE, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + LIMIT
    while machine.run(["docker", "version"], capture_output=True).returncode != 0:
        if engine.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"no Docker engine on {machine.name}:\n{log.read_text()[-3000:]}")
        time.sleep(0.1)
    return engine


def make_bed(names: Sequence[str], folder: Path) -> Bed:
    """Hosts with ssh and an engine each; the first is for the controller, which has none."""
    bed = Bed([Host(name) for name in names], ssh=True)
    try:
        for machine in bed:
            prepare(machine, folder)
        for name in names[1:]:
            start_engine(bed[name], folder)
    except BaseException:
        bed.close()
        raise
    return bed
