"""The placement of a world's ranks, and their environment variables.

Hosts are pretended: processes of this machine that are told different host names share no memory, and reach each other
over the loopback interface.

    python tests/python/placement.py 2,1 command...     # two ranks on one host, a third on another
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
import subprocess
import sys
from pathlib import Path


def job(hosts: list[int]) -> dict[str, str]:
    """What all ranks of a job share; hosts[h] is the number of ranks on host h."""
    return {
        "HOROVOD_SIZE": str(sum(hosts)),
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(_free_port()),
        "HOROVOD_GLOO_IFACE": "lo",
        "_HOROVOD_SECRET_KEY": secrets.token_hex(32),
    }


def place(hosts: list[int], rank: int) -> dict[str, str]:
    """The place of one rank."""
    host, local = 0, rank
    while local >= hosts[host]:
        local -= hosts[host]
        host += 1
    return {
        "HOROVOD_RANK": str(rank),
        "HOROVOD_LOCAL_RANK": str(local),
        "HOROVOD_LOCAL_SIZE": str(hosts[host]),
        "HOROVOD_CROSS_RANK": str(sum(count > local for count in hosts[:host])),
        "HOROVOD_CROSS_SIZE": str(sum(count > local for count in hosts)),
        "HOROVOD_HOSTNAME": f"host{host}",
    }


def _free_port() -> int:
    """A port that the kernel does not assign: rank 0 binds it later, while other ranks ask for free ports."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(max(1024, lowest // 2), lowest)
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            return port


def main() -> int:
    hosts = [int(count) for count in sys.argv[1].split(",")]
    shared = os.environ | job(hosts)
    ranks = [subprocess.Popen(sys.argv[2:], env=shared | place(hosts, rank)) for rank in range(sum(hosts))]
    codes = [rank.wait() for rank in ranks]
    if any(codes):
        print(f"exit codes by rank: {codes}", file=sys.stderr)
    return max(map(abs, codes))


if __name__ == "__main__":
    sys.exit(main())
