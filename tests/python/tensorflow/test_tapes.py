"""DistributedGradientTape and PartialDistributedGradientTape: what they return, eager and in functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from stepping import WAYS, mean_of_ranks

import horovod.tensorflow as hvd


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Any:
    return WAYS[request.param]


def factor(rank: int) -> float:
    return rank + 1.0


def two_gradients(way: Any, tape_options: dict[str, Any] | None = None, **call: Any) -> list[Any]:
    """Gradients of two variables, rank + 1 and 2 * (rank + 1) in every element before they are reduced."""
    first, second = tf.Variable(tf.ones(3)), tf.Variable(tf.ones([2, 2]))

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = factor(hvd.rank()) * (tf.reduce_sum(first) + 2 * tf.reduce_sum(second))
        return hvd.DistributedGradientTape(tape, **(tape_options or {})).gradient(loss, [first, second], **call)

    grads = way(step)()
    assert isinstance(grads, list)
    return [each.numpy() for each in grads]


def test_gradients_are_averaged(way: Any) -> None:
    mean = mean_of_ranks(factor)
    first, second = two_gradients(way)
    np.testing.assert_allclose(first, np.full(3, mean))
    np.testing.assert_allclose(second, np.full((2, 2), 2 * mean))


def test_gradients_are_summed(way: Any) -> None:
    first, _ = two_gradients(way, {"op": hvd.Sum})
    np.testing.assert_allclose(first, np.full(3, mean_of_ranks(factor) * hvd.size()))


def test_adasum_of_equal_directions_is_their_average(way: Any) -> None:
    if hvd.size() != 2:
        pytest.skip("for two ranks")
    first, _ = two_gradients(way, {"op": hvd.Adasum})
    np.testing.assert_allclose(first, np.full(3, 1.5), rtol=1e-5)  # (1 - ab/2aa) a + (1 - ab/2bb) b = (a + b) / 2


def test_predivide_factor_changes_only_rounding(way: Any) -> None:
    first, _ = two_gradients(way, {"gradient_predivide_factor": 4.0})
    np.testing.assert_allclose(first, np.full(3, mean_of_ranks(factor)), rtol=1e-6)


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_compressed_gradients_have_the_type_of_the_variable(way: Any, name: str) -> None:
    first, second = two_gradients(way, {"compression": getattr(hvd.Compression, name)})
    assert first.dtype == second.dtype == np.float32
    np.testing.assert_allclose(first, np.full(3, mean_of_ranks(factor)), rtol=1e-2)


def test_generic_names(way: Any) -> None:
    first, _ = two_gradients(way, use_generic_names=True)
    np.testing.assert_allclose(first, np.full(3, mean_of_ranks(factor)))


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_a_number_of_groups(way: Any, groups: int) -> None:
    first, second = two_gradients(way, {"groups": groups})
    np.testing.assert_allclose(first, np.full(3, mean_of_ranks(factor)))
    np.testing.assert_allclose(second, np.full((2, 2), 2 * mean_of_ranks(factor)))


def test_groups_of_variables_with_types_mixed_and_some_left_out(way: Any) -> None:
    variables = [tf.Variable(tf.ones(2 + i, [tf.float32, tf.float64][i % 2])) for i in range(7)]
    groups = [[variables[5], variables[0], variables[2]], [variables[1], variables[3]]]

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.add_n(
                [(i + factor(hvd.rank())) * tf.cast(tf.reduce_sum(v), tf.float64) for i, v in enumerate(variables)]
            )
        return hvd.DistributedGradientTape(tape, groups=groups).gradient(loss, variables)

    for i, grad in enumerate(way(step)()):
        assert grad.dtype == variables[i].dtype
        np.testing.assert_allclose(grad, np.full(2 + i, i + mean_of_ranks(factor)))


def operations(options: dict[str, Any], shapes: list[list[int]]) -> list[int]:
    """How many gradients each operation has that a function makes for variables of these shapes."""
    variables = [tf.Variable(tf.ones(shape), name=f"v{i}") for i, shape in enumerate(shapes)]

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = factor(hvd.rank()) * tf.add_n([tf.reduce_sum(each) for each in variables])
        return hvd.DistributedGradientTape(tape, **options).gradient(loss, variables)

    for grad, shape in zip(step(), shapes, strict=True):
        np.testing.assert_allclose(grad, np.full(shape, mean_of_ranks(factor)))
    nodes = step.get_concrete_function().graph.get_operations()
    return sorted(len(node.outputs) for node in nodes if node.type in ("HorovodAllreduce", "HorovodGroupedAllreduce"))


def test_small_gradients_of_a_graph_travel_together() -> None:
    assert operations({}, [[200, 200], *[[3]] * 70, [200, 200]]) == [1, 1, 6, 64]
    assert operations({"groups": 2}, [[200, 200], *[[3]] * 3]) == [2, 2]


def test_a_missing_gradient_stays_none(way: Any) -> None:
    used, unused = tf.Variable(1.0), tf.Variable(1.0)

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = used * factor(hvd.rank())
        grads = hvd.DistributedGradientTape(tape).gradient(loss, [unused, used])
        assert grads[0] is None
        return grads[1]

    assert way(step)().numpy() == mean_of_ranks(factor)


def test_unconnected_gradients_can_be_zero(way: Any) -> None:
    used, unused = tf.Variable(1.0), tf.Variable([1.0, 1.0])

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = used * factor(hvd.rank())
        zero = tf.UnconnectedGradients.ZERO
        return hvd.DistributedGradientTape(tape).gradient(loss, [unused, used], unconnected_gradients=zero)

    np.testing.assert_array_equal(way(step)()[0], [0, 0])


def test_one_source_gives_one_gradient(way: Any) -> None:
    variable = tf.Variable([1.0, 1.0])

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable) * factor(hvd.rank())
        return hvd.DistributedGradientTape(tape).gradient(loss, variable)

    np.testing.assert_allclose(way(step)(), [mean_of_ranks(factor)] * 2)


def embedding_gradient(way: Any, **options: Any) -> Any:
    table = tf.Variable(tf.ones([4, 2]))
    row = hvd.rank() % 2

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [row, 3]))
        return hvd.DistributedGradientTape(tape, **options).gradient(loss, [table])[0]

    return way(step)()


def expected_embedding_gradient() -> Any:
    expected = np.zeros((4, 2), np.float32)
    for rank in range(hvd.size()):
        expected[[rank % 2, 3]] += 1 / hvd.size()
    return expected


@pytest.mark.parametrize("options", [{}, {"gradient_predivide_factor": 2.0}], ids=["plain", "predivided"])
def test_sparse_gradients_are_gathered(way: Any, options: dict[str, Any]) -> None:
    grad = embedding_gradient(way, **options)
    assert isinstance(grad, tf.IndexedSlices)
    assert grad.values.shape[0] == 2 * hvd.size()
    np.testing.assert_allclose(tf.convert_to_tensor(grad), expected_embedding_gradient(), rtol=1e-6)


def test_sparse_as_dense(way: Any) -> None:
    grad = embedding_gradient(way, sparse_as_dense=True)
    assert not isinstance(grad, tf.IndexedSlices)
    np.testing.assert_allclose(grad, expected_embedding_gradient(), rtol=1e-6)


@pytest.mark.parametrize("persistent", [False, True])
def test_the_recorded_tape_is_shared(persistent: bool) -> None:
    class Mine(tf.GradientTape):
        pass

    variable = tf.Variable(3.0)
    with Mine(persistent=persistent) as tape:
        loss = variable * factor(hvd.rank())
    distributed = hvd.DistributedGradientTape(tape)
    assert isinstance(distributed, Mine)
    assert type(distributed).__name__ == "Mine"
    assert distributed.gradient(loss, [variable])[0].numpy() == mean_of_ranks(factor)
    if persistent:
        assert tape.gradient(loss, variable).numpy() == factor(hvd.rank())
        assert distributed.gradient(loss, [variable])[0].numpy() == mean_of_ranks(factor)
    else:
        with pytest.raises(RuntimeError, match="non-persistent"):
            tape.gradient(loss, variable)
        with pytest.raises(RuntimeError, match="non-persistent"):
            distributed.gradient(loss, [variable])


def test_a_tape_can_be_wrapped_before_it_records(way: Any) -> None:
    variable = tf.Variable(3.0)

    def step() -> Any:
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = variable * factor(hvd.rank())
        return tape.gradient(loss, [variable])[0]

    assert way(step)().numpy() == mean_of_ranks(factor)


def test_local_sources_are_only_divided(way: Any) -> None:
    mine, ours = tf.Variable(1.0), tf.Variable(1.0)

    def step(scale: bool) -> Any:
        with tf.GradientTape() as tape:
            loss = (mine + ours) * factor(hvd.rank())
        tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
        tape.register_local_source(mine)
        return tape.gradient(loss, [mine, ours])

    for scale, divisor in ((True, hvd.size()), (False, 1)):
        local, reduced = way(step)(scale)
        assert local.numpy() == np.float32(factor(hvd.rank()) / divisor)
        assert reduced.numpy() == mean_of_ranks(factor)


def test_local_and_global_gradients_apart(way: Any) -> None:
    mine, ours = tf.Variable(1.0), tf.Variable(1.0)

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = (mine + ours) * factor(hvd.rank())
        tape = hvd.DistributedGradientTape(tape)
        tape.register_local_source(mine)
        local, reduced = tape.get_local_and_global_gradients(loss, [ours, mine])
        assert [source is mine for source, _ in local] == [True]
        assert [source is ours for source, _ in reduced] == [True]
        return local[0][1], reduced[0][1]

    local, reduced = way(step)()
    assert local.numpy() == np.float32(factor(hvd.rank()) / hvd.size())
    assert reduced.numpy() == mean_of_ranks(factor)


@pytest.mark.parametrize("as_list", [False, True])
def test_layers_can_be_local(way: Any, as_list: bool) -> None:
    mine, ours = (tf.keras.layers.Dense(1, kernel_initializer="ones", use_bias=False) for _ in range(2))
    inputs = tf.ones([1, 2]) * factor(hvd.rank())
    ours(mine(inputs))  # makes the weights

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(mine(inputs)) + tf.reduce_sum(ours(tf.reduce_sum(inputs, 1, keepdims=True)))
        tape = hvd.PartialDistributedGradientTape(tape, local_layers=[mine] if as_list else mine)
        return tape.gradient(loss, [*mine.trainable_weights, *ours.trainable_weights])

    local, reduced = way(step)()
    np.testing.assert_allclose(local, np.full((2, 1), factor(hvd.rank()) / hvd.size()), rtol=1e-6)
    np.testing.assert_allclose(reduced, [[2 * mean_of_ranks(factor)]], rtol=1e-6)


@pytest.mark.parametrize("layers", ["dense", [1, 2], 3])
def test_only_layers_can_be_local_layers(layers: Any) -> None:
    with pytest.raises(ValueError, match="Keras layer"):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=layers)


def test_ranks_outside_of_the_process_set_keep_their_gradients(way: Any) -> None:
    members = hvd.add_process_set(range(1, hvd.size()))
    try:
        first, _ = two_gradients(way, {"process_set": members})
        mean = sum(factor(rank) for rank in range(1, hvd.size())) / (hvd.size() - 1)
        expected = mean if hvd.rank() > 0 else factor(0)
        np.testing.assert_allclose(first, np.full(3, expected))
    finally:
        hvd.remove_process_set(members)


def test_a_set_of_one_keeps_its_gradients(way: Any) -> None:
    alone = hvd.add_process_set([0])
    try:
        first, _ = two_gradients(way, {"process_set": alone})
        np.testing.assert_allclose(first, np.full(3, factor(hvd.rank())))
    finally:
        hvd.remove_process_set(alone)


def test_an_unregistered_process_set_is_refused() -> None:
    with pytest.raises(ValueError, match="not registered"):
        two_gradients(WAYS["eager"], {"process_set": hvd.ProcessSet([0])})


def test_gradients_of_watched_tensors(way: Any) -> None:
    def step(values: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(values)
            loss = tf.reduce_sum(values * values) * factor(hvd.rank())
        return hvd.DistributedGradientTape(tape).gradient(loss, [values])[0]

    np.testing.assert_allclose(way(step)(tf.constant([1.0, 3.0])), np.array([2, 6]) * mean_of_ranks(factor), rtol=1e-6)


def test_an_elastic_world_asks_for_its_size_when_it_runs(way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    alone = hvd.add_process_set([0])
    mine, ours = tf.Variable(1.0), tf.Variable(1.0)

    def step(process_set: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = (mine + ours) * factor(hvd.rank())
        tape = hvd.DistributedGradientTape(tape, process_set=process_set)
        tape.register_local_source(mine)
        return tape.gradient(loss, [mine, ours])

    try:
        local, reduced = way(lambda: step(hvd.global_process_set))()
        assert local.numpy() == np.float32(factor(hvd.rank()) / hvd.size())
        assert reduced.numpy() == mean_of_ranks(factor)
        local, reduced = way(lambda: step(alone))()  # of one now: it may grow
        assert local.numpy() == reduced.numpy() == factor(hvd.rank())
    finally:
        hvd.remove_process_set(alone)


def test_two_tapes_with_variables_of_the_same_name_in_one_function() -> None:
    first, second = tf.Variable(1.0, name="same"), tf.Variable([1.0, 1.0], name="same")

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape, tf.GradientTape() as other:
            loss = first * factor(hvd.rank())
            other_loss = tf.reduce_sum(second) * 2 * factor(hvd.rank())
        return [
            hvd.DistributedGradientTape(tape).gradient(loss, [first])[0],
            hvd.DistributedGradientTape(other).gradient(other_loss, [second])[0],
        ]

    for _ in range(3):
        one, two = step()
        assert one.numpy() == mean_of_ranks(factor)
        np.testing.assert_allclose(two, [2 * mean_of_ranks(factor)] * 2)


def test_second_derivatives_can_be_taken_through_the_reduction() -> None:
    variable = tf.Variable(3.0)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as tape:
            loss = factor(hvd.rank()) * variable**2
        grad = hvd.DistributedGradientTape(tape).gradient(loss, [variable])[0]
    curvature = outer.gradient(grad, variable)
    np.testing.assert_allclose(curvature, 2 * factor(hvd.rank()), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "gradient_predivide_factor"),
        ({"groups": 0}, "positive"),
        ({"groups": -1}, "positive"),
        ({"groups": [1, 2]}, "lists of variables"),
    ],
)
@pytest.mark.parametrize("make", [hvd.DistributedGradientTape, hvd.PartialDistributedGradientTape])
def test_wrong_options_are_refused(make: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(tf.GradientTape(), **options)


def test_a_variable_in_two_groups_is_refused() -> None:
    variable = tf.Variable(1.0)
    with pytest.raises(ValueError, match="two groups"):
        hvd.DistributedGradientTape(tf.GradientTape(), groups=[[variable], [variable]])


def test_num_groups_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="num_groups"):
        first, _ = two_gradients(WAYS["eager"], {"num_groups": 2})
    np.testing.assert_allclose(first, np.full(3, mean_of_ranks(factor)))
