"""A callback for Keras: `model.fit(..., callbacks=[MetricsCallback(TensorBoard("runs/one"))])`."""

from __future__ import annotations

from typing import Any

import keras

from horovod.tracking.tracker import Tracker
from horovod.tracking.writers import Writer


class MetricsCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Logs what a Tracker does, and the values that Keras shows. The arguments are those of Tracker."""

    def __init__(self, *writers: Writer, every: int = 10, all_ranks: bool = False) -> None:
        super().__init__()
        self.tracker = Tracker(*writers, every=every, all_ranks=all_ranks)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """A step is over."""
        self.tracker.step_with(lambda: {name: float(value) for name, value in (logs or {}).items()})

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """The training is over."""
        self.tracker.close()


__all__ = ["MetricsCallback"]
