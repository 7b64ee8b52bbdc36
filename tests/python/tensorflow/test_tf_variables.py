"""Variables and objects are the same on all ranks after a broadcast."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd


def variables() -> list[tf.Variable]:
    """Some without names, some of other types."""
    rank = hvd.rank()
    return [
        tf.Variable(tf.fill([2, 3], float(rank))),
        tf.Variable(rank),
        tf.Variable(tf.fill([2], float(rank))),
        tf.Variable([rank == 0], name="flag"),
        tf.Variable(tf.zeros([0]), name="empty"),
    ]


def check(given: list[tf.Variable], root: int) -> None:
    wanted = [np.full([2, 3], root), root, np.full([2], root), [root == 0], np.zeros([0])]
    for variable, value in zip(given, wanted, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


@pytest.mark.parametrize("inplace", [False, True])
def test_broadcast_variables(inplace: bool) -> None:
    root = hvd.size() - 1
    given = variables()
    hvd.broadcast_variables(given, root_rank=root, inplace=inplace)
    check(given, root)

    given = variables()

    @tf.function
    def broadcast() -> None:
        hvd.broadcast_variables(given, root_rank=0, inplace=inplace)

    broadcast()
    check(given, 0)


@pytest.mark.parametrize("inplace", [False, True])
def test_broadcast_variables_in_a_session(inplace: bool) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        first = tf.compat.v1.get_variable("first", initializer=float(hvd.rank()), use_resource=True)
        second = tf.compat.v1.get_variable("second", initializer=float(hvd.rank()), use_resource=False)
        operation = hvd.broadcast_variables([first, second], 0, inplace=inplace)
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(operation)
        assert session.run([first, second]) == [0.0, 0.0]


def test_broadcast_in_place_returns_the_values() -> None:
    given = variables()
    values = hvd.broadcast_(given, root_rank=0)
    check(given, 0)
    assert [value.dtype for value in values] == [variable.dtype for variable in given]
    np.testing.assert_array_equal(values[0], np.zeros([2, 3]))

    given = variables()
    values = tf.function(lambda: hvd.broadcast_(given, root_rank=hvd.size() - 1))()
    check(given, hvd.size() - 1)
    np.testing.assert_array_equal(values[0], np.full([2, 3], hvd.size() - 1))
    assert hvd.broadcast_([], 0) == []


def test_two_kinds_of_variables_are_not_mixed() -> None:
    with tf.Graph().as_default():
        first = tf.compat.v1.get_variable("first", initializer=1.0, use_resource=True)
        second = tf.compat.v1.get_variable("second", initializer=1.0, use_resource=False)
        with pytest.raises(ValueError):
            hvd.broadcast_([first, second], 0)


def test_reference_variables_in_place() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("v", initializer=float(hvd.rank()), use_resource=False)
        values = hvd.broadcast_([variable], hvd.size() - 1)
        session.run(tf.compat.v1.global_variables_initializer())
        assert session.run(values) == [hvd.size() - 1.0]
        assert session.run(variable) == hvd.size() - 1.0


def test_keras_variables() -> None:
    layer = tf.keras.layers.Dense(2)
    layer.build([None, 3])
    layer.set_weights([np.full([3, 2], hvd.rank(), np.float32), np.full([2], hvd.rank(), np.float32)])
    hvd.broadcast_variables(layer.variables if hasattr(layer, "variables") else layer.weights, root_rank=0)
    assert all((weight == 0).all() for weight in layer.get_weights())


def test_global_variables() -> None:
    with pytest.raises(RuntimeError, match="broadcast_variables"):
        hvd.broadcast_global_variables(0)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("v", initializer=float(hvd.rank()))
        hook = hvd.BroadcastGlobalVariablesHook(hvd.size() - 1)
        hook.begin()
        session.run(tf.compat.v1.global_variables_initializer())
        hook.after_create_session(session, None)
        assert session.run(variable) == hvd.size() - 1.0


def test_objects() -> None:
    root = hvd.size() - 1
    assert hvd.broadcast_object({"rank": hvd.rank()}, root_rank=root) == {"rank": root}
    assert hvd.broadcast_object_fn(root_rank=root)([hvd.rank()]) == [root]
    assert hvd.allgather_object(("rank", hvd.rank())) == [("rank", rank) for rank in range(hvd.size())]


def test_process_sets() -> None:
    first, rest = hvd.add_process_set([0]), hvd.add_process_set(list(range(1, hvd.size())))
    try:
        mine = first if hvd.rank() == 0 else rest
        members = mine.ranks or []
        assert int(hvd.size_op(mine.process_set_id)) == len(members)
        assert float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum, process_set=mine)) == len(members)
        assert hvd.allgather(tf.constant([hvd.rank()]), process_set=mine).numpy().tolist() == members
        assert hvd.allgather_object(hvd.rank(), process_set=mine) == members
        variable = tf.Variable(float(hvd.rank()))
        hvd.broadcast_variables([variable], root_rank=members[-1], process_set=mine)
        assert float(variable) == members[-1]
        assert int(hvd.process_set_included_op(first.process_set_id)) == int(hvd.rank() == 0)
    finally:
        hvd.remove_process_set(rest)
        hvd.remove_process_set(first)


def test_join() -> None:
    """Ranks run out of data one after the other; Average still divides by all."""
    for step in range(hvd.rank() + 1):
        result = float(hvd.allreduce(tf.constant(1.0), name=f"joining.{step}"))
        assert result == pytest.approx((hvd.size() - step) / hvd.size())
    assert int(hvd.join()) == hvd.size() - 1
    assert int(tf.function(hvd.join)()) in range(hvd.size())


def test_sizes_are_read_at_run_time_in_elastic_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    with tf.Graph().as_default() as graph:
        slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([5, 2]))
        hvd.allreduce(slices)
        assert {"HorovodSize", "PyFunc"} & {node.op for node in graph.as_graph_def().node}
    with tf.GradientTape() as tape:
        x = tf.ones([2])
        tape.watch(x)
        y = tf.reduce_sum(hvd.broadcast(x, 0))
    np.testing.assert_allclose(tape.gradient(y, x), 1.0 if hvd.rank() == 0 else 0.0)


def test_any_name_will_do_in_a_graph() -> None:
    for name in ("a b", "_x", "grad:0", ""):
        assert (
            float(tf.function(lambda name=name: hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name=name))()) == hvd.size()
        )


def test_references_to_variables() -> None:
    first, second = tf.Variable(1.0), tf.Variable(2.0)
    references = hvd.vars_to_refs([[first], [second, first]])
    assert references == hvd.vars_to_refs([[first], [second, first]])
    restored = hvd.refs_to_vars(references)
    assert restored[0][0] is first and restored[1][0] is second and restored[1][1] is first


def test_names_that_scripts_use() -> None:
    assert hvd._executing_eagerly() and hvd.util._executing_eagerly()
    assert hvd.mpi_ops._basics.size() == hvd.size()
    assert hvd.split_list([1, 2, 3], 2) == [[1, 2], [3]]
    with pytest.raises(NotImplementedError):
        hvd.check_num_rank_power_of_2(3)
    with pytest.raises(AttributeError):
        hvd.barrier  # noqa: B018
