"""Where the caller of horovod.run listens, and at which addresses its workers look for it."""

from __future__ import annotations

import os
import socket
from typing import Any

from horovod.runner.common.util import network

SCHEDULERS = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_NODEFILE", "PE_HOSTFILE")  # horovodrun takes the hosts from them
LOOPBACK = "127.0.0.1"


def addresses(options: Any) -> tuple[list[str], list[str]]:
    """Addresses to bind, and addresses to tell the workers: loopback alone when every worker is on this machine."""
    nics = options.nics or _interfaces_of_environment()
    if nics:
        found = network.outside_addresses(nics)
        return found, found
    if _all_local(options):
        return [LOOPBACK], [LOOPBACK]
    return ["::" if _has_ipv6() else "0.0.0.0"], network.outside_addresses() or [LOOPBACK]


def _interfaces_of_environment() -> set[str]:
    names = ("HOROVOD_GLOO_IFACE", "HOROVOD_NETWORK_INTERFACES")
    return {name for each in names for name in os.environ.get(each, "").split(",") if name}


def _all_local(options: Any) -> bool:
    if options.host_discovery_script:
        return False
    if options.hostfile:
        return False  # the program knows more forms of these files than to be read twice
    if options.hosts:
        return all(network.is_local(_name(each)) for each in options.hosts.split(","))
    return not any(name in os.environ for name in SCHEDULERS)


def _name(host: str) -> str:
    """The name in `name:slots` or `[address]:slots`."""
    return host.strip().rpartition("]")[0] or host.strip().partition(":")[0]


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.bind(("::", 0))
            return True
    except OSError:
        return False
