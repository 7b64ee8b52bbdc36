"""Where TensorFlow's executor and optimisers go wrong with collectives that are not made for it."""

from __future__ import annotations

import random
import threading

import numpy as np
import tensorflow as tf
from modes import every_mode, only_native, run

import horovod.tensorflow as hvd


@only_native
def test_opposite_orders_do_not_wait_for_each_other() -> None:
    """TensorFlow puts an edge from every stateful operation to the next: ranks with other orders would hang."""
    names = ["a", "b", "c", "d"]
    if hvd.rank() % 2:
        names.reverse()

    @tf.function
    def body() -> dict[str, tf.Tensor]:
        return {name: hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name=f"order.{name}") for name in names}

    for _ in range(3):
        assert {float(each) for each in body().values()} == {float(hvd.size())}


def test_constants_are_not_folded() -> None:
    """Every call talks to the other ranks: here each gets another rank's number."""

    @tf.function
    def last_to_join() -> tf.Tensor:
        return hvd.rank_op() + hvd.size_op()

    assert int(last_to_join()) == hvd.rank() + hvd.size()
    operations = {node.op for node in last_to_join.get_concrete_function().graph.as_graph_def().node}
    assert "Const" not in operations or "PyFunc" in operations

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        reduced = hvd.allreduce(tf.constant([1.0]), op=hvd.Sum)
        metadata = tf.compat.v1.RunMetadata()
        options = tf.compat.v1.RunOptions(output_partition_graphs=True)
        session.run(reduced, options=options, run_metadata=metadata)
        run_ops = [node.op for graph in metadata.partition_graphs for node in graph.node]
        assert "HorovodAllreduce" in run_ops or "PyFunc" in run_ops


def test_equal_operations_are_not_merged() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        given = tf.constant([1.0])
        pair = [hvd.allreduce(given, op=hvd.Sum, name=f"equal.{i}") for i in range(2)]
        metadata = tf.compat.v1.RunMetadata()
        options = tf.compat.v1.RunOptions(output_partition_graphs=True)
        assert [each.tolist() for each in session.run(pair, options=options, run_metadata=metadata)] == [
            [float(hvd.size())]
        ] * 2
        run_ops = [node.op for graph in metadata.partition_graphs for node in graph.node]
        assert run_ops.count("HorovodAllreduce") + run_ops.count("PyFunc") == 2


@only_native
def test_many_in_flight_with_one_thread() -> None:
    """500 operations, in another order on each rank, while TensorFlow has a single thread to run them."""
    order = list(range(500))
    random.Random(hvd.rank()).shuffle(order)
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1, use_per_session_threads=True)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        given = tf.compat.v1.placeholder(tf.float32, [3])
        results = {i: hvd.allreduce(given + i, op=hvd.Sum, name=f"many.{i}") for i in order}
        for _ in range(3):
            values = session.run(results, {given: [1.0, 2.0, 3.0]})
            assert all(values[i][0] == (1.0 + i) * hvd.size() for i in order)


@only_native
def test_iterations_of_a_loop_run_at_the_same_time() -> None:
    """They do not depend on each other, so several are in flight, and each must meet its own."""

    @tf.function
    def body(count: tf.Tensor) -> tf.Tensor:
        results = tf.TensorArray(tf.float32, count)
        for i in tf.range(count):
            results = results.write(i, hvd.allreduce(tf.cast(i, tf.float32), op=hvd.Sum))
        return results.stack()

    for count in (1, 25, 25):
        np.testing.assert_allclose(body(count), np.arange(count) * hvd.size())


@every_mode
def test_condition(mode: str) -> None:
    def body() -> tf.Tensor:
        return tf.cond(tf.constant(True), lambda: hvd.allreduce(tf.constant(1.0), op=hvd.Sum), lambda: tf.constant(0.0))

    assert float(run(mode, body)) == hvd.size()


def test_inside_a_data_pipeline() -> None:
    dataset = tf.data.Dataset.range(3).map(lambda i: hvd.allreduce(i, op=hvd.Sum))
    assert [int(each) for each in dataset] == [0, hvd.size(), 2 * hvd.size()]


@only_native
def test_a_saved_graph_runs_again(tmp_path_factory: object) -> None:
    """The gradient, attributes and shapes are those of registered operations, so nothing of Python is in the graph."""
    with tf.Graph().as_default() as graph:
        tf.identity(hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Sum), name="result")
        saved = graph.as_graph_def().SerializeToString()
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        definition = tf.compat.v1.GraphDef.FromString(saved)
        tf.import_graph_def(definition, name="")
        assert session.run("result:0").tolist() == [hvd.size(), 2.0 * hvd.size()]


def test_attributes_of_the_node() -> None:
    with tf.Graph().as_default() as graph:
        hvd.allreduce(tf.constant([1.0]), op=hvd.Sum, name="node", prescale_factor=0.5, ignore_name_scope=True)
        (node,) = [each for each in graph.as_graph_def().node if each.op.startswith(("HorovodAllreduce", "PyFunc"))]
    if node.op == "HorovodAllreduce":
        assert node.name == "node"
        assert node.attr["reduce_op"].i == hvd.Sum
        assert node.attr["prescale_factor"].f == 0.5
        assert node.attr["ignore_name_scope"].b


@only_native
def test_names_without_their_scope_match() -> None:
    """Ranks have different scopes; only the last part of the name counts."""

    @tf.function
    def body() -> tf.Tensor:
        with tf.name_scope(f"rank_{hvd.rank()}"):
            return hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="same", ignore_name_scope=True)

    assert float(body()) == hvd.size()


def test_eager_threads() -> None:
    """Operations with names of their own may come from any thread, in any order."""
    threads, errors = 4, []

    def work(number: int) -> None:
        order = list(range(20))
        random.Random(f"{hvd.rank()} {number}").shuffle(order)
        for i in sorted(order):
            result = float(hvd.allreduce(tf.constant(float(i)), op=hvd.Sum, name=f"thread.{number}.{i}"))
            if result != i * hvd.size():
                errors.append((number, i, result))

    started = [threading.Thread(target=work, args=[number]) for number in range(threads)]
    random.Random(hvd.rank()).shuffle(started)
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert errors == []


@only_native
def test_a_thousand_variables_in_random_order() -> None:
    """Every rank's function has them in an order of its own, and its executor starts them as it likes."""
    count = 1000
    variables = [tf.Variable([float(i)]) for i in range(count)]
    order = list(range(count))
    random.Random(100 + hvd.rank()).shuffle(order)

    @tf.function(autograph=False)
    def reduce_all() -> tf.Tensor:
        reduced = {i: hvd.allreduce(variables[i], name=f"thousand.{i}") for i in order}
        return tf.concat([reduced[i] for i in range(count)], axis=0)

    wanted = np.arange(float(count))
    for step in range(3):
        np.testing.assert_allclose(reduce_all(), wanted)
        variables[step].assign([hvd.rank()])
        wanted[step] = (hvd.size() - 1) / 2
