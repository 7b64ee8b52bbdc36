"""Elastic training with tf.keras: continue when hosts come and go. `KerasState` is the state."""

from __future__ import annotations

from typing import Any

from tensorflow import keras

from horovod._keras import elastic as _impl
from horovod.tensorflow.elastic import run


class KerasState(_impl.KerasModelState):
    """The model, its optimizer, and plain objects such as `epoch=0, batch=0`. The model must have its variables."""

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, keras.backend, **kwargs)


class CommitStateCallback(_impl.CommitState, keras.callbacks.Callback):  # type: ignore[misc]
    """Commits the state every `batches_per_commit` batches and at the end of every epoch."""


class UpdateBatchStateCallback(_impl.UpdateBatchState, keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps the number of the batch in `state.batch`. Put it before CommitStateCallback."""


class UpdateEpochStateCallback(_impl.UpdateEpochState, keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps the number of epochs done in `state.epoch`. Put it before CommitStateCallback."""


__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]
