"""Horovod's callbacks for Keras: pass them to `model.fit`."""

from __future__ import annotations

import keras

from horovod._keras.callbacks import BestModel, callbacks_for

_made = callbacks_for(keras, __name__)
BroadcastGlobalVariablesCallback = _made.BroadcastGlobalVariablesCallback
MetricAverageCallback = _made.MetricAverageCallback
LearningRateScheduleCallback = _made.LearningRateScheduleCallback
LearningRateWarmupCallback = _made.LearningRateWarmupCallback


class BestModelCheckpoint(BestModel, keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Saves the best model so far to `filepath`, which must be set before training."""

    keras = keras

    def __init__(
        self, monitor: str = "val_loss", verbose: int = 0, mode: str = "auto", save_freq: str | int = "epoch"
    ) -> None:
        super().__init__(monitor=monitor, verbose=verbose, mode=mode, save_freq=save_freq)


__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
