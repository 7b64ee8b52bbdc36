"""Can this machine, and this user, have a bed?"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

PACKAGES = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables", "unshare": "util-linux", "nsenter": "util-linux"}

# What a bed is made of, each once, inside namespaces that end with the trial.
TRIAL = """
mount -t tmpfs tmpfs /mnt
mkdir /mnt/group
mount -t cgroup2 cgroup2 /mnt/group
mount -t sysfs sysfs /sys
ip link add br0 type bridge
ip link add port type veth peer name nic
tc qdisc add dev nic root tbf rate 1gbit burst 128kb latency 20ms
nft add table bridge faults
"""


@functools.cache
def why_not() -> str | None:
    """None, or the reason why no bed can be made here."""
    if os.geteuid() != 0:
        return "hosts are made of namespaces, which needs root"
    missing = sorted({package for command, package in PACKAGES.items() if not shutil.which(command)})
    if missing:
        return f"not installed: {' '.join(missing)} (tools/packages.sh testbed)"
    trial = ["unshare", "--net", "--uts", "--ipc", "--mount", "--cgroup", "sh", "-ec", TRIAL]
    result = subprocess.run(trial, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode != 0:
        return f"namespaces, or what is in them, are refused here: {result.stderr.strip()}"
    return None
