"""Keras on TensorFlow: how gradients are reduced and variables are broadcast there. All of Keras 2, and Keras 3.

Thread rule: as TensorFlow's; a Reducer belongs to one optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from horovod._generic.objects import broadcast_object
from horovod._generic.reduce_ops import Average, Min, Sum, choose_reduce_op
from horovod._keras.names import GradientNames
from horovod._keras.settings import Settings
from horovod._keras.variables import native
from horovod.common.basics import HorovodBasics
from horovod.tensorflow import collectives, mpi_ops
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager
from horovod.tensorflow.gradients import reduce_gradients, takes_part
from horovod.tensorflow.variables import broadcast_variables as broadcast_tensorflow_variables


class Reducer:
    """Reduces the gradients of one optimizer, and holds back its steps while they are summed up locally."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self._prefix = name
        self._names = GradientNames(f"{name}.{settings.process_set.process_set_id or 0}")
        self.local: list[Any] = []  # variables whose gradients are not reduced
        self.helper: Any = None
        if settings.backward_passes_per_step > 1:
            self.helper = self._make_helper()

    def register_local(self, variable: Any) -> None:
        """Leave the gradient of this variable out."""
        self.local.append(variable)
        if self.helper is not None:
            self.helper.register_local_var(variable)

    def reduce(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients over all ranks, None where there is none."""
        settings = self._settings
        return reduce_gradients(
            grads,
            variables,
            names=self._names.of(variables),
            op=settings.op,
            compression=settings.compression,
            sparse_as_dense=settings.sparse_as_dense,
            predivide_factor=settings.gradient_predivide_factor,
            groups=settings.groups,
            process_set=settings.process_set,
            local_vars=self.local,
            scale_local_gradients=settings.scale_local_gradients,
            device_dense=settings.device_dense,
            device_sparse=settings.device_sparse,
        )

    def compute(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients for the next step: reduced, or the sums so far when it is not due yet."""
        if self.helper is None:
            return self.reduce(grads, variables)
        sums = list(self.helper.compute_gradients(list(grads), list(variables)))
        if not tf.compat.v1.executing_eagerly_outside_functions():
            for variable in (self.helper.counter, *(sum for sum, _ in self.helper._accumulators.values())):
                tf.keras.__internal__.backend.track_variable(variable)  # so that Keras initialises it
        return sums

    def apply(self, step: Callable[[], Any], iterations: Any) -> Any:
        """Make the step if it is due, otherwise only count it."""
        if self.helper is None:
            return step()
        return self.helper.apply_gradients(step, SimpleNamespace(iterations=native(iterations)))

    def _make_helper(self) -> Any:
        settings = self._settings
        common = (
            settings.backward_passes_per_step,
            self.reduce,
            settings.sparse_as_dense,
            settings.average_aggregated_gradients,
        )
        if tf.compat.v1.executing_eagerly_outside_functions():
            return LocalGradientAggregationHelperEager(*common, settings.process_set, settings.scale_local_gradients)
        return LocalGradientAggregationHelper(
            *common,
            HorovodBasics().rank(),
            LocalGradientAggregationHelper._OPTIMIZER_TYPE_KERAS,
            settings.process_set,
            settings.scale_local_gradients,
            self._prefix,
        )


def gradients_of(loss: Any, variables: Any, tape: Any = None, grad_loss: Any = None) -> list[tuple[Any, Any]]:
    """Pairs of gradient and variable, for optimizers of Keras 3, which do not compute gradients themselves."""
    if not callable(loss) and tape is None:
        raise ValueError("a loss that is a tensor needs the tape that recorded it: pass tape=")
    tape = tf.GradientTape() if tape is None else tape
    if callable(loss):
        with tape:
            if not callable(variables):
                tape.watch([native(each) for each in variables])
            loss = loss()
    variables = list(variables() if callable(variables) else variables)
    grads = tape.gradient(loss, [native(each) for each in variables], output_gradients=grad_loss)
    return list(zip(grads, variables, strict=True))


def symbolic_gradients(loss: Any, params: Sequence[Any]) -> list[Any]:
    """Gradients within a graph, where there is no tape."""
    return list(tf.gradients(loss, [native(each) for each in params]))


def all_ranks_agree(finite: Any, settings: Settings) -> Any:
    """Whether it is true on all ranks of the process set; `finite` is a boolean tensor."""
    if not takes_part(settings.process_set):
        return finite
    votes = tf.cast(finite, tf.int32)
    agreed = collectives.allreduce(votes, op=Min, name="hvd.gradients_are_finite", process_set=settings.process_set)
    return tf.cast(agreed, tf.bool)


def broadcast_variables(variables: Iterable[Any], root_rank: int) -> None:
    """Replace the values of all variables by those of the root. Collective.

    They are matched by their places: names may differ, see names.py.
    """
    found = [native(each) for each in variables]
    if tf.executing_eagerly():
        for place, variable in enumerate(found):
            value = tf.convert_to_tensor(variable)
            variable.assign(mpi_ops.broadcast(value, root_rank, name=f"hvd.keras.{place}"))
        return
    tf.compat.v1.keras.backend.get_session().run(broadcast_tensorflow_variables(found, root_rank))


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Return the average (or the sum) of a value over all ranks."""
    chosen = choose_reduce_op(op, average)
    if chosen not in (Average, Sum):
        raise ValueError("op must be hvd.Average or hvd.Sum")
    return _evaluated(
        collectives.allreduce(
            tf.convert_to_tensor(value),
            op=chosen,
            name=name,
            compression=compression,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )
    )


def allgather(value: Any, name: str | None = None) -> Any:
    """Return the values of all ranks, one after the other along their first dimension."""
    return _evaluated(mpi_ops.allgather(tf.convert_to_tensor(value), name=name))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the value of the root on every rank."""
    return _evaluated(mpi_ops.broadcast(tf.convert_to_tensor(value), root_rank, name=name))


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """Return this rank's part of the reduced value."""
    if op not in (Average, Sum):
        raise ValueError("op must be hvd.Average or hvd.Sum")
    return _evaluated(collectives.reducescatter(tf.convert_to_tensor(value), op=op, name=name))


def _evaluated(tensor: Any) -> Any:
    """The tensor, or in a graph of TensorFlow 1 what the session of Keras computes for it."""
    return tensor if tf.executing_eagerly() else tf.compat.v1.keras.backend.get_session().run(tensor)


__all__ = [
    "Compression",
    "Reducer",
    "all_ranks_agree",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_object",
    "broadcast_variables",
    "gradients_of",
    "reducescatter",
    "symbolic_gradients",
]
