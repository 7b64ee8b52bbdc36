"""One horovod.run from start to end: pickle, listen, start the launcher, wait, and return the results.

Thread rule: any thread; each call has its own server and launcher.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from horovod.runner.function.server import Event, FunctionServer
from horovod.runner.function.task import KEY_VARIABLE, describe, function_name, pack, unpack
from horovod.runner.program import NAME, USAGE_ERROR, Program, replaced


def call(
    function: Callable[[], Any],
    arguments: Sequence[str],
    count: int | None,
    *,
    executable: str | None,
    listen: Sequence[str],
    publish: Sequence[str],
    elastic: bool = False,
    launcher: str = NAME,
    env: Mapping[str, str] | None = None,
) -> list[Any]:
    """Call `function` on every rank of a job that horovodrun starts with `arguments`; the results of `count` ranks,
    or of all.

    `listen`: addresses of this machine to listen on, or none for all; `publish`: those that workers connect to;
    `elastic`: whether the job survives the end of workers; `launcher`: the program that starts the workers, for
    messages.
    """
    try:
        packed = pack(function)
    except Exception as error:
        raise ValueError(f"cannot send {function_name(function)} to the workers: {describe(error)}") from error
    key = secrets.token_bytes(32)
    environment = dict(os.environ if env is None else env) | {KEY_VARIABLE: key.hex()}
    server = FunctionServer(listen, key, packed)
    try:
        task = [executable or sys.executable, "-m", "horovod.runner.run_task", ",".join(publish), str(server.port)]
        out = sys.stdout if replaced(sys.stdout, sys.__stdout__, 1) else None
        with Program([*arguments, *task], environment, out, sys.stderr) as program:
            code = program.wait()
            words, failed = program.words(), program.failed_rank()
    finally:
        server.close()
    return outcome(server.events(), count, code, words, elastic, launcher, failed)


def outcome(
    events: Sequence[Event],
    count: int | None,
    code: int,
    words: str,
    elastic: bool = False,
    launcher: str = NAME,
    failed: int | None = None,
) -> list[Any]:
    """The results by rank, or an exception with the reason why there are none.

    `failed`: the rank whose failure ended the job, according to the launcher.
    """
    if code == USAGE_ERROR:
        raise ValueError(words.removeprefix("horovodrun: ") or "horovodrun does not accept these options")
    cause = _last_error(events, code) if elastic else root_cause(events, failed)
    if cause is not None:
        _raise(cause, words)
    results = {event.worker.rank: event for event in events if event.kind == "result"}
    count = len(results) if count is None else count
    missing = [rank for rank in range(count) if rank not in results]
    if not events and code != 0:
        raise RuntimeError(_quoting("the job failed before a worker reported", words))
    if code != 0 or missing:
        reason = f"rank {missing[0]} ended without a result" if missing else f"{launcher} ended with exit code {code}"
        raise RuntimeError(_quoting(reason, words))
    return [_unpacked(results[rank]) for rank in range(count)]


def root_cause(events: Sequence[Event], first_failed: int | None) -> Event | None:
    """The event that caused the others, or None if there are only results.

    Events are in the order of their arrival. The first one is the cause, with an exception: consequences of a rank's
    end may arrive before it, such as the error of a collective on another rank, or the end of a rank that the launcher
    stopped. `first_failed` is the rank that failed according to the launcher; if it is unknown, the rank that another
    one reports as lost.
    """
    endings = [event for event in events if event.kind != "result"]
    if first_failed is None:
        lost = (event.report.origin for event in endings if event.report is not None)
        first_failed = next((rank for rank in lost if rank >= 0), None)
    known = any(event.kind == "lost" and event.worker.rank == first_failed for event in endings)
    for event in endings:
        if event.report is not None and not event.report.consequence:
            return event
        if event.kind == "lost" and (event.worker.rank == first_failed if known else event is endings[0]):
            return event
    return endings[0] if endings else None


def _last_error(events: Sequence[Event], code: int) -> Event | None:
    """The error that ended a failed elastic job; it survived the earlier ones."""
    errors = [event for event in events if event.report is not None]
    own = [event for event in errors if event.report is not None and not event.report.consequence]
    return None if code == 0 or not errors else (own or errors)[-1]


def _raise(cause: Event, words: str) -> NoReturn:
    worker = cause.worker
    if cause.report is None:
        reason = f": {cause.reason}" if cause.reason else ""
        raise RuntimeError(_quoting(f"{worker} ended without a result{reason}", words))
    text = f"{worker} failed: {cause.report.summary}\n\nThe traceback of {worker}, pid {worker.pid}:\n"
    raise RuntimeError(text + cause.report.traceback.rstrip()) from _exception(cause)


def _exception(event: Event) -> BaseException | None:
    """The worker's exception, if it can be unpickled here."""
    try:
        exception = unpack(event.parts) if event.parts else None
    except Exception:
        return None
    return exception if isinstance(exception, BaseException) else None


def _quoting(reason: str, words: str) -> str:
    return f"{reason}; horovodrun said:\n{words}" if words else f"{reason}; horovodrun said nothing"


def _unpacked(event: Event) -> Any:
    try:
        return unpack(event.parts)
    except Exception as error:
        raise RuntimeError(f"cannot unpickle the result of {event.worker}: {describe(error)}") from error
