"""A pipe inside this process, between two threads."""

from __future__ import annotations

import threading
from collections import deque


class Pipe:
    """Text or bytes from writers to readers, in order. Never full; a reader waits while it is empty and open."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._chunks: deque[str | bytes] = deque()  # guarded by _changed, as is _closed
        self._closed = False

    def write(self, buf: str | bytes) -> int:
        """Append; ValueError once closed."""
        with self._changed:
            if self._closed:
                raise ValueError("the pipe is closed")
            if buf:
                self._chunks.append(buf)
                self._changed.notify()
        return len(buf)

    def read(self, length: int = -1, timeout: float | None = None) -> str | bytes | None:
        """The next piece, of at most `length` characters unless negative; None at the end or after `timeout` s."""
        with self._changed:
            self._changed.wait_for(lambda: self._chunks or self._closed, timeout)
            if not self._chunks:
                return None
            chunk = self._chunks.popleft()
            if 0 <= length < len(chunk):
                self._chunks.appendleft(chunk[length:])
                chunk = chunk[:length]
            return chunk

    def flush(self) -> None:
        """Nothing is held back, so nothing is to be done."""

    def close(self) -> None:
        """No more is written; readers get what is left and then None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
