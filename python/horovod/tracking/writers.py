"""Where a Tracker can log to. A writer opens when the first values come, in each rank that logs.

Thread rule: the thread that trains.
"""

from __future__ import annotations

import importlib
import os
import re
import socket
import time
from typing import Any, Protocol


class Writer(Protocol):
    """What a Tracker logs to; write your own for another service."""

    def open(self, rank: int | None) -> None:
        """Called once in each rank that logs. `rank` is None if only one does."""

    def write(self, values: dict[str, float], step: int) -> None:
        """Log the values of this step."""

    def close(self) -> None:
        """Nothing more will be written."""


def _package(name: str, install: str, user: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"horovod.tracking.{user} needs another package: pip install {install} ({error})") from error


class TensorBoard:
    """Event files in `folder`, or in `folder`/rankN if several ranks log.

    TensorBoard's own writer imports TensorFlow where that is installed, so its parts are used here one by one.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.fspath(folder)
        self._file: Any = None
        self._records: Any = None
        self._event: Any = None

    def open(self, rank: int | None) -> None:
        """Make the file."""
        records = _package("tensorboard.summary.writer.record_writer", "tensorboard", "TensorBoard")
        self._event = _package("tensorboard.compat.proto.event_pb2", "tensorboard", "TensorBoard").Event
        folder = self.folder if rank is None else os.path.join(self.folder, f"rank{rank}")
        os.makedirs(folder, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._file = open(os.path.join(folder, name), "xb")  # noqa: SIM115
        self._records = records.RecordWriter(self._file)
        self._add(self._event(wall_time=time.time(), file_version="brain.Event:2"))

    def write(self, values: dict[str, float], step: int) -> None:
        """One scalar for each value."""
        event = self._event(wall_time=time.time(), step=step)
        for name, value in values.items():
            event.summary.value.add(tag=name, simple_value=value)
        self._add(event)

    def _add(self, event: Any) -> None:
        self._records.write(event.SerializeToString())
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class MLflow:
    """The active run of MLflow, or one that is started with these arguments of `mlflow.start_run`."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self._mlflow: Any = None
        self._is_own = False

    def open(self, rank: int | None) -> None:
        """Start a run, if there is none."""
        self._mlflow = _package("mlflow", "mlflow", "MLflow")
        if self._mlflow.active_run() is None:
            named = {} if rank is None else {"run_name": f"rank{rank}"}
            self._mlflow.start_run(**{**named, **self.arguments})
            self._is_own = True
        if rank is not None:
            self._mlflow.set_tag("horovod.rank", rank)

    def write(self, values: dict[str, float], step: int) -> None:
        """One metric for each value, with _ for letters that MLflow has no room for in names."""
        self._mlflow.log_metrics({re.sub(r"[^\w\-. /:]", "_", name): each for name, each in values.items()}, step=step)

    def close(self) -> None:
        """End the run, if it was started here."""
        if self._is_own:
            self._mlflow.end_run()
            self._is_own = False


class WandB:
    """The run of Weights & Biases, or one that is started with these arguments of `wandb.init`, as mode="offline"."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self._run: Any = None
        self._is_own = False

    def open(self, rank: int | None) -> None:
        """Start a run, if there is none."""
        wandb = _package("wandb", "wandb", "WandB")
        self._is_own = wandb.run is None
        named = {} if rank is None else {"name": f"rank{rank}"}
        self._run = wandb.init(**{**named, **self.arguments}) if self._is_own else wandb.run

    def write(self, values: dict[str, float], step: int) -> None:
        """All values as one row. Its own step counts calls, so that others may log in between."""
        self._run.log({**values, "horovod/step": step})

    def close(self) -> None:
        """End the run, if it was started here."""
        if self._is_own:
            self._run.finish()


__all__ = ["MLflow", "TensorBoard", "WandB", "Writer"]
