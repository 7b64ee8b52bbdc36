"""Training with all ranks leads to where one process with the whole batch gets; also in disorder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from stepping import WAYS, Network, rows_of_rank, whole_batch

import horovod.tensorflow as hvd
from horovod.tensorflow.gradients import SMALL_ELEMENTS, reduce_gradients

RATE = 0.1
LARGE = SMALL_ELEMENTS + 1  # what travels alone


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Any:
    return WAYS[request.param]


def trained_alone(steps: int, batches: int = 1) -> list[np.ndarray]:
    """By plain gradient descent over the whole batch; with several batches, all of them in one step."""
    network = Network()
    inputs, wanted = whole_batch(4 * batches)
    for _ in range(steps):
        with tf.GradientTape() as tape:
            loss = network.loss(inputs, wanted)
        for variable, grad in zip(network.variables, tape.gradient(loss, network.variables), strict=True):
            variable.assign_sub(RATE * grad)
    return [variable.numpy() for variable in network.variables]


def assert_same(network: Network, expected: list[np.ndarray], tolerance: float = 1e-5) -> None:
    for variable, value in zip(network.variables, expected, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({}, 1e-5),
        ({"groups": 2}, 1e-5),
        ({"gradient_predivide_factor": 2.0}, 1e-5),
        ({"compression": hvd.Compression.fp16}, 5e-3),
        ({"compression": hvd.Compression.bf16}, 5e-2),
    ],
    ids=["plain", "groups", "predivided", "fp16", "bf16"],
)
def test_tapes_train_as_one_process_does(way: Any, options: dict[str, Any], tolerance: float) -> None:
    network = Network()
    inputs, wanted = map(rows_of_rank, whole_batch())

    @way
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = network.loss(inputs, wanted)
        tape = hvd.DistributedGradientTape(tape, **options)
        for variable, grad in zip(network.variables, tape.gradient(loss, network.variables), strict=True):
            variable.assign_sub(RATE * grad)

    for _ in range(10):
        step()
    assert_same(network, trained_alone(10), tolerance)


@pytest.mark.parametrize("passes", [1, 2])
def test_optimizers_of_tensorflow_1_train_as_one_process_does(passes: int) -> None:
    inputs, wanted = map(rows_of_rank, whole_batch(4 * passes))
    expected = trained_alone(5, passes)
    with tf.Graph().as_default():
        network = Network()
        fed = [tf.compat.v1.placeholder(tf.float32, [None, columns]) for columns in (6, 2)]
        optimizer = hvd.DistributedOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(RATE),
            backward_passes_per_step=passes,
            average_aggregated_gradients=True,
        )
        train = optimizer.minimize(network.loss(*fed), var_list=network.variables)
        with tf.compat.v1.Session() as session:
            session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
            for _ in range(5):
                for part in range(passes):
                    session.run(train, dict(zip(fed, (inputs[part::passes], wanted[part::passes]), strict=True)))
            for variable, value in zip(session.run(network.variables), expected, strict=True):
                np.testing.assert_allclose(variable, value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("groups", [None, 3])
def test_variables_in_another_order_on_every_rank(way: Any, groups: int | None) -> None:
    variables = [tf.Variable(tf.ones(1 + i % 7), name=f"layer_{i}") for i in range(60)]
    order = np.random.default_rng(hvd.rank()).permutation(60)

    @way
    def step(scale: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(each) * scale * (i + 1) for i, each in enumerate(variables)])
        tape = hvd.DistributedGradientTape(tape, groups=groups)
        return tape.gradient(loss, [variables[i] for i in order])

    for number in range(3):
        mean = sum(rank + number for rank in range(hvd.size())) / hvd.size()
        for i, grad in zip(order, step(tf.constant(hvd.rank() + number, tf.float32)), strict=True):
            np.testing.assert_allclose(grad, np.full(1 + i % 7, mean * (i + 1)), rtol=1e-6)


def test_gradients_that_become_ready_in_another_order_on_every_rank() -> None:
    """In a graph each waits for another: a chain of control dependencies, whose order is the rank's own."""
    variables = [tf.Variable(tf.ones(LARGE), name=f"part_{i}") for i in range(40)]
    order = np.random.default_rng(100 + hvd.rank()).permutation(40)

    @tf.function
    def step() -> Any:
        grads: list[Any] = [None] * 40
        before: list[Any] = []
        for i in order:
            with tf.control_dependencies(before):
                grads[i] = tf.random.normal([LARGE], mean=float(i), stddev=0.0) * (hvd.rank() + 1.0)
            before = [grads[i]]
        return reduce_gradients(grads, variables)

    mean = (hvd.size() + 1) / 2
    for _ in range(5):
        for i, grad in enumerate(step()):
            np.testing.assert_allclose(grad, np.full(LARGE, i * mean), rtol=1e-6)
