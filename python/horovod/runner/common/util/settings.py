"""The settings of a job, as one value. `to_arguments` turns it into options of horovodrun."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from horovod.runner import options
from horovod.runner.common.util.timeout import Timeout


@dataclass(kw_only=True)
class BaseSettings:
    """Shared by static and elastic jobs. `verbose` is a number from 0 (quiet) to 2."""

    num_proc: int | None = None
    verbose: int = 0
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    extra_mpi_args: str | None = None
    tcp_flag: bool | None = None
    binding_args: str | None = None
    key: bytes | None = None  # of services of the caller's own; a job always has a key that horovodrun makes
    start_timeout: Timeout | float | None = None
    output_filename: str | None = None
    run_func_mode: bool | None = None
    nics: Collection[str] | None = None
    elastic: bool = False
    prefix_output_with_timestamp: bool = False

    def to_arguments(self) -> list[str]:
        """The command line, without command, that starts such a job."""
        limit = self.start_timeout
        values: dict[str, Any] = {
            "num_proc": self.num_proc,
            "verbose": bool(self.verbose),
            "ssh_port": self.ssh_port,
            "ssh_identity_file": self.ssh_identity_file,
            "mpi_args": self.extra_mpi_args,
            "tcp_flag": bool(self.tcp_flag),
            "binding_args": self.binding_args,
            "start_timeout": None if limit is None else int(limit.remaining() if isinstance(limit, Timeout) else limit),
            "output_filename": self.output_filename,
            "nics": sorted(self.nics) if self.nics else None,
            "prefix_output_with_timestamp": self.prefix_output_with_timestamp,
        }
        return options.to_arguments(_Values(values | self._more()))

    def _more(self) -> dict[str, Any]:
        return {}


@dataclass(kw_only=True)
class Settings(BaseSettings):
    """A job whose hosts do not change."""

    hosts: str | None = None

    def _more(self) -> dict[str, Any]:
        return {"hosts": self.hosts}


class _Values:
    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)
