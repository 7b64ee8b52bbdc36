"""allgather, broadcast, alltoall and reducescatter, alone and grouped; what graphs know of their shapes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from modes import every_mode, only_native, run

import horovod.tensorflow as hvd

TYPES = [
    *(tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int32, tf.int64),
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.bool, tf.complex64),
]
every_type = pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)


@every_mode
@every_type
def test_moving_verbs_keep_the_type(mode: str, dtype: tf.DType) -> None:
    def body() -> tuple[tf.Tensor, ...]:
        mine = tf.cast(tf.fill([hvd.size(), 2], hvd.rank()), dtype)
        return hvd.allgather(mine), hvd.broadcast(mine, hvd.size() - 1), hvd.alltoall(mine)

    gathered, sent, exchanged = run(mode, body)
    each = np.arange(hvd.size()).astype(np.int32).astype(dtype.as_numpy_dtype)
    np.testing.assert_array_equal(gathered, np.repeat(each, hvd.size())[:, None].repeat(2, 1))
    np.testing.assert_array_equal(sent, np.full((hvd.size(), 2), each[-1]))
    np.testing.assert_array_equal(exchanged, each[:, None].repeat(2, 1))
    assert gathered.dtype == sent.dtype == exchanged.dtype == dtype.as_numpy_dtype


@every_mode
def test_allgather_of_different_sizes(mode: str) -> None:
    """Rank 0 has no rows at all."""
    result = run(mode, lambda: hvd.allgather(tf.fill([hvd.rank(), 3], float(hvd.rank()))))
    assert result.shape == (sum(range(hvd.size())), 3)
    assert result[:, 0].tolist() == [float(rank) for rank in range(hvd.size()) for _ in range(rank)]


@every_mode
def test_allgather_of_nothing(mode: str) -> None:
    assert run(mode, lambda: hvd.allgather(tf.zeros([0, 3]))).shape == (0, 3)


@every_mode
def test_groups(mode: str) -> None:
    def body() -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        tensors = [tf.fill([hvd.size() * (i + 1), 2], float(hvd.rank())) for i in range(3)]
        return hvd.grouped_allgather(tensors), hvd.grouped_reducescatter(tensors, op=hvd.Sum)

    gathered, scattered = run(mode, body)
    assert [each.shape[0] for each in gathered] == [hvd.size() ** 2 * (i + 1) for i in range(3)]
    assert [each.shape[0] for each in scattered] == [1, 2, 3]
    for each in scattered:
        assert (each == sum(range(hvd.size()))).all()


@every_mode
def test_alltoall_with_splits(mode: str) -> None:
    """Rank r sends r + 1 rows to everyone, and keeps a row that is not sent."""

    def body() -> tuple[tf.Tensor, tf.Tensor]:
        rows = hvd.size() * (hvd.rank() + 1) + 1
        return hvd.alltoall(tf.fill([rows, 2], hvd.rank()), splits=[hvd.rank() + 1] * hvd.size())

    output, received = run(mode, body)
    assert received.tolist() == [rank + 1 for rank in range(hvd.size())]
    assert received.dtype == np.int32
    assert output[:, 0].tolist() == [rank for rank in range(hvd.size()) for _ in range(rank + 1)]


@every_mode
def test_alltoall_where_one_rank_sends_nothing(mode: str) -> None:
    def body() -> tuple[tf.Tensor, tf.Tensor]:
        rows = 0 if hvd.rank() == 0 else hvd.size()
        return hvd.alltoall(tf.ones([rows, 2]), splits=[rows // hvd.size()] * hvd.size())

    output, received = run(mode, body)
    assert output.shape == (hvd.size() - 1, 2)
    assert received.tolist() == [0] + [1] * (hvd.size() - 1)


@every_mode
def test_reducescatter_of_uneven_rows(mode: str) -> None:
    rows = 2 * hvd.size() + 1
    result = run(mode, lambda: hvd.reducescatter(tf.reshape(tf.range(2.0 * rows), [rows, 2])))
    wanted = np.arange(2.0 * rows).reshape(rows, 2)
    start = 0 if hvd.rank() == 0 else 3 + 2 * (hvd.rank() - 1)
    np.testing.assert_allclose(result, wanted[start : start + (3 if hvd.rank() == 0 else 2)], rtol=1e-6)


@every_mode
def test_reducescatter_factors(mode: str) -> None:
    result = run(
        mode,
        lambda: hvd.reducescatter(tf.ones([hvd.size()]), op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25),
    )
    assert result.tolist() == [hvd.size() / 2]


def test_shapes_in_graphs() -> None:
    with tf.Graph().as_default():
        tensor = tf.compat.v1.placeholder(tf.float32, [hvd.size(), 3])
        assert hvd.allreduce(tensor).shape.as_list() == [hvd.size(), 3]
        assert hvd.broadcast(tensor, 0).shape.as_list() == [hvd.size(), 3]
        assert hvd.allgather(tensor).shape.as_list() == [None, 3]
        assert hvd.reducescatter(tensor).shape.as_list() == [None, 3]
        output, _ = hvd.alltoall(tensor, [1] * hvd.size())
        assert output.shape.as_list() == [None, 3]
        unknown = tf.compat.v1.placeholder(tf.float32)
        assert hvd.allgather(unknown).shape.rank is None
        assert [each.shape.as_list() for each in hvd.grouped_allgather([tensor, tensor])] == [[None, 3]] * 2
        assert [each.shape.as_list() for each in hvd.grouped_allreduce([tensor, tensor])] == [[hvd.size(), 3]] * 2
        assert hvd.size_op().shape.as_list() == []
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
            hvd.reducescatter(tf.constant(1.0))


@only_native
def test_splits_and_join_have_shapes_too() -> None:
    with tf.Graph().as_default():
        assert hvd.alltoall(tf.zeros([2]), [1])[1].shape.as_list() == [None]
        assert hvd.join().shape.as_list() == []


@every_mode
def test_questions_about_the_world(mode: str) -> None:
    answers = run(
        mode,
        lambda: [
            hvd.size_op(),
            hvd.rank_op(),
            hvd.local_size_op(),
            hvd.local_rank_op(),
            hvd.process_set_included_op(),
            hvd.process_set_included_op(77),
        ],
    )
    assert [int(answer) for answer in answers] == [
        *(hvd.size(), hvd.rank(), hvd.local_size(), hvd.local_rank()),
        *(1, -3),
    ]
