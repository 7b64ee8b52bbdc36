"""Gradients of several backward passes: summed, reduced every n-th time, and only then applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from stepping import WAYS, mean_of_ranks

import horovod.tensorflow as hvd
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager
from horovod.tensorflow.gradients import reduce_gradients


class CountingOptimizer:
    """As much of an optimizer as the helper sees."""

    def __init__(self) -> None:
        self.iterations = tf.Variable(0, dtype=tf.int64)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Any:
    return WAYS[request.param]


def make(passes: int, average: bool = False, sparse_as_dense: bool = False, **options: Any) -> Any:
    return LocalGradientAggregationHelperEager(passes, reduce_gradients, sparse_as_dense, average, **options)


class Steps:
    """Steps of a helper over one variable of two elements, with the gradient that the caller says."""

    def __init__(self, helper: Any, way: Any) -> None:
        self.helper = helper
        self.optimizer = CountingOptimizer()
        self.variable = tf.Variable([0.0, 0.0])
        self._take = way(self._step)

    def take(self, value: float) -> Any:
        return self._take(tf.constant([value, 2 * value], tf.float32)).numpy()

    def _step(self, grad: Any) -> Any:
        grads = self.helper.compute_gradients([grad], [self.variable])

        def apply() -> None:
            self.variable.assign_sub(grads[0])
            self.optimizer.iterations.assign_add(1)

        self.helper.apply_gradients(apply, self.optimizer, [(grads[0], self.variable)])
        return grads[0]


@pytest.mark.parametrize("passes", [1, 2, 3])
@pytest.mark.parametrize("average", [False, True])
def test_variables_change_every_nth_step_by_the_reduced_sum(way: Any, passes: int, average: bool) -> None:
    steps = Steps(make(passes, average), way)
    expected = 0.0
    for number in range(1, 2 * passes + 2):
        grad = steps.take(hvd.rank() + number)
        if number % passes == 0:
            terms = range(number - passes + 1, number + 1)
            change = sum(mean_of_ranks(lambda rank, n=n: rank + n) for n in terms) / (passes if average else 1)
            np.testing.assert_allclose(grad, [change, 2 * change], rtol=1e-6)
            expected -= change
        np.testing.assert_allclose(steps.variable.numpy(), [expected, 2 * expected], rtol=1e-6)
        assert steps.optimizer.iterations.numpy() == number
        assert steps.helper.counter.numpy() == (number % passes if passes > 1 else 0)


def test_infinite_gradients_are_gone_after_they_were_applied(way: Any) -> None:
    steps = Steps(make(2), way)
    steps.take(float("inf"))
    assert np.isinf(steps.take(1.0)).all()
    steps.take(1.0)
    np.testing.assert_allclose(steps.take(1.0), [2, 4])


def test_a_missing_gradient_stays_none(way: Any) -> None:
    helper = make(2)
    used, unused = tf.Variable(0.0), tf.Variable(0.0)

    @way
    def step(value: Any) -> Any:
        grads = helper.compute_gradients([None, value], [unused, used])
        assert grads[0] is None
        return grads[1]

    step(tf.constant(1.0))
    assert step(tf.constant(hvd.rank() + 1.0)).numpy() == 1 + mean_of_ranks(lambda rank: rank + 1)


def test_no_gradients_at_all(way: Any) -> None:
    helper = make(2)
    variable = tf.Variable(0.0)

    @way
    def step() -> Any:
        assert helper.compute_gradients([None], [variable]) == [None]
        return helper.counter.read_value()

    assert [step().numpy() for _ in range(3)] == [1, 0, 1]


def test_local_variables_are_aggregated_and_divided(way: Any) -> None:
    for scale, divisor in ((True, hvd.size()), (False, 1)):
        helper = make(2, scale_local_gradients=scale)
        mine, ours = tf.Variable(0.0), tf.Variable(0.0)
        helper.register_local_var(mine)

        @way
        def step(grad: Any, helper: Any = helper, mine: Any = mine, ours: Any = ours) -> Any:
            return helper.compute_gradients([grad, grad], [mine, ours])

        step(tf.constant(hvd.rank() + 1.0))
        local, reduced = step(tf.constant(hvd.rank() + 2.0))
        np.testing.assert_allclose(local, (2 * hvd.rank() + 3) / divisor, rtol=1e-6)
        np.testing.assert_allclose(reduced, mean_of_ranks(lambda rank: 2 * rank + 3), rtol=1e-6)


def test_sparse_gradients_need_sparse_as_dense(way: Any) -> None:
    table = tf.Variable(tf.zeros([3, 2]))

    def step(helper: Any) -> Any:
        slices = tf.IndexedSlices(tf.ones([1, 2]), [hvd.rank() % 2], tf.constant([3, 2]))
        return helper.compute_gradients([slices], [table])[0]

    with pytest.raises(ValueError, match="sparse_as_dense"):
        way(lambda: step(make(2)))()
    helper = make(2, sparse_as_dense=True)
    take = way(lambda: step(helper))
    take()
    expected = np.zeros((3, 2))
    for rank in range(hvd.size()):
        expected[rank % 2] += 2 / hvd.size()
    np.testing.assert_allclose(take(), expected, rtol=1e-6)


@pytest.mark.parametrize("passes", [0, -1])
def test_the_number_of_passes_is_positive(passes: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        make(passes)


def test_a_function_traced_anew_keeps_the_sums() -> None:
    helper = make(2)
    variable = tf.Variable([0.0, 0.0])

    @tf.function
    def step(rows: Any) -> Any:  # traced for every number of rows
        grad = tf.reduce_sum(rows, 0)
        return helper.compute_gradients([grad], [variable])[0]

    step(tf.ones([1, 2]))
    np.testing.assert_allclose(step(tf.ones([3, 2])), [4, 4])
    assert helper.counter.numpy() == 0


def graph_steps(helper: Any, values: Sequence[float], keras: bool) -> tuple[list[Any], list[Any], list[int]]:
    """The gradients, variables and step numbers of a graph that is run once per value."""
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("v", initializer=tf.zeros(2))
        number = tf.compat.v1.get_variable("number", initializer=tf.zeros([], tf.int64), trainable=False)
        fed = tf.compat.v1.placeholder(tf.float32, [])
        grads = helper.compute_gradients([tf.stack([fed, 2 * fed])], [variable])

        class Optimizer:
            iterations = number

        def apply() -> Any:
            return tf.group(variable.assign_sub(grads[0]), number.assign_add(1))

        pairs = list(zip(grads, [variable], strict=True))
        train = helper.apply_gradients(apply, Optimizer(), pairs, **({} if keras else {"global_step": number}))
        assert isinstance(train, tf.Operation)
        local = tf.compat.v1.local_variables()
        assert len(local) == (2 if helper.backward_passes_per_step > 1 else 0)  # the counter and a sum
        seen: tuple[list[Any], list[Any], list[int]] = ([], [], [])
        with tf.compat.v1.Session() as session:
            session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
            for value in values:
                grad, _ = session.run([grads[0], train], {fed: value})
                seen[0].append(grad)
                seen[1].append(session.run(variable))
                seen[2].append(int(session.run(number)))
        return seen


@pytest.mark.parametrize("kind", ["keras", "legacy"])
@pytest.mark.parametrize("average", [False, True])
def test_aggregation_in_a_graph(kind: str, average: bool) -> None:
    kinds = {
        "keras": LocalGradientAggregationHelper._OPTIMIZER_TYPE_KERAS,
        "legacy": LocalGradientAggregationHelper._OPTIMIZER_TYPE_LEGACY,
    }
    helper = LocalGradientAggregationHelper(2, reduce_gradients, False, average, hvd.rank(), kinds[kind], name="agg")
    grads, variables, numbers = graph_steps(helper, [hvd.rank() + n for n in (1.0, 2.0, 3.0, 4.0)], kind == "keras")
    assert numbers == [1, 2, 3, 4]
    first, second = (mean_of_ranks(lambda rank, n=n: 2 * rank + n) / (2 if average else 1) for n in (3, 7))
    np.testing.assert_allclose(grads[1], [first, 2 * first], rtol=1e-6)
    np.testing.assert_allclose(grads[3], [second, 2 * second], rtol=1e-6)
    np.testing.assert_allclose(variables[0], [0, 0])
    np.testing.assert_allclose(variables[1], variables[2])
    np.testing.assert_allclose(variables[3], [-first - second, -2 * (first + second)], rtol=1e-6)


def test_one_pass_in_a_graph_needs_no_variables() -> None:
    kind = LocalGradientAggregationHelper._OPTIMIZER_TYPE_LEGACY
    helper = LocalGradientAggregationHelper(1, reduce_gradients, False, False, hvd.rank(), kind)
    grads, _, numbers = graph_steps(helper, [hvd.rank() + 1.0], keras=False)
    np.testing.assert_allclose(grads[0][0], mean_of_ranks(lambda rank: rank + 1), rtol=1e-6)
    assert numbers == [1]
