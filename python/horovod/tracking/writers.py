"""Where metrics can be logged to. A writer opens when the first values come, in the rank that logs.

Thread rule: the thread that trains.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol


class Writer(Protocol):
    """What a Tracker logs to; write your own for another service."""

    def open(self, rank: int) -> None:
        """Called once in each rank that logs."""

    def write(self, values: dict[str, float], step: int) -> None:
        """Log the values of this step."""

    def close(self) -> None:
        """Nothing more will be written."""


def _package(name: str, install: str, user: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{user} needs the package {install}: pip install {install} ({error})") from error


class TensorBoard:
    """Event files in `folder`; those of rank N in `folder`/rankN if several ranks log."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._writer: Any = None
        self._event: Any = None
        self._time: Any = None

    def open(self, rank: int, several: bool = False) -> None:
        """Make the file."""
        user = "horovod.tracking.TensorBoard"
        files = _package("tensorboard.summary.writer.event_file_writer", "tensorboard", user)
        self._event = _package("tensorboard.compat.proto.event_pb2", "tensorboard", user).Event
        self._writer = files.EventFileWriter(f"{self.folder}/rank{rank}" if several else self.folder)

    def write(self, values: dict[str, float], step: int) -> None:
        """One scalar for each value."""
        import time

        event = self._event(wall_time=time.time(), step=step)
        for name, value in values.items():
            event.summary.value.add(tag=name, simple_value=value)
        self._writer.add_event(event)

    def close(self) -> None:
        """Write what is queued."""
        self._writer.close()


class MLflow:
    """The active run of MLflow, or one that is started with these arguments of `mlflow.start_run`."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self._mlflow: Any = None
        self._is_own = False

    def open(self, rank: int, several: bool = False) -> None:
        """Start a run, if there is none."""
        self._mlflow = _package("mlflow", "mlflow", "horovod.tracking.MLflow")
        if self._mlflow.active_run() is None:
            self._mlflow.start_run(**self.arguments)
            self._is_own = True
        if several:
            self._mlflow.set_tag("horovod.rank", rank)

    def write(self, values: dict[str, float], step: int) -> None:
        """One metric for each value."""
        self._mlflow.log_metrics(values, step=step)

    def close(self) -> None:
        """End the run, if it was started here."""
        if self._is_own:
            self._mlflow.end_run()


class WandB:
    """The run of Weights & Biases, or one that is started with these arguments of `wandb.init`, as mode="offline"."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self._run: Any = None
        self._is_own = False

    def open(self, rank: int, several: bool = False) -> None:
        """Start a run, if there is none."""
        wandb = _package("wandb", "wandb", "horovod.tracking.WandB")
        self._is_own = wandb.run is None
        arguments = {"name": f"rank{rank}", **self.arguments} if several else self.arguments
        self._run = wandb.init(**arguments) if self._is_own else wandb.run

    def write(self, values: dict[str, float], step: int) -> None:
        """All values as one row."""
        self._run.log(values, step=step)

    def close(self) -> None:
        """End the run, if it was started here."""
        if self._is_own:
            self._run.finish()
