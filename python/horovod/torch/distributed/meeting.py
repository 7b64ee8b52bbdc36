"""How the processes of torch.distributed become a world of Horovod, and the other way round.

Under horovodrun the world is Horovod's, and the store of the default group is made from it. Under torchrun, or another
launcher, the ranks exchange in that store what they need: their hosts, the address of rank 0, and the key of the world.
That key is only as safe as the store: a process that can read the store can join the world.

Thread rule: one caller at a time, as for init_process_group.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from horovod._native.library import checked, library
from horovod.common.basics import HorovodBasics

_basics = HorovodBasics()


def make_store(timeout: timedelta | None) -> tuple[Any, int, int]:
    """A store for the ranks of Horovod's world, with this process's rank and how many there are."""
    if not _basics.is_initialized():
        _basics.init(process_sets="dynamic")
    from horovod.torch.functions import broadcast_object

    rank, size = _basics.rank(), _basics.size()
    patience = timeout or timedelta(minutes=30)
    store, place = None, None
    if rank == 0:
        host = _address_of_rank_0()
        store = dist.TCPStore(host, 0, size, is_master=True, timeout=patience, wait_for_workers=False)
        place = (host, store.port)
    host, port = broadcast_object(place, 0, name="torch.distributed.store")
    if store is None:
        store = dist.TCPStore(host, port, size, is_master=False, timeout=patience)
    return store, rank, size


def join_world(store: Any, rank: int, size: int) -> list[int]:
    """Make sure that the engine has a world with all processes of the default group; their ranks in it, in order."""
    if not _basics.is_initialized():
        if "HOROVOD_RANK" in os.environ or "HOROVOD_ELASTIC" in os.environ:
            _basics.init(process_sets="dynamic")
        else:
            _form_world(store, rank, size)
    if checked(library().hvd_size()) != size:
        raise ValueError(
            f'the default group of backend "hvd" has {size} ranks, but Horovod\'s world has '
            f"{checked(library().hvd_size())}: give all of them a part in it, or end it first with hvd.shutdown()"
        )
    store.set(f"hvd/rank/{rank}", str(checked(library().hvd_rank())))
    ranks = [int(store.get(f"hvd/rank/{each}")) for each in range(size)]
    if ranks != sorted(ranks):
        raise ValueError(f"ranks of torch.distributed and of Horovod are in different orders: {ranks}")
    return ranks


def _form_world(store: Any, rank: int, size: int) -> None:
    """Describe this process's place in the environment, as a launcher would, while the world forms."""
    store.set(f"hvd/host/{rank}", socket.gethostname())
    if rank == 0:
        key = secrets.token_hex(32)
        store.set("hvd/world", json.dumps({"address": _address_of_rank_0(), "port": _free_port(), "key": key}))
    hosts = [store.get(f"hvd/host/{each}").decode() for each in range(size)]
    world = json.loads(store.get("hvd/world"))
    locals_ = [each for each in range(size) if hosts[each] == hosts[rank]]
    names = list(dict.fromkeys(hosts))
    local_rank = locals_.index(rank)
    peers = [name for name in names if hosts.count(name) > local_rank]
    place = {
        "HOROVOD_RANK": rank,
        "HOROVOD_SIZE": size,
        "HOROVOD_LOCAL_RANK": local_rank,
        "HOROVOD_LOCAL_SIZE": len(locals_),
        "HOROVOD_CROSS_RANK": peers.index(hosts[rank]),
        "HOROVOD_CROSS_SIZE": len(peers),
        "HOROVOD_HOSTNAME": hosts[rank],
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": world["address"],
        "HOROVOD_GLOO_RENDEZVOUS_PORT": world["port"],
        "_HOROVOD_SECRET_KEY": world["key"],
    }
    before = {name: os.environ.get(name) for name in place}
    os.environ.update({name: str(value) for name, value in place.items()})
    try:
        _basics.init(process_sets="dynamic")
    finally:
        for name, value in before.items():  # programs that this process starts are no ranks
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _address_of_rank_0() -> str:
    """An address of this machine at which other hosts reach it: the one towards the store, where that is elsewhere."""
    master = os.environ.get("MASTER_ADDR") or os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR")
    if master is None:
        if checked(library().hvd_is_initialized()) and library().hvd_size() == library().hvd_local_size():
            return "127.0.0.1"
        master = socket.gethostname()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((master, 9))  # sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            return master


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
