"""Horovod's callbacks for Keras: pass them to `model.fit`."""

from __future__ import annotations

import keras

from horovod._keras import callbacks as _impl


class BroadcastGlobalVariablesCallback(_impl.BroadcastGlobalVariables, keras.callbacks.Callback):  # type: ignore[misc]
    """Makes all ranks start from the root's model and optimizer, after the first batch. Needed for equal models."""

    keras = keras


class MetricAverageCallback(_impl.MetricAverage, keras.callbacks.Callback):  # type: ignore[misc]
    """Averages the metrics of every epoch over all ranks. Put it before callbacks that read them."""

    keras = keras


class LearningRateScheduleCallback(_impl.LearningRateSchedule, keras.callbacks.Callback):  # type: ignore[misc]
    """Multiplies the learning rate by a function of the epoch, from `start_epoch` to before `end_epoch`."""

    keras = keras


class LearningRateWarmupCallback(_impl.LearningRateWarmup, keras.callbacks.Callback):  # type: ignore[misc]
    """Raises the learning rate from that of one rank to `initial_lr` over the first epochs."""

    keras = keras


class BestModelCheckpoint(_impl.BestModel, keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Saves the best model so far to `filepath`, which has to be set before the training."""

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
