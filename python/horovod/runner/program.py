"""Runs the program `horovodrun`, which is native and installed with this package.

Its output goes to the output of this process. If `sys.stdout` or `sys.stderr` were replaced, as in Jupyter, it is read
and written to them. stderr is always read: the launcher's own messages, without those of the workers, become part of an
exception.
Thread rule: a Program belongs to the thread that made it; several threads may have one each.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, TextIO

from horovod._native.program import NAME, find
from horovod.runner.cause import CausePipe

USAGE_ERROR = 2
LAST_WORDS = 60  # lines
STOP_SECONDS = 20.0  # the launcher itself gives workers 5 s between SIGTERM and SIGKILL
_LONGEST_LINE = 1 << 20
# Lines that do not explain a failure: output of workers (Open MPI's mpirun numbers jobs, too), and notes that the
# launcher prints for every job.
_NO_REASON = re.compile(r"(?:\w{3} \w{3} +\d+ [\d:]{8} \d{4})?\[(?:\d+,)?\d+\]<std(?:out|err)>:|horovodrun: note: ")


class Program:
    """One running horovodrun. A context manager: at its end no process is left."""

    def __init__(
        self, arguments: Sequence[str], env: Mapping[str, str], out: TextIO | None, err: TextIO | None
    ) -> None:
        """Start it. `out` and `err` are where its output goes; None: to this process's own descriptors."""
        self._words: deque[str] = deque(maxlen=LAST_WORDS)
        for stream in (out or sys.stdout, err or sys.stderr):
            _flush(stream)
        try:
            with interrupts_held():
                self._start([find(), *arguments], env, out, err)
        except KeyboardInterrupt:
            self.stop(signal.SIGINT)
            self._close()
            raise

    def _start(self, command: Sequence[str], env: Mapping[str, str], out: TextIO | None, err: TextIO | None) -> None:
        self._cause = CausePipe()
        try:
            # In its own session: Ctrl-C reaches only this process, which forwards it once.
            self._process = subprocess.Popen(
                command,
                env=dict(env) | self._cause.variables(),
                pass_fds=[self._cause.write],
                stdin=subprocess.DEVNULL,
                stdout=None if out is None else subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError:
            self._cause.close()
            raise
        finally:
            self._cause.close_write()
        self._selector = selectors.DefaultSelector()
        if out is not None:
            self._forward(self._process.stdout, _Lines(out))
        self._forward(self._process.stderr, _Lines(err or sys.stderr, self._hear))

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._process.poll() is None:
                self.stop(signal.SIGTERM)
        finally:
            self._close()

    def _close(self) -> None:
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._selector.close()
        self._cause.close()

    def wait(self) -> int:
        """Forward output until the program has ended; returns its exit code. An interrupt ends it, then is raised."""
        try:
            return self._run(None)
        except KeyboardInterrupt:
            self.stop(signal.SIGINT)
            raise

    def words(self) -> str:
        """The last messages of the launcher itself: warnings, and why a job failed."""
        return "\n".join(self._words)

    def failed_rank(self) -> int | None:
        """The rank whose failure ended the job, according to the launcher; after `wait`."""
        return self._cause.rank()

    def stop(self, number: signal.Signals) -> None:
        """Ask it to end its job. A second interrupt ends it at once; after a time-out it is killed."""
        self._process.send_signal(number)
        while True:
            try:
                self._run(time.monotonic() + STOP_SECONDS)
                return
            except KeyboardInterrupt:
                self._process.send_signal(number)
            except TimeoutError:
                self._process.kill()  # its guard process then ends the workers

    def _forward(self, pipe: IO[bytes] | None, lines: _Lines) -> None:
        assert pipe is not None
        self._selector.register(pipe, selectors.EVENT_READ, lines)

    def _run(self, deadline: float | None) -> int:
        while self._selector.get_map():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"{NAME} did not end")
            for key, _ in self._selector.select(left):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    self._selector.unregister(key.fileobj)
                key.data.feed(data)
        return self._process.wait()

    def _hear(self, text: str) -> None:
        for line in text.splitlines():
            if not _NO_REASON.match(line):
                self._words.append(line)


class _Lines:
    """Copies a pipe to a stream in whole lines, so that they do not mix with other lines."""

    def __init__(self, stream: TextIO, hear: Callable[[str], None] | None = None) -> None:
        self._stream: TextIO | None = stream
        self._hear = hear
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial = ""

    def feed(self, data: bytes) -> None:
        """Take the next bytes; none: the pipe has ended."""
        text = self._partial + self._decoder.decode(data, final=not data)
        end = max(text.rfind("\n"), text.rfind("\r")) + 1
        if not data or len(text) - end > _LONGEST_LINE:
            end = len(text)
        self._partial = text[end:]
        if end == 0:
            return
        if self._hear is not None:
            self._hear(text[:end])
        self._write(text[:end])

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
        except Exception:
            self._stream = None  # the stream is closed; the training continues
        _flush(self._stream)


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Delay KeyboardInterrupt to the end of the block, so that a process that it starts is known and can be ended."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield  # another handler or thread handles it
        return
    held: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if held:
        raise KeyboardInterrupt


def replaced(stream: Any, original: Any, descriptor: int) -> bool:
    """Whether `stream`, such as sys.stdout, does not write to the process's own descriptor."""
    if stream is None or stream is not original:
        return stream is not None
    try:
        return bool(stream.fileno() != descriptor)
    except (OSError, ValueError, AttributeError):
        return True


def _flush(stream: Any) -> None:
    with contextlib.suppress(Exception):  # closed, or not a stream: nothing to flush
        stream.flush()


__all__ = ["LAST_WORDS", "NAME", "STOP_SECONDS", "USAGE_ERROR", "Program", "find", "interrupts_held", "replaced"]
