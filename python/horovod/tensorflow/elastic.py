"""Elastic training with TensorFlow: continue when hosts come and go. The states survive, `run` is the loop."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from horovod._generic.objects import broadcast_object
from horovod._keras import names
from horovod._keras.elastic import KerasModelState, fitting
from horovod._native.library import world_failure
from horovod.common.elastic import ObjectState, run_fn
from horovod.common.exceptions import HorovodInternalError
from horovod.tensorflow.mpi_ops import init, rank, shutdown
from horovod.tensorflow.variables import broadcast_variables

R = TypeVar("R")

_OUR_OPERATION = re.compile(
    r"\bHorovod(InternalError|(Grouped)?Allreduce|(Grouped)?Allgather|Broadcast|Alltoall|(Grouped)?Reducescatter|Join)"
)


def run(func: Callable[..., R]) -> Callable[..., R]:
    """Decorator of the training function, whose first argument is the state.

    When a collective fails it is called again from the last commit, when hosts changed from where it is; in between,
    a new world is formed. All other errors, also those of TensorFlow's own operations, end the training.
    """

    @functools.wraps(func)
    def translated(*args: Any, **kwargs: Any) -> R:
        try:
            return func(*args, **kwargs)
        except (tf.errors.UnknownError, tf.errors.AbortedError) as error:
            if not _OUR_OPERATION.search(str(error)):
                raise
            raise HorovodInternalError(str(error), origin=world_failure()) from error

    return run_fn(translated, _form_new_world)


def _form_new_world() -> None:
    shutdown()
    init()
    names.restart()


class TensorFlowKerasState(KerasModelState):
    """A Keras model with its variables made, its optimizer, and plain objects as keyword arguments."""


class TensorFlowState(ObjectState):
    """Variables, and plain objects as keyword arguments. Without `variables`: all global ones of the graph.

    In a graph of TensorFlow 1, `session` is the one that runs it. Nothing is sent before `sync`: a worker that joins
    makes its state while the others train.
    """

    def __init__(self, variables: Sequence[Any] | None = None, session: Any = None, **kwargs: Any) -> None:
        self.variables = list(tf.compat.v1.global_variables() if variables is None else variables)
        self.session = session
        self._broadcasts: dict[int, Any] = {}  # of a graph, by root rank
        self._assignment: tuple[Any, list[Any]] | None = None
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **kwargs)
        self.save()

    def save(self) -> None:
        """Copy the values of the variables and the other objects."""
        self._saved_values = self._read()
        super().save()

    def restore(self) -> None:
        """Go back to the values last saved."""
        self._assign(self._saved_values)
        super().restore()

    def sync(self) -> None:
        """Take over the values of the rank `sync_root`, then copy them. Collective."""
        root = self.sync_root
        if tf.executing_eagerly():
            if self.variables:
                broadcast_variables(self.variables, root_rank=root)
        else:
            if root not in self._broadcasts:
                # In the negotiation the names are those of the nodes, independent of earlier roots of this process.
                with tf.compat.v1.name_scope(f"elastic_from_{root}/"):
                    self._broadcasts[root] = broadcast_variables(self.variables, root_rank=root)
            self._run(self._broadcasts[root])
        self._saved_values = self._read()
        super().sync()

    def durable_values(self) -> Any:
        """The copies, which are replaced by the next ones and never changed."""
        return {**super().durable_values(), "variables": self._saved_values}

    def load_durable_values(self, values: Any) -> None:
        """Set all variables; ValueError if the file has others."""
        self._saved_values = fitting(values, self.variables)
        super().load_durable_values(values)
        self.restore()

    def _read(self) -> list[Any]:
        if tf.executing_eagerly():
            return [variable.numpy().copy() for variable in self.variables]
        return list(self._run(self.variables))

    def _assign(self, values: Sequence[Any]) -> None:
        if tf.executing_eagerly():
            for variable, value in zip(self.variables, values, strict=True):
                variable.assign(value)
            return
        if self._assignment is None:
            places = [
                tf.compat.v1.placeholder(variable.dtype.base_dtype, variable.shape) for variable in self.variables
            ]
            assigned = [variable.assign(place) for variable, place in zip(self.variables, places, strict=True)]
            self._assignment = tf.group(assigned), places
        operation, places = self._assignment
        self._run(operation, dict(zip(places, values, strict=True)))

    def _run(self, fetches: Any, feeds: dict[Any, Any] | None = None) -> Any:
        session = self.session or tf.compat.v1.get_default_session() or tf.compat.v1.keras.backend.get_session()
        return session.run(fetches, feeds)


__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]
