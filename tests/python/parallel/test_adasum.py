"""Adasum against a reference of its definition.

Ranks combine in a binary tree with doubling distance: in the round of distance d, rank i (a multiple of 2d) combines
with rank i + d when there is one, and keeps its value otherwise. So any number of ranks will do. Several hosts do so
each for itself first, and then with each other.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from data import Array

import horovod.numpy as hvd

HOST = os.environ.get("HOROVOD_HOSTNAME", "localhost")


def combine(a: Array, b: Array) -> Array:
    x, y = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    smallest = np.sqrt(np.finfo(np.float64).tiny)
    dot, norm_x, norm_y = x @ y, x @ x, y @ y
    factor_x = 1 - dot / (2 * norm_x) if norm_x >= smallest else 1.0
    factor_y = 1 - dot / (2 * norm_y) if norm_y >= smallest else 1.0
    return (factor_x * x + factor_y * y).reshape(a.shape)


def adasum(inputs: list[Array]) -> Array:
    of_host: dict[str, list[Array]] = {}
    for host, each in zip(hvd.allgather_object(HOST), inputs, strict=True):
        of_host.setdefault(host, []).append(each)
    return tree([tree(values) for values in of_host.values()])


def tree(inputs: list[Array]) -> Array:
    values = [each.astype(np.float64) for each in inputs]
    distance = 1
    while distance < len(values):
        for i in range(0, len(values) - distance, 2 * distance):
            values[i] = combine(values[i], values[i + distance])
        distance *= 2
    return values[0]


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 2e-2), (np.float32, 1e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("shape", [(), (1,), (37,), (13, 11), (20_011,)], ids=str)
def test_random_values(dtype: type, tolerance: float, shape: tuple[int, ...]) -> None:
    generator = np.random.default_rng(7)
    inputs: list[Array] = [np.asarray(generator.standard_normal(shape)).astype(dtype) for _ in range(hvd.size())]
    result = hvd.allreduce(inputs[hvd.rank()], op=hvd.Adasum)
    assert result.dtype == dtype
    expected = adasum(inputs)
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=tolerance, atol=tolerance * hvd.size())


def test_orthogonal_values_are_added() -> None:
    values = np.zeros(hvd.size(), np.float32)
    values[hvd.rank()] = hvd.rank() + 1
    result = hvd.allreduce(values, op=hvd.Adasum)
    np.testing.assert_allclose(result, np.arange(1, hvd.size() + 1), rtol=1e-6)


def test_equal_values_are_averaged() -> None:
    values = np.linspace(1, 2, 100)
    np.testing.assert_allclose(hvd.allreduce(values, op=hvd.Adasum), values, rtol=1e-12)


def test_zeros_do_not_disturb() -> None:
    values = np.ones(5) if hvd.rank() == 0 else np.zeros(5)
    np.testing.assert_allclose(hvd.allreduce(values, op=hvd.Adasum), np.ones(5))
    np.testing.assert_array_equal(hvd.allreduce(np.zeros(5), op=hvd.Adasum), np.zeros(5))


def test_each_tensor_of_a_group_has_its_own_coefficients() -> None:
    generator = np.random.default_rng(11)
    first = [generator.standard_normal(10) for _ in range(hvd.size())]
    second = [generator.standard_normal((3, 5)) * 100 for _ in range(hvd.size())]
    results = hvd.grouped_allreduce([first[hvd.rank()], second[hvd.rank()]], op=hvd.Adasum)
    np.testing.assert_allclose(results[0], adasum(first), rtol=1e-10)
    np.testing.assert_allclose(results[1], adasum(second), rtol=1e-10)


def test_integers_are_refused() -> None:
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allreduce(np.ones(3, np.int32), op=hvd.Adasum)


def test_only_on_the_global_set() -> None:
    if hvd.size() == 1:
        pytest.skip("needs a set that is not the world")
    first = hvd.add_process_set([0])
    with pytest.raises(NotImplementedError):
        hvd.allreduce(np.ones(3), op=hvd.Adasum, process_set=first)
    with pytest.raises(NotImplementedError):
        hvd.grouped_allreduce([np.ones(3)], op=hvd.Adasum, process_set=first)
    hvd.remove_process_set(first)
