"""Small tools for threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

R = TypeVar("R")
_logger = logging.getLogger("horovod.runner")


def in_thread(
    target: Callable[..., Any],
    args: Sequence[Any] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Call `target(*args)` in a new thread, which is returned. `silent`: its exceptions are not reported."""
    _check(args)

    def body() -> None:
        try:
            target(*args)
        except Exception:
            if not silent:
                raise

    thread = threading.Thread(target=body, name=name, daemon=daemon)
    thread.start()
    return thread


def execute_function_multithreaded(
    fn: Callable[..., R],
    args_list: Sequence[Sequence[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> dict[int, R] | None:
    """Call `fn` with each of the argument lists, in threads; the results by position.

    The first exception is raised once all calls are over. Without `block_until_all_done` there are no results, and
    exceptions are logged.
    """
    if not args_list:
        return {} if block_until_all_done else None
    pool = ThreadPoolExecutor(min(max_concurrent_executions, len(args_list)), thread_name_prefix="horovod")
    futures = [pool.submit(fn, *args) for args in args_list]
    pool.shutdown(wait=block_until_all_done)
    if block_until_all_done:
        return {position: future.result() for position, future in enumerate(futures)}
    for future in futures:
        future.add_done_callback(lambda done: _report(done.exception()))
    return None


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    stop: threading.Event | None = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Call `func(*args)` in a thread once `event` is set; never if `stop` is set before."""
    _check(args)

    def body() -> None:
        while not event.wait(None if stop is None else check_stop_interval_s):
            if stop is not None and stop.is_set():
                return
        func(*args)

    return in_thread(body, daemon=daemon, silent=silent)


def _check(args: Sequence[Any]) -> None:
    if not isinstance(args, tuple | list):
        raise ValueError(f"args must be a tuple, not a {type(args).__name__}; did you mean (args,)?")


def _report(error: BaseException | None) -> None:
    if error is not None:
        _logger.error("a call in a thread failed: %s", error, exc_info=error)
