"""The state of an elastic training with Keras, and the callbacks that keep it up to date. See horovod.common.elastic.

Thread rule: the thread that trains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from horovod._keras.backend import module_for
from horovod._keras.variables import build_optimizer, inner_optimizer, keras_of, read, variables_of
from horovod.common.basics import HorovodBasics
from horovod.common.elastic import ObjectState, State

Logs = dict[str, Any] | None


class KerasModelState(ObjectState):
    """A model and its optimizer, and plain objects as keyword arguments."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        if not getattr(model, "built", False):
            raise ValueError(
                "the model has no variables yet: give it an input shape, or call it or model.build(input_shape) before "
                "the state is made"
            )
        self.model = model
        self.optimizer = model.optimizer if optimizer is None else optimizer
        self.backend = backend
        self._framework = module_for(keras_of(model))
        super().__init__(bcast_object=self._framework.broadcast_object, get_rank=HorovodBasics().rank, **kwargs)
        self.save()

    def save(self) -> None:
        """Copy the values of the model, the optimizer and the other objects."""
        self._saved_values = [read(each) for each in self._variables()]
        super().save()

    def restore(self) -> None:
        """Restore the last saved values."""
        for variable, value in zip(self._variables(), self._saved_values, strict=True):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        """Copy the values of the rank `sync_root`, then copy them. Collective."""
        self._framework.broadcast_variables(self._variables(), root_rank=self.sync_root)
        self._saved_values = [read(each) for each in self._variables()]
        super().sync()

    def reset(self) -> None:
        """Discard gradients that were accumulated locally for a later step."""
        helper = getattr(inner_optimizer(self.optimizer), "_agg_helper", None)
        if helper is not None:
            helper.restart()

    def durable_values(self) -> Any:
        """The copies; they are replaced by new ones and never modified."""
        return {**super().durable_values(), "variables": self._saved_values}

    def load_durable_values(self, values: Any) -> None:
        """Set all variables; ValueError if the file is of another model or optimizer."""
        self._saved_values = fitting(values, self._variables())
        super().load_durable_values(values)
        self.restore()

    def _variables(self) -> list[Any]:
        """The same on all ranks, including those that have trained already: the optimizer's are created if need be."""
        variables = list(self.model.weights)
        if self.optimizer is not None:
            build_optimizer(self.optimizer, self.model)
            variables += variables_of(self.optimizer)
        return variables


def fitting(values: Any, variables: Sequence[Any]) -> list[Any]:
    """The values of a file's variables; ValueError unless they can be assigned to these."""
    kept = values.get("variables")
    if kept is None or [np.shape(each) for each in kept] != [tuple(each.shape) for each in variables]:
        raise ValueError(
            "the file's variables are not those of this model and optimizer: another script has written it"
        )
    return list(kept)


class CommitState:
    """Commits the state every `batches_per_commit` batches and at the end of every epoch."""

    def __init__(self, state: State, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Logs = None) -> None:
        """Restart counting: the state may have been restored to a commit."""
        self.batches_remaining = self.batches_per_commit

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Commit if due. Collective in that case."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.state.commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Commit. Collective."""
        self.state.commit()


class UpdateBatchState:
    """Keeps the number of the batch in `state.batch`, and skips the batches that were done before a reset."""

    model: Any
    params: dict[str, Any]

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.steps_per_epoch: int | None = None
        self._done_before = 0  # batches of this epoch, in an earlier call of `fit`
        self._ends_early = False

    def on_train_begin(self, logs: Logs = None) -> None:
        """Determine the length of an epoch again."""
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Shorten the first epoch by the batches already done."""
        self._done_before = 0
        if self.params.get("steps"):
            if self.steps_per_epoch is None:
                self.steps_per_epoch = self.params["steps"]
            self._done_before = self.state.batch
            self.params["steps"] = self.steps_per_epoch - self.state.batch

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Record the batch. In a shortened epoch, stop after the last one: Keras ignores `params`."""
        self.state.batch = self._done_before + batch
        if self._done_before and batch + 1 >= self.params["steps"]:
            self.model.stop_training = self._ends_early = True

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """The next epoch starts at its beginning."""
        self.state.batch = 0
        if self._ends_early:
            self.model.stop_training = self._ends_early = False


class UpdateEpochState:
    """Keeps the number of epochs done in `state.epoch`, counted over all calls of `fit`."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs: Logs = None) -> None:
        """Start from the epoch in the state."""
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Note the epoch."""
        self.state.epoch = self.initial_epoch + epoch + 1


__all__ = ["CommitState", "KerasModelState", "UpdateBatchState", "UpdateEpochState"]
