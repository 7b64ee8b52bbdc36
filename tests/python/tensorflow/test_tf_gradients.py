"""Gradients flow through every verb, by the rules of op_gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from every_rank import change_places
from modes import only_native, run

import horovod.tensorflow as hvd

Verb = Callable[[tf.Tensor], tf.Tensor]
TAPE_MODES = ["eager", "function"]


def gradient(mode: str, verb: Verb, rows: int) -> np.ndarray:
    """The gradient of the sum of the verb's result, each element of which counts as much as this rank's number."""

    def body() -> tf.Tensor:
        given = tf.ones([rows, 2])
        with tf.GradientTape() as tape:
            tape.watch(given)
            loss = tf.reduce_sum(verb(given)) * (hvd.rank() + 1.0)
        return tape.gradient(loss, given)

    if mode == "v1":
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            given = tf.ones([rows, 2])
            (result,) = tf.compat.v1.gradients(tf.reduce_sum(verb(given)) * (hvd.rank() + 1.0), [given])
            return session.run(result)
    return run(mode, body)


def mean() -> float:
    return (hvd.size() + 1) / 2


every_way = pytest.mark.parametrize("mode", [*TAPE_MODES, "v1"])


@every_way
def test_allreduce(mode: str) -> None:
    np.testing.assert_allclose(gradient(mode, hvd.allreduce, 2), mean())
    total = gradient(mode, lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5), 2)
    np.testing.assert_allclose(total, mean() * hvd.size() * 0.5)


@every_way
def test_grouped_allreduce(mode: str) -> None:
    np.testing.assert_allclose(gradient(mode, lambda x: tf.add_n(hvd.grouped_allreduce([x, 2 * x])), 2), 3 * mean())


@every_way
def test_allgather(mode: str) -> None:
    result = gradient(mode, hvd.allgather, hvd.rank() + 1)
    assert result.shape == (hvd.rank() + 1, 2)
    np.testing.assert_allclose(result, mean())


def test_allgather_gives_each_rank_its_own_rows() -> None:
    given = tf.ones([hvd.rank() + 1])
    with tf.GradientTape() as tape:
        tape.watch(given)
        gathered = hvd.allgather(given)
        loss = tf.reduce_sum(gathered * tf.range(tf.cast(tf.size(gathered), tf.float32)))
    first = hvd.rank() * (hvd.rank() + 1) // 2
    np.testing.assert_allclose(tape.gradient(loss, given), np.arange(first, first + hvd.rank() + 1))


@every_way
def test_grouped_allgather(mode: str) -> None:
    verb = lambda x: sum(tf.reduce_sum(each) for each in hvd.grouped_allgather([x, 3 * x]))  # noqa: E731
    np.testing.assert_allclose(gradient(mode, verb, hvd.rank()), np.full((hvd.rank(), 2), 4 * mean()))


@every_way
def test_broadcast(mode: str) -> None:
    root = hvd.size() - 1
    result = gradient(mode, lambda x: hvd.broadcast(x, root), 2)
    np.testing.assert_allclose(result, mean() if hvd.rank() == root else 0)


@every_way
def test_alltoall(mode: str) -> None:
    """The first row goes to rank 0 and so on; one more is not sent."""
    result = gradient(mode, lambda x: hvd.alltoall(x, [1] * hvd.size())[0], hvd.size() + 1)
    np.testing.assert_allclose(result[:, 0], [*range(1, hvd.size() + 1), 0])


def test_names_that_public_code_uses() -> None:
    """They look private, and libraries use them."""
    assert hvd._LegacyOptimizer is tf.compat.v1.train.Optimizer
    assert issubclass(tf.compat.v1.train.AdamOptimizer, hvd._LegacyOptimizer)
    np.testing.assert_allclose(hvd._allreduce(tf.ones([2]), op=hvd.Sum), [hvd.size()] * 2)
    assert hvd.mpi_ops._basics.size() == hvd.size()


@only_native  # takes the operation, which those in Python do not have
def test_the_gradient_of_alltoall_that_public_code_calls() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        output, _ = hvd.alltoall(tf.ones([hvd.size() + 1, 2]), [1] * hvd.size())
        of_tensor, of_splits = hvd.mpi_ops._alltoall_grad(output.op, tf.ones([hvd.size(), 2]), None)
        assert of_splits is None
        np.testing.assert_allclose(session.run(of_tensor)[:, 0], [*[1] * hvd.size(), 0])


@every_way
def test_reducescatter(mode: str) -> None:
    rows = [rank + 1.0 for rank in range(hvd.size())]
    np.testing.assert_allclose(gradient(mode, hvd.reducescatter, hvd.size())[:, 0], rows)
    total = gradient(mode, lambda x: hvd.reducescatter(x, op=hvd.Sum, postscale_factor=2.0), hvd.size())
    np.testing.assert_allclose(total[:, 0], [row * hvd.size() * 2 for row in rows])


@every_way
def test_grouped_reducescatter(mode: str) -> None:
    verb = lambda x: tf.add_n(hvd.grouped_reducescatter([x, x]))  # noqa: E731
    result = gradient(mode, verb, hvd.size())
    np.testing.assert_allclose(result[:, 0], [2 * (rank + 1.0) for rank in range(hvd.size())])


def test_gradient_of_a_gradient() -> None:
    x = tf.constant(3.0)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = hvd.allreduce(x * x, op=hvd.Sum)
        first = inner.gradient(y, x)
    np.testing.assert_allclose(first, 6.0 * hvd.size())
    np.testing.assert_allclose(outer.gradient(first, x), 2.0 * hvd.size())


def grouped(verb: Callable[[list[tf.Tensor]], list[tf.Tensor]]) -> Callable[[tf.Tensor], list[tf.Tensor]]:
    return lambda x: verb([x, 2 * x])


VERBS: dict[str, Callable[[tf.Tensor], list[tf.Tensor]]] = {
    "allreduce": lambda x: [hvd.allreduce(x)],
    "grouped_allreduce": grouped(hvd.grouped_allreduce),
    "allgather": lambda x: [hvd.allgather(x)],
    "grouped_allgather": grouped(hvd.grouped_allgather),
    "broadcast": lambda x: [hvd.broadcast(x, 0)],
    "alltoall": lambda x: [hvd.alltoall(x)],
    "reducescatter": lambda x: [hvd.reducescatter(x)],
    "grouped_reducescatter": grouped(hvd.grouped_reducescatter),
}


@pytest.mark.parametrize("name", VERBS)
@pytest.mark.parametrize(
    ("given", "incoming"), [(tf.float64, [tf.float32, tf.float64]), (tf.float16, [tf.float32] * 2)]
)
def test_gradients_of_another_floating_type(name: str, given: tf.DType, incoming: list[tf.DType]) -> None:
    """As graphs hand them over; those of a group may differ among each other."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.ones([hvd.size(), 2], given)
        outputs = VERBS[name](x)
        ones = [tf.ones(tf.shape(each), dtype) for each, dtype in zip(outputs, incoming, strict=False)]
        (result,) = tf.compat.v1.gradients(outputs, [x], ones)
        assert result.dtype == given
        (expected,) = tf.compat.v1.gradients(outputs, [x], [tf.cast(each, given) for each in ones])
        for each in (result, expected):  # one after the other: they have names of their own
            np.testing.assert_array_equal(session.run(each).shape, [hvd.size(), 2])
        np.testing.assert_array_equal(session.run(result), session.run(expected))


@pytest.mark.usefixtures("places_are_given_back")
def test_functions_outlive_the_world_in_an_elastic_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are traced once, and what they know of ranks is that of the world in which they run."""
    weights = tf.range(float(hvd.size()))

    @tf.function
    def gradients(given: tf.Tensor) -> list[tf.Tensor]:
        found = []
        for verb in (lambda x: hvd.allgather(x) * weights, lambda x: hvd.broadcast(x, 0)):
            with tf.GradientTape() as tape:
                tape.watch(given)
                loss = tf.reduce_sum(verb(given))
            found.append(tape.gradient(loss, given))
        return found

    with monkeypatch.context() as elastic:
        elastic.setenv("HOROVOD_ELASTIC", "1")
        np.testing.assert_allclose(gradients(tf.ones([1])), [[hvd.rank()], [hvd.rank() == 0]])
    change_places()
    np.testing.assert_allclose(gradients(tf.ones([1])), [[hvd.rank()], [hvd.rank() == 0]])
