"""Horovod's callbacks for tf.keras: pass them to `model.fit`."""

from __future__ import annotations

from tensorflow import keras

from horovod._keras.callbacks import BestModel, callbacks_for

_made = callbacks_for(keras, __name__)
BroadcastGlobalVariablesCallback = _made.BroadcastGlobalVariablesCallback
MetricAverageCallback = _made.MetricAverageCallback
LearningRateScheduleCallback = _made.LearningRateScheduleCallback
LearningRateWarmupCallback = _made.LearningRateWarmupCallback


class BestModelCheckpoint(BestModel, keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Saves the best model so far to `filepath`, which has to be set before the training."""

    keras = keras

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
    ) -> None:
        super().__init__(
            monitor=monitor, verbose=verbose, save_weights_only=save_weights_only, mode=mode, save_freq=save_freq
        )


__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
