"""How the launcher reports which rank's failure ended the job: through a pipe, like the one from workers to the
launcher (src/base/end_report.h). Thread rule: one thread.
"""

from __future__ import annotations

import contextlib
import os

_VARIABLE = "_HOROVOD_REPORT"
_HEAD = 4  # bytes: the length of a record


class CausePipe:
    """Created before the launcher starts, read after it has ended."""

    def __init__(self) -> None:
        self._read, self.write = os.pipe()
        os.set_blocking(self._read, False)

    def variables(self) -> dict[str, str]:
        """The variable that identifies the pipe to the launcher: descriptor, device and inode."""
        found = os.fstat(self.write)
        return {_VARIABLE: f"{self.write}:{found.st_dev}:{found.st_ino}"}

    def close_write(self) -> None:
        """Close this process's copy, once the launcher has its own."""
        os.close(self.write)

    def rank(self) -> int | None:
        """The rank of the record that was written, if there is one and it names a rank."""
        record = b""
        with contextlib.suppress(BlockingIOError):
            record = os.read(self._read, 1 << 12)
        if len(record) <= _HEAD:
            return None
        word = shift = 0
        for byte in record[_HEAD:]:
            word |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        return None if word & 1 else word >> 1  # zigzag: odd numbers are negative ones

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._read)
