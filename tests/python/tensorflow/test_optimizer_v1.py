"""DistributedOptimizer around optimizers of TensorFlow 1, in graphs and eager; and what it refuses."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from stepping import mean_of_ranks

import horovod.tensorflow as hvd

v1 = tf.compat.v1


def sgd(rate: float = 1.0) -> Any:
    return v1.train.GradientDescentOptimizer(rate)


def train_in_graph(steps: int, resource: bool = True, local: bool = False, **options: Any) -> list[Any]:
    """The values of a variable whose gradient is rank + step number, after each step; and then the global steps."""
    with tf.Graph().as_default():
        optimizer = hvd.DistributedOptimizer(sgd(), **options)
        variable = v1.get_variable("v", initializer=tf.constant([1.0, 2.0]), use_resource=resource)
        global_step = v1.train.get_or_create_global_step()
        fed = v1.placeholder(tf.float32, [])
        if local:
            optimizer.register_local_var(variable)
        train = optimizer.minimize(tf.reduce_sum(variable) * fed, global_step=global_step)
        with v1.Session() as session:
            session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
            values = []
            for number in range(1, steps + 1):
                session.run(train, {fed: hvd.rank() + number})
                values.append(session.run(variable))
            return [*values, int(session.run(global_step))]


def gradient(number: int) -> float:
    return float(mean_of_ranks(lambda rank: rank + number))


@pytest.mark.parametrize("resource", [False, True])
def test_a_step_uses_the_average(resource: bool) -> None:
    first, second, steps = train_in_graph(2, resource)
    np.testing.assert_allclose(first, np.array([1, 2]) - gradient(1), rtol=1e-6)
    np.testing.assert_allclose(second, np.array([1, 2]) - gradient(1) - gradient(2), rtol=1e-6)
    assert steps == 2


def test_sum_and_groups() -> None:
    first, _ = train_in_graph(1, op=hvd.Sum, groups=1)
    np.testing.assert_allclose(first, np.array([1, 2]) - gradient(1) * hvd.size(), rtol=1e-6)


def test_predivided_and_compressed() -> None:
    options = {"gradient_predivide_factor": 2.0, "compression": hvd.Compression.fp16}
    first, _ = train_in_graph(1, **options)
    np.testing.assert_allclose(first, np.array([1, 2]) - gradient(1), rtol=1e-3)


@pytest.mark.parametrize("average", [False, True])
def test_several_passes_make_one_step(average: bool) -> None:
    values = train_in_graph(4, backward_passes_per_step=2, average_aggregated_gradients=average)
    assert values.pop() == 4
    change = (gradient(1) + gradient(2)) / (2 if average else 1)
    np.testing.assert_allclose(values[0], [1, 2])
    np.testing.assert_allclose(values[1], np.array([1, 2]) - change, rtol=1e-6)
    np.testing.assert_allclose(values[2], values[1])
    change += (gradient(3) + gradient(4)) / (2 if average else 1)
    np.testing.assert_allclose(values[3], np.array([1, 2]) - change, rtol=1e-6)


@pytest.mark.parametrize("passes", [1, 2])
def test_local_variables_are_left_to_the_rank(passes: int) -> None:
    values = train_in_graph(passes, local=True, backward_passes_per_step=passes)
    change = sum(hvd.rank() + n for n in range(1, passes + 1)) / hvd.size()
    np.testing.assert_allclose(values[passes - 1], np.array([1, 2]) - change, rtol=1e-6)


def test_slots_and_names_are_those_of_the_wrapped_optimizer() -> None:
    wrapped = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(0.1, 0.9))
    assert wrapped.get_name() == "DistributedMomentumOptimizer"
    assert hvd.DistributedOptimizer(sgd(), name="Mine").get_name() == "Mine"
    adasum = hvd.DistributedOptimizer(sgd(), op=hvd.Adasum)
    assert adasum.get_name() == "DistributedDeltaGradientDescentOptimizer"
    assert isinstance(wrapped, v1.train.Optimizer)
    with tf.Graph().as_default():
        variable = v1.get_variable("v", initializer=1.0)
        wrapped.minimize(variable * 1.0)
        assert wrapped.get_slot_names() == ["momentum"]
        assert wrapped.get_slot(variable, "momentum") is not None
        assert [each.name for each in wrapped.variables()] == [each.name for each in wrapped._optimizer.variables()]


def test_missing_and_sparse_gradients() -> None:
    with tf.Graph().as_default():
        table = v1.get_variable("table", initializer=tf.ones([3, 2]))
        unused = v1.get_variable("unused", initializer=1.0)
        loss = tf.reduce_sum(tf.gather(table, [0, hvd.rank() % 2]))
        for as_dense in (False, True):
            wrapped = hvd.DistributedOptimizer(sgd(), sparse_as_dense=as_dense)
            (grad, _), (missing, _) = wrapped.compute_gradients(loss, [table, unused])
            assert missing is None
            assert isinstance(grad, tf.IndexedSlices) != as_dense
            expected = np.zeros((3, 2))
            for rank in range(hvd.size()):
                np.add.at(expected, [0, rank % 2], 1 / hvd.size())
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                np.testing.assert_allclose(session.run(tf.convert_to_tensor(grad)), expected, rtol=1e-6)


def test_minimize_in_eager_execution() -> None:
    variable = tf.Variable([1.0, 2.0])
    wrapped = hvd.DistributedOptimizer(sgd())
    wrapped.minimize(lambda: tf.reduce_sum(variable) * (hvd.rank() + 1.0), var_list=[variable])
    np.testing.assert_allclose(variable, np.array([1, 2]) - gradient(1), rtol=1e-6)


def test_ranks_outside_of_the_process_set_step_by_themselves() -> None:
    alone = hvd.add_process_set([0])
    try:
        first, _ = train_in_graph(1, process_set=alone)
        np.testing.assert_allclose(first, np.array([1, 2]) - (hvd.rank() + 1), rtol=1e-6)
    finally:
        hvd.remove_process_set(alone)


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize("passes", [1, 2])
def test_adasum_combines_steps(resource: bool, passes: int) -> None:
    if hvd.size() != 2:
        pytest.skip("for two ranks")
    values = train_in_graph(2 * passes, resource, op=hvd.Adasum, backward_passes_per_step=passes)
    assert values.pop() == 2 * passes
    mine = np.array([1, 2]) - (hvd.rank() + 1)
    ours = np.array([1, 2]) - sum(gradient(n) for n in range(1, passes + 1))  # parallel steps: their average
    np.testing.assert_allclose(values[0], ours if passes == 1 else mine, rtol=1e-5)
    np.testing.assert_allclose(values[passes - 1], ours, rtol=1e-5)
    everywhere = np.asarray(hvd.allgather(values[-1][None]))
    np.testing.assert_allclose(everywhere, np.broadcast_to(everywhere[0], everywhere.shape), rtol=1e-6)
    assert not np.allclose(values[-1], values[passes - 1])


def test_adasum_needs_the_global_set() -> None:
    alone = hvd.add_process_set([0])
    try:
        with pytest.raises(NotImplementedError, match="global process set"):
            hvd.DistributedOptimizer(sgd(), op=hvd.Adasum, process_set=alone)
    finally:
        hvd.remove_process_set(alone)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "gradient_predivide_factor"),
        ({"op": hvd.Adasum, "average_aggregated_gradients": True}, "average_aggregated_gradients"),
        ({"groups": 0}, "positive"),
        ({"groups": -2}, "positive"),
        ({"backward_passes_per_step": 0}, "positive"),
        ({"backward_passes_per_step": 2}, "needs a graph"),
        ({"backward_passes_per_step": 2, "op": hvd.Adasum}, "needs a graph"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], words: str) -> None:
    assert tf.executing_eagerly()
    with pytest.raises(ValueError, match=words):
        hvd.DistributedOptimizer(sgd(), **options)


def test_adasum_does_not_work_with_keras() -> None:
    with pytest.raises(ValueError, match="Adasum"):
        hvd.DistributedOptimizer(tf.keras.optimizers.SGD(), op=hvd.Adasum)


def test_something_else_is_no_optimizer() -> None:
    with pytest.raises(ValueError, match="expected an optimizer"):
        hvd.DistributedOptimizer("sgd")


def test_num_groups_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="num_groups"):
        hvd.DistributedOptimizer(sgd(), num_groups=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hvd.DistributedOptimizer(sgd(), groups=2)


def test_options_reach_the_optimizer_of_keras() -> None:
    variable = tf.Variable([1.0, 2.0])
    wrapped = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), op=hvd.Sum, groups=1)

    @tf.function
    def step() -> None:
        wrapped.apply_gradients([(tf.constant([1.0, 1.0]) * (hvd.rank() + 1), variable)])

    step()
    np.testing.assert_allclose(variable, np.array([1, 2]) - gradient(1) * hvd.size(), rtol=1e-6)
