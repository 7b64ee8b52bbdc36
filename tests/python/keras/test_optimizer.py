"""The optimizer as an object: its class, its configuration, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from small import KERAS_3, assert_close, fit, fit_alone, make_model, optimizers

import horovod.keras
import horovod.tensorflow.keras as hvd


@pytest.mark.parametrize("module", [hvd, horovod.keras], ids=["tensorflow.keras", "keras"])
def test_class_bears_the_name_of_the_given_one(module: Any) -> None:
    optimizer = module.DistributedOptimizer(optimizers.Adam(0.25))
    assert type(optimizer).__name__ == "Adam"
    assert type(optimizer).__module__ == "horovod._keras"
    assert isinstance(optimizer, optimizers.Adam)
    assert float(optimizer.learning_rate) == 0.25


def test_configuration_round_trip_keeps_it_distributed() -> None:
    optimizer = hvd.DistributedOptimizer(optimizers.Adam(0.25, beta_1=0.5), backward_passes_per_step=3)
    config = optimizer.get_config()
    assert config == optimizers.Adam.from_config(dict(config)).get_config(), "a plain Adam reads it"
    again = type(optimizer).from_config(config)
    assert type(again) is type(optimizer)
    assert again.beta_1 == 0.5
    assert again._agg_helper.backward_passes_per_step == 3


def test_serialized_it_is_the_plain_optimizer() -> None:
    serialized = optimizers.serialize(hvd.DistributedOptimizer(optimizers.Adam(0.25)))
    plain = optimizers.deserialize(serialized)
    assert type(plain) is optimizers.Adam


def test_attributes() -> None:
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.1), scale_local_gradients=False)
    variable = tf.Variable([1.0])
    optimizer.register_local_var(variable)
    optimizer.register_local_var(variable)
    assert len(optimizer._local_vars) == 1
    assert optimizer._agg_helper is None
    assert len(optimizer.variables()) == len(optimizer.variables) > 0
    assert optimizer.process_set is hvd.global_process_set
    assert optimizer.scale_local_gradients is False
    grads = optimizer._allreduce([tf.constant([float(hvd.rank())]), None], [tf.Variable([1.0]), tf.Variable([1.0])])
    assert grads[0].numpy() == [(hvd.size() - 1) / 2]
    assert grads[1] is None


class OwnSchedule(optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """A schedule that Keras does not know by name."""

    def __call__(self, step: Any) -> Any:
        return 0.1 / (1.0 + tf.cast(step, tf.float32))

    def get_config(self) -> dict[str, Any]:
        return {}


SCHEDULES = [lambda: optimizers.schedules.ExponentialDecay(0.1, 2, 0.5), OwnSchedule]


@pytest.mark.parametrize("make", SCHEDULES, ids=["decay", "own"])
@pytest.mark.parametrize("legacy", [False] if KERAS_3 else [False, True])
def test_a_schedule_as_learning_rate(make: Any, legacy: bool) -> None:
    model, reference = make_model(), make_model()
    kind = optimizers.legacy.SGD if legacy else optimizers.SGD
    fit(model, hvd.DistributedOptimizer(kind(make())))
    fit_alone(reference, kind(make()))
    assert_close(model.get_weights(), reference.get_weights())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"op": 2}, "op"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "gradient_predivide_factor"),
        ({"backward_passes_per_step": 0}, "backward_passes_per_step"),
        ({"groups": 0}, "groups"),
        ({"groups": -1}, "groups"),
        ({"groups": [3]}, "groups"),
    ],
)
def test_arguments_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hvd.DistributedOptimizer(optimizers.SGD(0.1), **options)


def test_num_groups_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="groups"):
        hvd.DistributedOptimizer(optimizers.SGD(0.1), num_groups=2)


def test_not_an_optimizer_of_keras() -> None:
    with pytest.raises(ValueError, match="str"):
        hvd.DistributedOptimizer("adam")
    with pytest.raises(ValueError, match="twice"):
        hvd.DistributedOptimizer(hvd.DistributedOptimizer(optimizers.SGD(0.1)))


def test_sparse_gradients_are_not_summed_up() -> None:
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.1), backward_passes_per_step=2)
    variable = tf.Variable(tf.ones([3, 2]))
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]), tf.constant([3, 2]))
    with pytest.raises(ValueError, match="sparse_as_dense"):
        optimizer.apply_gradients([(slices, variable)])


class Computing(optimizers.SGD):  # type: ignore[misc]
    """Computes gradients in its own way: twice as large."""

    def get_gradients(self, loss: Any, params: Any) -> Any:
        return [2 * each for each in tf.gradients(loss, params)]

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> Any:
        with tf.GradientTape() as tape:
            value = loss()
        return [(2 * grad, each) for grad, each in zip(tape.gradient(value, var_list), var_list, strict=True)]


class Applying(optimizers.SGD):  # type: ignore[misc]
    """Applies gradients in its own way: cuts them at 1, and one variable after the other."""

    def apply_gradients(self, grads_and_vars: Any) -> Any:
        for grad, variable in grads_and_vars:
            super().apply_gradients([(tf.minimum(grad, 1.0), variable)])


class Calling(optimizers.SGD):  # type: ignore[misc]
    """One of its methods calls another of Horovod's."""

    def get_gradients(self, loss: Any, params: Any) -> Any:
        return [3 * grad for grad, _ in self.compute_gradients(loss, params)]


