"""The loop around a training function: form a world, agree on the state, train; repeat when the world changes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from horovod._native.library import library
from horovod.common.elastic import agreement
from horovod.common.elastic.notification import notification_manager
from horovod.common.elastic.preemption import Preemption
from horovod.common.elastic.state import State
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

R = TypeVar("R")


def run_fn(func: Callable[..., R], reset: Callable[[], None]) -> Callable[..., R]:
    """Return `func(state, ...)` made elastic: when a collective fails or hosts change, it is called again.

    A failure goes back to the last commit; a change of hosts keeps the current state. `reset` forms the new world, or
    ends the process when it has no place there.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> R:
        notification_manager.init()
        notification_manager.register_listener(state)
        skip_sync = is_new_world = False
        try:
            with Preemption.watch():
                while True:
                    try:
                        if is_new_world:
                            state.on_reset()
                        _settle(state, skip_sync)
                        return func(state, *args, **kwargs)
                    except HorovodInternalError:
                        library().hvd_count_recovery()
                        state.restore()
                        skip_sync = False
                    except HostsUpdatedInterrupt as interrupt:
                        skip_sync = interrupt.skip_sync
                    state.before_reset()
                    reset()
                    is_new_world = True
        finally:
            notification_manager.remove_listener(state)
            state.finish_saving()

    return wrapper


def _settle(state: State, skip_sync: bool) -> None:
    """Give all ranks the state of the most advanced rank, unless all already have it. Collective."""
    if not agreement.is_possible():
        if not skip_sync:
            state.sync()
        return
    source = agreement.choose_source(state.progress(), skip_sync, state._file_found)
    if source.sync_needed:
        state.sync_root = source.rank
        state.sync()
        state.save()  # so that it is not lost with the rank that had it
    state.on_settled(source.progress)
