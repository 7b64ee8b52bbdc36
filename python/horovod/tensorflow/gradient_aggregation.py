"""Local gradient aggregation: gradients of several backward passes are added up before they are reduced and applied.

The helper is between an optimizer and the reduction. `compute_gradients` adds to accumulators, and every n-th time
reduces them; `apply_gradients` lets only those steps reach the variables. The state is in variables, so that the same
operations count when a graph or function is run again and again.

Thread rule: one step at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.as_written import as_written
from horovod.tensorflow.gradients import scaled_local, takes_part
from horovod.tensorflow.variable_set import VariableSet, name_of, storage

Reduce = Callable[[list[Any], list[Any]], Sequence[Any]]  # gradients and their variables: the reduced gradients


class Aggregation:
    """Shared by the helpers: everything except the kind of their variables."""

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Reduce,
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        process_set: ProcessSet,
        scale_local_gradients: bool,
    ) -> None:
        if backward_passes_per_step <= 0:
            raise ValueError(f"backward_passes_per_step must be positive, not {backward_passes_per_step}")
        self.backward_passes_per_step = backward_passes_per_step
        self.allreduce_func = allreduce_func
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = average_aggregated_gradients
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self._local = VariableSet()
        self._counter: Any = None
        self._accumulators: dict[int, tuple[Any, Any]] = {}  # by identity of the variable, which is kept beside it
        self._computed: list[Any] = []  # in a graph of TensorFlow 1: the newest gradients; functions keep the order

    @property
    def counter(self) -> Any:
        """A variable: the passes since gradients were reduced, from 0 to backward_passes_per_step - 1."""
        if self._counter is None:
            self._counter = self._variable(lambda: tf.zeros([], tf.int32), "aggregation_counter")
        return self._counter

    def restart(self) -> None:
        """Begin with nothing: in a new world ranks that join have no sums, and all must reduce in the same pass."""
        variables = [into for into, _ in self._accumulators.values()]
        variables += [] if self._counter is None else [self._counter]
        if _in_plain_graph():
            tf.compat.v1.keras.backend.get_session().run([each.initializer for each in variables])
            return
        for each in variables:
            each.assign(tf.zeros(each.shape, each.dtype))

    def register_local_var(self, var: Any) -> None:
        """From now on this variable's gradient is not reduced, only aggregated."""
        self._local.add(var)

    @as_written
    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """Add the gradients to those of the passes before, and return their sums; every n-th time reduced.

        Missing gradients stay None. Sparse ones cannot be added up: ValueError unless `sparse_as_dense`.
        """
        dense = self._dense(grads)
        if self.backward_passes_per_step == 1:
            return self._reduced(dense, list(vars))
        present = [place for place, grad in enumerate(dense) if grad is not None]
        given = [dense[place] for place in present]
        variables = [vars[place] for place in present]
        accumulators = [self._accumulator(*pair) for pair in zip(given, variables, strict=True)]
        added = [into.assign_add(grad) for into, grad in zip(accumulators, given, strict=True)]
        with tf.control_dependencies([*_operations(added), *_operations([self.counter.assign_add(1)])]):
            is_due = tf.equal(self.counter.read_value(), self.backward_passes_per_step)

            def reduced() -> list[Any]:
                sums = [each.read_value() for each in accumulators]
                outputs = [tf.identity(each) for each in self._reduced(sums, variables)]
                with tf.control_dependencies(outputs):  # zeroed, not multiplied: they may hold infinities
                    emptied = [each.assign(tf.zeros(each.shape, each.dtype)) for each in accumulators]
                    emptied.append(self.counter.assign(0))
                with tf.control_dependencies(_operations(emptied)):
                    return [tf.identity(each) for each in outputs] or [tf.constant(0.0)]

            def kept() -> list[Any]:
                return [each.read_value() for each in accumulators] or [tf.constant(0.0)]

            results = tf.cond(is_due, reduced, kept)
        self._computed = list(results) if _in_plain_graph() else []
        returned: list[Any] = [None] * len(dense)
        for place, result in zip(present, results, strict=False):  # without gradients there is one that stands for none
            returned[place] = result
        return returned

    def apply_gradients(self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the closure if the newest gradients are reduced; otherwise only the number of steps advances.

        `args` and `kwargs` are those of the optimizer's apply_gradients: a `global_step` among them is what advances,
        else `optimizer.iterations`.
        """
        if self.backward_passes_per_step == 1:
            return apply_grads_closure()
        if tf.executing_eagerly():
            return apply_grads_closure() if int(self.counter) == 0 else self._advance(optimizer, args, kwargs)
        with tf.control_dependencies(self._computed):
            is_due = tf.equal(self.counter.read_value(), 0)

        def after(step: Callable[[], Any]) -> Callable[[], Any]:
            def branch() -> Any:
                with tf.control_dependencies(_operations([step()])):
                    return tf.constant(True)

            return branch

        done = tf.cond(is_due, after(apply_grads_closure), after(lambda: self._advance(optimizer, args, kwargs)))
        return done.op if _in_plain_graph() else done

    def _advance(self, optimizer: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        step = self._step_variable(optimizer, args, kwargs)
        return None if step is None else step.assign_add(tf.cast(1, step.dtype))

    def _step_variable(self, optimizer: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return getattr(optimizer, "iterations", None)

    def _variable(self, initial: Callable[[], Any], name: str) -> Any:
        """A variable for the helper's state. The subclasses know where such a thing is kept."""
        raise AssertionError("a subclass makes variables")

    def _accumulator(self, grad: Any, variable: Any) -> Any:
        key = id(storage(variable))
        if key not in self._accumulators:
            shape = tf.TensorShape(variable.shape)
            shape = shape if shape.is_fully_defined() else grad.shape
            made = self._variable(lambda: tf.zeros(shape, grad.dtype), f"aggregation/{name_of(variable)}")
            self._accumulators[key] = (made, storage(variable))
        return self._accumulators[key][0]

    def _dense(self, grads: Sequence[Any]) -> list[Any]:
        sparse = [grad for grad in grads if isinstance(grad, tf.IndexedSlices)]
        if sparse and not self.sparse_as_dense and self.backward_passes_per_step > 1:
            raise ValueError(
                "IndexedSlices cannot be aggregated over several backward passes; pass sparse_as_dense=True, or leave "
                "backward_passes_per_step at 1"
            )
        if not self.sparse_as_dense:
            return list(grads)
        return [tf.convert_to_tensor(grad) if isinstance(grad, tf.IndexedSlices) else grad for grad in grads]

    def _reduced(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        """The result when the passes are complete."""
        results = list(grads)
        global_places = [place for place, variable in enumerate(variables) if variable not in self._local]
        reduced = self.allreduce_func(
            [grads[place] for place in global_places], [variables[place] for place in global_places]
        )
        for place, grad in zip(global_places, reduced, strict=True):
            results[place] = grad
        if self.scale_local_gradients and len(self._local) > 0 and takes_part(self.process_set):
            for place in set(range(len(results))).difference(global_places):
                if results[place] is not None:
                    results[place] = scaled_local(results[place], self.process_set)
        if self.average_aggregated_gradients and self.backward_passes_per_step > 1:
            passes = self.backward_passes_per_step
            results = [None if grad is None else grad / tf.cast(passes, grad.dtype) for grad in results]
        return results


class LocalGradientAggregationHelper(Aggregation):
    """Aggregation in graphs of TensorFlow 1. Its variables are local ones: run `local_variables_initializer()`."""

    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Reduce,
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int,
        optimizer_type: str,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ) -> None:
        super().__init__(
            backward_passes_per_step,
            allreduce_func,
            sparse_as_dense,
            average_aggregated_gradients,
            process_set,
            scale_local_gradients,
        )
        self.rank = rank
        self.optimizer_type = optimizer_type
        self.name = name

    def _step_variable(self, optimizer: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self.optimizer_type == self._OPTIMIZER_TYPE_KERAS:
            return super()._step_variable(optimizer, args, kwargs)
        return kwargs.get("global_step", args[1] if len(args) > 1 else None)

    def _variable(self, initial: Callable[[], Any], name: str) -> Any:
        with tf.init_scope():
            return tf.compat.v1.Variable(
                initial,
                trainable=False,
                name=f"{self.name}/{name}" if self.name else name,
                collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
                use_resource=True,
            )


def _in_plain_graph() -> bool:
    """Whether operations are being put into a graph of TensorFlow 1, which runs them in any order."""
    return not tf.executing_eagerly() and not tf.compat.v1.get_default_graph().building_function


def _operations(results: Sequence[Any]) -> list[Any]:
    """The results of assignments and optimizers that can be waited for in a graph."""
    if tf.executing_eagerly():
        return []
    found = [getattr(each, "op", each) for each in results]
    return [each for each in found if isinstance(each, tf.Operation)]
