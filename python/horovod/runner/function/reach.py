"""The addresses where the caller of horovod.run listens, and those that its workers connect to."""

from __future__ import annotations

import os
from typing import Any

from horovod.runner.common.util import network

SCHEDULERS = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_NODEFILE", "PE_HOSTFILE")  # horovodrun takes the hosts from them
LOOPBACK = "127.0.0.1"


def addresses(options: Any) -> tuple[list[str], list[str]]:
    """Addresses to bind (none: all), and those for the workers: only loopback if all of them are on this machine."""
    nics = options.nics or _interfaces_of_environment()
    if nics:
        found = network.outside_addresses(nics)
        return found, found
    if _all_local(options):
        return [LOOPBACK], [LOOPBACK]
    return [], network.outside_addresses() or [LOOPBACK]


def _interfaces_of_environment() -> set[str]:
    names = ("HOROVOD_GLOO_IFACE", "HOROVOD_NETWORK_INTERFACES")
    return {name for each in names for name in os.environ.get(each, "").split(",") if name}


def _all_local(options: Any) -> bool:
    if options.host_discovery_script:
        return False
    if options.hostfile:
        return False  # only horovodrun parses these files
    if options.hosts:
        return all(network.is_local(_name(each)) for each in options.hosts.split(","))
    return not any(name in os.environ for name in SCHEDULERS)


def _name(host: str) -> str:
    """The name in `name:slots` or `[address]:slots`."""
    return host.strip().rpartition("]")[0] or host.strip().partition(":")[0]
