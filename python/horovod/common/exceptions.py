"""The exceptions users catch."""

from __future__ import annotations

from horovod._native.exceptions import HorovodInternalError, Origin


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts were added or removed, so elastic training must form a new world.

    `skip_sync` is True if hosts were only removed: the remaining workers' states are still equal.
    """

    def __init__(self, skip_sync: bool) -> None:
        super().__init__("the set of hosts changed")
        self.skip_sync = skip_sync


class WorkerRemoved(SystemExit):
    """An elastic job no longer has a place for this process. It ends with exit code 0."""

    def __init__(self, reason: str) -> None:
        super().__init__(0)
        self.reason = reason


class HorovodVersionMismatchError(ImportError):
    """A framework's installed version is not the one that an extension was made for."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(
            f"the extension for {name} was made for version {version}, but version {installed_version} is installed; "
            f"reinstall horovod"
        )
        self.name = name
        self.version = version
        self.installed_version = installed_version


__all__ = [
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "Origin",
    "WorkerRemoved",
]
