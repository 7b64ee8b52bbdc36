"""A time limit that several steps share."""

from __future__ import annotations

import time


class TimeoutException(Exception):
    """A time limit was exceeded."""


class Timeout:
    """A limit that starts when it is created.

    `message` is the text of the exception; it may contain {activity} and {timeout}.
    """

    def __init__(self, timeout: float, message: str) -> None:
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self._message = message

    def remaining(self) -> float:
        """Seconds that are left, 0 when there are none."""
        return max(0.0, self._end - time.monotonic())

    def timed_out(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self._end

    def check_time_out_for(self, activity: str) -> None:
        """Raise TimeoutException, naming the activity, when the time is over."""
        if self.timed_out():
            raise TimeoutException(self._message.format(activity=activity, timeout=self._timeout))
