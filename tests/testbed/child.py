"""A process that cannot hold up the test that started it."""

from __future__ import annotations

import subprocess
import threading
from types import TracebackType
from typing import AnyStr

PATIENCE = 120.0  # seconds for a process to end by itself


class Child(subprocess.Popen[AnyStr]):
    """As subprocess.Popen, but whoever leaves its block does not wait for ever: not for a process that was told to wait
    for something a failed assertion has kept from coming, and not for one that should end and does not."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        impatience = threading.Timer(PATIENCE, self.kill)
        impatience.start()
        try:
            super().__exit__(kind, value, traceback)
        finally:
            impatience.cancel()
            impatience.join()
