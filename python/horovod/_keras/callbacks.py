"""The implementation of Horovod's callbacks. Each Keras package derives them from its own and adds a backend.

Thread rule: the thread that calls `fit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import horovod.numpy as hvd
from horovod._keras import hooks
from horovod._keras.backend import module_for
from horovod._keras.variables import (
    inner_optimizer,
    is_keras_3,
    learning_rate,
    native,
    read,
    set_learning_rate,
    variables_of,
)

Multiplier = float | Callable[[float], float]
Logs = dict[str, Any] | None


class HorovodCallback:
    """Mixed in before the Callback of the Keras in use, which `keras` is."""

    keras: ModuleType
    model: Any
    params: dict[str, Any]

    def set_model(self, model: Any) -> None:
        """Called by Keras before the steps are compiled."""
        super().set_model(model)  # type: ignore[misc]
        hooks.switch_off_xla(model, self.keras)


class BroadcastGlobalVariables(HorovodCallback):
    """Makes all ranks start from the root's model and optimizer: after the first batch, when all variables exist."""

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.broadcast_done = False
        self._local_vars: list[Any] = []
        for variable in _as_variables(local_variables):
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Leave this variable as it is on every rank."""
        self._local_vars.append(var)

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Broadcast, once. Collective."""
        if self.broadcast_done:
            return
        local = {id(native(each)) for each in self._local_vars}
        variables = [*self.model.weights, *variables_of(self.model.optimizer)]
        shared = {id(native(each)): each for each in variables if id(native(each)) not in local}
        self._broadcast(list(shared.values()))
        self.broadcast_done = True

    def _broadcast(self, variables: list[Any]) -> None:
        backend = module_for(self.keras)
        if self.device:
            import tensorflow as tf

            with tf.device(self.device):
                backend.broadcast_variables(variables, self.root_rank)
        else:
            backend.broadcast_variables(variables, self.root_rank)


def _as_variables(given: Any) -> list[Any]:
    if given is None:
        return []
    many = list(given) if isinstance(given, Iterable) and not hasattr(given, "assign") else [given]
    if not all(hasattr(each, "assign") for each in many):
        raise ValueError("local_variables must be a variable or a list of variables")
    return many


class MetricAverage(HorovodCallback):
    """Replaces the metrics of an epoch by their averages over all ranks: put it before callbacks that read them."""

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Average `logs` in place. Collective; all ranks must have the same metrics."""
        names = sorted(logs or ())
        if not names or logs is None:
            return
        values = np.array([float(read(logs[name])) for name in names])
        averages = hvd.allreduce(values, op=hvd.Average, name="hvd.metrics")
        logs.update(zip(names, (float(each) for each in averages), strict=True))


class LearningRateSchedule(HorovodCallback):
    """Sets the learning rate to `initial_lr` times a multiplier of the epoch, from `start_epoch` to before `end_epoch`.

    A number m as multiplier means m ** (epoch - start_epoch). With `staircase` it changes once an epoch, otherwise
    with every batch. `momentum_correction` scales the accumulated momentum with the new rate.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: Multiplier,
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr must be given: the learning rate that the multiplier is applied to")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch: int | None = None
        self.restore_momentum: Any = None
        if callable(multiplier):
            self.multiplier: Callable[[float], float] = multiplier
        else:
            factor = multiplier
            self.multiplier = lambda epoch: float(factor ** (epoch - start_epoch))

    def on_train_begin(self, logs: Logs = None) -> None:
        """Determine the number of batches of an epoch."""
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch and self.params.get("samples") and self.params.get("batch_size"):
                # Keras 2 sets these in graphs of TensorFlow 1.
                self.steps_per_epoch = math.ceil(self.params["samples"] / self.params["batch_size"])
            if not self.steps_per_epoch:
                raise ValueError("Keras does not know how many batches an epoch has: pass steps_per_epoch")

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Remember the epoch."""
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Set the rate for this batch."""
        epoch = self.current_epoch or 0
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if not self.staircase:
            self._adjust(epoch + float(batch) / self._steps())
        elif batch == 0:
            self._adjust(epoch)

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Restore the momentum that was corrected for one batch."""
        if self.restore_momentum is not None:
            inner_optimizer(self.model.optimizer).momentum = self.restore_momentum
            self.restore_momentum = None

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Report the rate as the metric `lr`."""
        if logs is not None:
            logs["lr"] = learning_rate(self.model.optimizer)

    def _steps(self) -> int:
        if not self.steps_per_epoch:
            raise ValueError("the number of batches of an epoch is not known: pass steps_per_epoch")
        return self.steps_per_epoch

    def _adjust(self, epoch: float) -> None:
        old = learning_rate(self.model.optimizer)
        new = self.initial_lr * self.multiplier(epoch)
        set_learning_rate(self.model.optimizer, new)
        if self.momentum_correction and old != 0 and new != old:
            self._correct_momentum(new / old)

    def _correct_momentum(self, factor: float) -> None:
        optimizer = inner_optimizer(self.model.optimizer)
        momentum = getattr(optimizer, "momentum", None)
        if momentum is None:
            return
        if not isinstance(momentum, (int, float)):  # legacy optimizers hold it in a variable
            self.restore_momentum = float(read(momentum))
            optimizer.momentum = self.restore_momentum * factor
            return
        # A number is part of the compiled step. Scaling the accumulated values has the same effect.
        slots = getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None) or ()
        for slot in slots:
            if slot is not None:
                slot.assign(slot * factor)


