"""allreduce and grouped_allreduce: types, reductions, factors, sparse tensors, compression."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from modes import every_mode, run

import horovod.tensorflow as hvd

TYPES = [tf.uint8, tf.int8, tf.int32, tf.int64, tf.float16, tf.bfloat16, tf.float32, tf.float64]


def ranks_sum() -> int:
    return hvd.size() * (hvd.size() + 1) // 2


@every_mode
@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.name)
def test_sum_keeps_type_and_shape(mode: str, dtype: tf.DType) -> None:
    for shape in ([], [0], [17], [2, 3, 4]):
        result = run(
            mode, lambda shape=shape: hvd.allreduce(tf.cast(tf.fill(shape, hvd.rank() + 1), dtype), op=hvd.Sum)
        )
        assert result.dtype == dtype.as_numpy_dtype
        np.testing.assert_array_equal(result, np.full(shape, ranks_sum(), dtype.as_numpy_dtype))


@every_mode
def test_average_is_the_default(mode: str) -> None:
    result = run(mode, lambda: hvd.allreduce(tf.constant([1.0, 2.0]) * float(hvd.rank())))
    np.testing.assert_allclose(result, np.array([1.0, 2.0]) * (hvd.size() - 1) / 2)


@every_mode
def test_small_integers_wrap(mode: str) -> None:
    result = run(mode, lambda: hvd.allreduce(tf.constant([200], tf.uint8), op=hvd.Sum))
    assert result.tolist() == [200 * hvd.size() % 256]


@every_mode
@pytest.mark.parametrize(("op", "wanted"), [(hvd.Min, min), (hvd.Max, max), (hvd.Product, np.prod)])
def test_other_reductions(mode: str, op: int, wanted: object) -> None:
    result = run(mode, lambda: hvd.allreduce(tf.constant([hvd.rank() + 2.0]), op=op))
    assert result.tolist() == [wanted([rank + 2.0 for rank in range(hvd.size())])]


@every_mode
def test_factors_before_and_after(mode: str) -> None:
    result = run(
        mode, lambda: hvd.allreduce(tf.constant([4, 5]), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    )
    assert result.tolist() == [2 * hvd.size() * 3, 2 * hvd.size() * 3]


def test_average_argument_is_deprecated() -> None:
    with pytest.deprecated_call():
        assert float(hvd.allreduce(tf.constant(2.0), average=False)) == 2.0 * hvd.size()
    with pytest.raises(ValueError):
        hvd.allreduce(tf.constant(2.0), average=True, op=hvd.Sum)


@every_mode
def test_group_of_tensors(mode: str) -> None:
    results = run(
        mode, lambda: hvd.grouped_allreduce([tf.fill([i + 1], float(i + hvd.rank())) for i in range(5)], op=hvd.Sum)
    )
    for i, result in enumerate(results):
        np.testing.assert_allclose(result, [sum(i + rank for rank in range(hvd.size()))] * (i + 1))


@every_mode
def test_group_of_several_types_and_sparse_ones(mode: str) -> None:
    def body() -> list[tf.Tensor]:
        slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([hvd.rank()]), tf.constant([hvd.size(), 2]))
        given = [tf.constant([1.0]), tf.constant([2]), slices, tf.constant([3.0])]
        return [tf.convert_to_tensor(each) for each in hvd.grouped_allreduce(given, op=hvd.Sum)]

    results = run(mode, body)
    wanted = [[1.0 * hvd.size()], [2 * hvd.size()], [[1.0, 1.0]] * hvd.size(), [3.0 * hvd.size()]]
    assert [result.tolist() for result in results] == wanted


def test_empty_group_is_returned() -> None:
    assert hvd.grouped_allreduce([]) == []
    assert hvd.grouped_reducescatter([]) == []


@every_mode
def test_indexed_slices_are_gathered(mode: str) -> None:
    def body() -> tuple[tf.Tensor, ...]:
        slices = tf.IndexedSlices(tf.fill([1, 2], hvd.rank() + 1.0), tf.constant([3]), tf.constant([5, 2]))
        reduced = hvd.allreduce(slices)
        assert isinstance(reduced, tf.IndexedSlices)
        return reduced.values, reduced.indices, reduced.dense_shape

    values, indices, shape = run(mode, body)
    np.testing.assert_allclose(values, [[(rank + 1) / hvd.size()] * 2 for rank in range(hvd.size())])
    assert indices.tolist() == [3] * hvd.size()
    assert shape.tolist() == [5, 2]


def test_what_indexed_slices_cannot_do() -> None:
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([5, 2]))
    with pytest.raises(NotImplementedError):
        hvd.allreduce(slices, op=hvd.Min)
    with pytest.raises(NotImplementedError):
        hvd.allreduce(slices, op=hvd.Sum, prescale_factor=2.0)


@every_mode
def test_compression_reduces_in_the_small_type(mode: str) -> None:
    """2049 has no representation in float16, so the sum shows in which type it was made."""
    for compression, small in ((hvd.Compression.fp16, tf.float16), (hvd.Compression.bf16, tf.bfloat16)):
        result = run(
            mode,
            lambda compression=compression: hvd.allreduce(tf.constant([2049.0]), op=hvd.Max, compression=compression),
        )
        assert result.dtype == np.float32
        assert result.tolist() == [float(tf.cast(tf.cast(2049.0, small), tf.float32))]
    assert int(hvd.allreduce(tf.constant(2049), op=hvd.Max, compression=hvd.Compression.fp16)) == 2049


@every_mode
def test_variables_and_devices(mode: str) -> None:
    def body() -> tf.Tensor:
        return hvd.allreduce(tf.constant([1.0]) + 1.0, op=hvd.Sum, device_dense="/cpu:0")

    assert run(mode, body).tolist() == [2.0 * hvd.size()]
    assert float(hvd.allreduce(tf.Variable(3.0), op=hvd.Sum)) == 3.0 * hvd.size()


def test_input_is_not_changed() -> None:
    given = tf.constant([1.0, 2.0])
    hvd.allreduce(given, op=hvd.Sum)
    assert given.numpy().tolist() == [1.0, 2.0]

    @tf.function
    def twice(given: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        doubled = given * 2  # a value of which the operation may take the memory, were it not needed again
        return hvd.allreduce(doubled, op=hvd.Sum), doubled

    reduced, doubled = twice(given)
    assert doubled.numpy().tolist() == [2.0, 4.0]
    assert reduced.numpy().tolist() == [2.0 * hvd.size(), 4.0 * hvd.size()]


def test_adasum_of_parallel_tensors_is_their_average() -> None:
    if hvd.size() & (hvd.size() - 1):
        with pytest.raises(NotImplementedError):
            hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Adasum)
    else:
        result = hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Adasum)
        np.testing.assert_allclose(result, [1.0, 2.0], rtol=1e-6)
