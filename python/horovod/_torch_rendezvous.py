"""Two changes to torch.distributed: in a rank of horovodrun `init_process_group()` finds the others without RANK,
WORLD_SIZE and MASTER_ADDR, and `monitored_barrier()` accepts groups of the backend "hvd".

Imports torch inside functions only: see _torch_entry.py. Thread rule: any thread, as for torch.distributed.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterator
from typing import Any

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def install() -> None:
    """Put ourselves before two functions of torch.distributed; both go on as ever where Horovod has no part."""
    import torch.distributed as dist

    c10d = dist.distributed_c10d
    # `torch.distributed.rendezvous` is also the name of a function, which hides the module.
    handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers
    handlers["env"] = _with_horovod(handlers["env"])
    for module in (c10d, dist):
        module.monitored_barrier = _with_own_groups(module.monitored_barrier)


def _with_horovod(env: Any) -> Any:
    @functools.wraps(env)
    def rendezvous(url: str, timeout: Any = None, **options: Any) -> Iterator[Any]:
        is_described = any(name in os.environ for name in _VARIABLES) or "rank=" in url
        if not is_described and _is_rank_of_horovod():
            from horovod.torch.distributed.meeting import make_store

            yield make_store(timeout)
            raise RuntimeError("a group that Horovod has formed cannot be formed again in place")
        yield from env(url, timeout=timeout, **options) if timeout is not None else env(url, **options)

    return rendezvous


def _is_rank_of_horovod() -> bool:
    if "HOROVOD_RANK" in os.environ or "HOROVOD_ELASTIC" in os.environ:
        return True
    import sys

    library = sys.modules.get("horovod._native.library")
    return library is not None and bool(library.library().hvd_is_initialized())


def _with_own_groups(monitored_barrier: Any) -> Any:
    @functools.wraps(monitored_barrier)
    def barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> Any:
        import torch.distributed as dist

        chosen = dist.group.WORLD if group is None else group
        own = getattr(chosen, "monitored_barrier_of_horovod", None)
        if own is None:
            return monitored_barrier(group, timeout, wait_all_ranks)
        return own(timeout, wait_all_ranks)

    return barrier