def gradient_of_rank(rank: int) -> float:
    return 0.25 * (rank + 1)


def loss_of(variables: Any) -> Any:
    return lambda: tf.add_n([each * gradient_of_rank(hvd.rank()) for each in variables])


def total_gradient() -> float:
    return sum(gradient_of_rank(rank) for rank in range(hvd.size()))


def make(cls: Any) -> tuple[Any, list[Any]]:
    variables = [tf.Variable(0.0), tf.Variable(0.0)]
    optimizer = hvd.DistributedOptimizer(cls(1.0), op=hvd.Sum)  # of a sum it shows when it is reduced twice
    optimizer.build(variables)
    return optimizer, variables


def test_own_ways_to_compute_gradients_are_used() -> None:
    optimizer, variables = make(Computing)
    doubled = 2 * total_gradient()
    pairs = optimizer.compute_gradients(loss_of(variables), variables)
    assert_close([grad.numpy() for grad, _ in pairs], [doubled, doubled])
    optimizer.apply_gradients(pairs)
    optimizer.minimize(loss_of(variables), variables)
    assert_close([each.numpy() for each in variables], [-2 * doubled] * 2)

    @tf.function
    def grads() -> Any:
        return optimizer.get_gradients(loss_of(variables)(), variables)

    assert_close([each.numpy() for each in grads()], [doubled, doubled])


def test_own_ways_to_apply_gradients_get_the_reduced_ones() -> None:
    optimizer, variables = make(Applying)
    for _ in range(2):
        grads = [tf.constant(gradient_of_rank(hvd.rank())), tf.constant(10.0)]
        optimizer.apply_gradients(zip(grads, variables, strict=True))
    assert_close([each.numpy() for each in variables], [-2 * min(1.0, total_gradient()), -2.0])
    optimizer.minimize(loss_of(variables), variables)
    assert_close([variables[1].numpy()], [-2.0 - min(1.0, total_gradient())])


def test_methods_that_call_each_other_reduce_once() -> None:
    optimizer, variables = make(Calling)

    @tf.function
    def grads() -> Any:
        return optimizer.get_gradients(loss_of(variables), variables)

    assert_close([each.numpy() for each in grads()], [3 * total_gradient()] * 2)


@pytest.mark.skipif(KERAS_3, reason="Keras 3 has no aggregate_gradients")
def test_own_ways_to_aggregate_come_after_the_reduction() -> None:
    class Aggregating(optimizers.SGD):  # type: ignore[misc]
        def aggregate_gradients(self, grads_and_vars: Any) -> Any:
            return [(tf.minimum(grad, 1.0), variable) for grad, variable in grads_and_vars]

    optimizer, variables = make(Aggregating)
    optimizer.apply_gradients([(tf.constant(10.0), variables[0])])
    assert float(variables[0]) == -1.0

    class Legacy(optimizers.legacy.SGD):  # type: ignore[misc]
        def apply_gradients(self, grads_and_vars: Any, name: Any = None) -> Any:
            return super().apply_gradients([(tf.minimum(grad, 1.0), each) for grad, each in grads_and_vars], name)

    variable = tf.Variable(0.0)
    hvd.DistributedOptimizer(Legacy(1.0), op=hvd.Sum).apply_gradients([(tf.constant(0.75), variable)])
    assert float(variable) == -1.0
