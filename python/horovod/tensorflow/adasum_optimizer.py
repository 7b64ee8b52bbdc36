"""An optimizer of TensorFlow 1 that combines the *steps* of all ranks by Adasum.

Each rank takes `passes` steps alone. The change of the variables in these steps is the *difference*; the
differences of all ranks are combined, and the variables continue from the beginning plus that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from horovod.tensorflow.gradients import Wire, takes_part
from horovod.tensorflow.legacy_optimizer import LegacyWrapper


class DistributedAdasumOptimizer(LegacyWrapper):
    """Wraps an optimizer of TensorFlow 1; gradients stay those of the rank."""

    def __init__(self, optimizer: Any, name: str, use_locking: bool, wire: Wire, passes: int) -> None:
        super().__init__(optimizer, name, use_locking, wire)
        self._passes = passes

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """As of the wrapped optimizer."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: str | None = None
    ) -> Any:
        """Take the wrapped optimizer's step; every `passes` steps combine what they have changed on all ranks."""
        pairs = list(grads_and_vars)
        variables = [variable for grad, variable in pairs if grad is not None and variable not in self._local_vars]
        if not takes_part(self._wire.process_set) or not variables:
            return self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        if self._passes == 1:
            begins = [_copy(variable) for variable in variables]
            with tf.control_dependencies(_of_graph(begins)):
                step = self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
            with tf.control_dependencies(_of_graph([step])):
                return _assign(variables, self._combined(variables, begins))
        return self._apply_several(pairs, variables, global_step, name)

    def _apply_several(
        self, pairs: Sequence[tuple[Any, Any]], variables: Sequence[Any], global_step: Any, name: str | None
    ) -> Any:
        """With state between the steps: how many there were, and where the variables began."""
        counter = _local_variable(lambda: tf.zeros([], tf.int32), "adasum/counter")
        kept = [
            _local_variable(lambda each=each: tf.zeros(each.shape, each.dtype.base_dtype), f"adasum/{each.op.name}")
            for each in variables
        ]

        def begin() -> Any:
            return tf.group(*(to.assign(_copy(each)) for to, each in zip(kept, variables, strict=True)))

        begun = tf.cond(tf.equal(counter.read_value(), 0), begin, tf.no_op)
        with tf.control_dependencies(_of_graph([begun])):
            step = self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        with tf.control_dependencies(_of_graph([step])):
            count = counter.assign_add(1)
        with tf.control_dependencies(_of_graph([count])):
            is_due = tf.equal(counter.read_value(), self._passes)

        def combined() -> list[Any]:
            with tf.control_dependencies(_of_graph([counter.assign(0)])):
                return self._combined(variables, [each.read_value() for each in kept])

        def current() -> list[Any]:
            return [_copy(each) for each in variables]

        # Assigned outside of the condition: inside, variables of the old kind cannot be.
        return _assign(variables, tf.cond(is_due, combined, current))

    def _combined(self, variables: Sequence[Any], begins: Sequence[Any]) -> list[Any]:
        """The new values of the variables: the old values plus the combined steps of all ranks."""
        differences = [each.read_value() - begin for each, begin in zip(variables, begins, strict=True)]
        combined = self._wire.reduce(differences, variables, self._local_vars, self._name)
        return [begin + change for begin, change in zip(begins, combined, strict=True)]


def _copy(variable: Any) -> Any:
    """Its value now. Reading gives the memory itself for variables of the old kind, which change in place."""
    return tf.raw_ops.DeepCopy(x=variable.read_value())


def _assign(variables: Sequence[Any], values: Sequence[Any]) -> Any:
    return tf.group(*(each.assign(value) for each, value in zip(variables, values, strict=True)))


def _local_variable(initial: Any, name: str) -> Any:
    return tf.compat.v1.Variable(
        initial,
        trainable=False,
        name=name,
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
        use_resource=True,
    )


def _of_graph(results: Sequence[Any]) -> list[Any]:
    """The operations to wait for; none in eager execution."""
    return [] if tf.executing_eagerly() else list(results)
