"""Runs a shell command and leaves no process behind, whether it is stopped or ends normally."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

import psutil

GRACEFUL_TERMINATION_TIME_S = 5.0


def execute(
    command: str | Sequence[str],
    env: Mapping[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    index: int | None = None,
    events: Sequence[threading.Event] | None = None,
    prefix_output_with_timestamp: bool = False,
) -> int:
    """Run the command in a shell (or a list of words without one) and return its exit code, 128+n for signal n.

    Its output goes to `stdout` and `stderr`, text streams, by default those of this process; with an `index` every line
    starts with [index]<stdout>:. When one of the `events` is set, the command and all it started are stopped.
    """
    over = threading.Event()
    process = subprocess.Popen(
        command,
        shell=isinstance(command, str),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    stoppers = [threading.Thread(target=_stop_on, args=(event, process, over), daemon=True) for event in events or ()]
    readers = [
        threading.Thread(target=_forward, args=(pipe, stream, _prefix(index, name, prefix_output_with_timestamp)))
        for pipe, stream, name in (
            (process.stdout, stdout or sys.stdout, "stdout"),
            (process.stderr, stderr or sys.stderr, "stderr"),
        )
    ]
    for thread in (*readers, *stoppers):
        thread.start()
    try:
        process.wait()
    finally:
        # Also after an exception, such as an interrupt of this thread; background processes of the shell hold the
        # pipes.
        terminate_executor_shell_and_children(process.pid)
        process.wait()
        over.set()
        for thread in (*readers, *stoppers):
            thread.join()
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def terminate_executor_shell_and_children(pid: int) -> None:
    """Stop a process and everything below it or in its group: SIGTERM, and SIGKILL for what is left after 5 s."""
    targets = _family(pid)
    for target in targets:
        with contextlib.suppress(psutil.Error):
            target.send_signal(signal.SIGTERM)
    _wait_for(targets, GRACEFUL_TERMINATION_TIME_S)
    for target in {*filter(_is_alive, targets), *_family(pid)}:
        with contextlib.suppress(psutil.Error):
            target.kill()


def prefix_stream(src: IO[bytes], dst: Any, prefix: Callable[[], str] | None) -> None:
    """Copy lines until the source ends, each prefixed with the result of `prefix`."""
    for line in src:
        dst.write((prefix() if prefix else "") + line.decode(errors="replace"))
        dst.flush()


def _forward(pipe: IO[bytes], stream: Any, prefix: Callable[[], str] | None) -> None:
    with pipe:
        try:
            prefix_stream(pipe, stream, prefix)
        except (OSError, ValueError):  # the stream is closed; the command must not block
            for _ in pipe:
                pass


def _prefix(index: int | None, name: str, timestamp: bool) -> Callable[[], str] | None:
    if index is None:
        return None
    return lambda: f"{time.asctime() if timestamp else ''}[{index}]<{name}>:"


def _stop_on(event: threading.Event, process: subprocess.Popen[bytes], over: threading.Event) -> None:
    while not over.is_set():
        if event.wait(0.1):
            terminate_executor_shell_and_children(process.pid)
            return


def _family(pid: int) -> list[psutil.Process]:
    """The living processes below `pid`, in its group or in its session, which it leads."""
    found: dict[int, psutil.Process] = {}
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        found = {each.pid: each for each in (root, *root.children(recursive=True))}
    for each in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(each.pid) == pid or os.getpgid(each.pid) == pid:
                found.setdefault(each.pid, each)
    found.pop(os.getpid(), None)
    return [each for each in found.values() if _is_alive(each)]


def _wait_for(processes: Sequence[psutil.Process], seconds: float) -> None:
    """Wait until all have ended. Does not use psutil, which would consume the exit code of our child."""
    deadline = time.monotonic() + seconds
    for process in processes:
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:
            continue  # it has ended
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        finally:
            os.close(descriptor)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