class LearningRateWarmup(LearningRateSchedule):
    """Raises the learning rate from that of one rank to `initial_lr`, batch by batch over some epochs."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            size = hvd.size()
            progress = epoch + 1.0 / self._steps()  # the end of the batch, so that the last one has the full rate
            return (progress * (size - 1) / warmup_epochs + 1) / size

        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Report the rate, and the end of the warm-up."""
        super().on_epoch_end(epoch, logs)
        if self.end_epoch is not None and epoch == self.end_epoch - 1 and self.verbose > 0 and hvd.rank() == 0:
            rate = learning_rate(self.model.optimizer)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


class BestModel(HorovodCallback):
    """Saves the best model so far. `filepath` is None until the code that owns the training sets it."""

    def __init__(self, **kwargs: Any) -> None:
        suffix = ".weights.h5" if kwargs.get("save_weights_only") else ".keras"
        placeholder = f"best{suffix}" if is_keras_3(self.keras) else "best"
        super().__init__(filepath=placeholder, save_best_only=True, **kwargs)  # type: ignore[call-arg]
        self.filepath = None


class Callbacks(NamedTuple):
    """The public classes for one Keras. Without BestModelCheckpoint, whose arguments differ."""

    BroadcastGlobalVariablesCallback: Any
    MetricAverageCallback: Any
    LearningRateScheduleCallback: Any
    LearningRateWarmupCallback: Any


def callbacks_for(keras: ModuleType, module: str) -> Callbacks:
    """Derive the callbacks from those of the given Keras. `module` is where scripts find them."""
    base: Any = keras.callbacks.Callback

    class BroadcastGlobalVariablesCallback(BroadcastGlobalVariables, base):  # type: ignore[misc]
        """Makes all ranks start from the root's model and optimizer, after the first batch. Needed for equal models."""

    class MetricAverageCallback(MetricAverage, base):  # type: ignore[misc]
        """Averages the metrics of every epoch over all ranks. Put it before callbacks that read them."""

    class LearningRateScheduleCallback(LearningRateSchedule, base):  # type: ignore[misc]
        """Multiplies the learning rate by a function of the epoch, from `start_epoch` to before `end_epoch`."""

    class LearningRateWarmupCallback(LearningRateWarmup, base):  # type: ignore[misc]
        """Raises the learning rate from that of one rank to `initial_lr` over the first epochs."""

    made = Callbacks(
        BroadcastGlobalVariablesCallback,
        MetricAverageCallback,
        LearningRateScheduleCallback,
        LearningRateWarmupCallback,
    )
    for each in made:
        each.keras, each.__module__, each.__qualname__ = keras, module, each.__name__
    return made


__all__ = [
    "BestModel",
    "BroadcastGlobalVariables",
    "Callbacks",
    "HorovodCallback",
    "LearningRateSchedule",
    "LearningRateWarmup",
    "MetricAverage",
    "callbacks_for",
]
