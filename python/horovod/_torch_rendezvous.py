"""Lets `init_process_group()` of a rank of horovodrun find the others where RANK, WORLD_SIZE and MASTER_ADDR are not set,
and lets groups of the backend "hvd" get their process sets, which all ranks have to add together.

Imports torch inside functions only: see _torch_entry.py. Thread rule: any thread, as for torch.distributed.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def install() -> None:
    """Put ourselves before two functions of torch.distributed; both go on as ever where Horovod has no part."""
    import torch.distributed as dist
    import torch.distributed.rendezvous as meeting

    c10d = dist.distributed_c10d
    handlers = meeting._rendezvous_handlers
    handlers["env"] = _with_horovod(handlers["env"])
    c10d._new_process_group_helper = _with_process_set(c10d._new_process_group_helper)
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


def _with_process_set(make_group: Any) -> Any:
    @functools.wraps(make_group)
    def helper(
        group_size: int, group_rank: int, global_ranks: list[int], backend: Any, *others: Any, **named: Any
    ) -> Any:
        if global_ranks and "hvd" in str(backend).lower():
            from horovod.torch.distributed.group import add_process_set

            add_process_set(list(global_ranks))
        return make_group(group_size, group_rank, global_ranks, backend, *others, **named)

    return helper


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
