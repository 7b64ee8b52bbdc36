"""Allreduce of tensors, in all its forms."""

from __future__ import annotations

import warnings

import pytest
import torch

import horovod.torch as hvd

TYPES = [torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
SHAPES: list[tuple[int, ...]] = [(), (0, 3), (17,), (3, 4, 5)]


def mine(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full(shape, hvd.rank() + 1, dtype=dtype)


def total() -> int:
    return hvd.size() * (hvd.size() + 1) // 2


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_sum(dtype: torch.dtype) -> None:
    for shape in SHAPES:
        values = mine(shape, dtype)
        result = hvd.allreduce(values, op=hvd.Sum)
        assert result.dtype == dtype
        assert torch.equal(result, torch.full(shape, total(), dtype=dtype))
        assert torch.equal(values, mine(shape, dtype))


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (hvd.Average, lambda values: values.mean()),
        (hvd.Min, lambda values: values.min()),
        (hvd.Max, lambda values: values.max()),
        (hvd.Product, lambda values: values.prod()),
    ],
)
def test_the_other_reductions(op: int, expected: object) -> None:
    assert callable(expected)
    everyones = torch.arange(1.0, hvd.size() + 1)
    assert torch.equal(hvd.allreduce(mine((4,)), op=op), torch.full((4,), float(expected(everyones))))


def test_the_average_of_integers_is_truncated() -> None:
    assert torch.equal(hvd.allreduce(mine((3,), torch.int64)), torch.full((3,), total() // hvd.size()))


def test_factors() -> None:
    result = hvd.allreduce(mine((3,)), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    assert torch.equal(result, torch.full((3,), 2.0 * total()))


def test_in_place_by_position() -> None:
    values = mine((5,))
    assert hvd.allreduce_(values, None, "by position", hvd.Sum) is values
    assert torch.equal(values, torch.full((5,), float(total())))
    row = torch.zeros(4, 3)
    row[1] = hvd.rank() + 1
    hvd.allreduce_(row[1], op=hvd.Sum)
    assert row.sum() == 3 * total()


def test_with_handles() -> None:
    values = mine((5,))
    started = hvd.allreduce_async(values, op=hvd.Sum)
    assert torch.equal(hvd.synchronize(started), torch.full((5,), float(total())))
    assert torch.equal(values, mine((5,)))
    assert hvd.synchronize(hvd.allreduce_async_(values, op=hvd.Sum)) is values
    assert torch.equal(values, torch.full((5,), float(total())))


def test_groups() -> None:
    def tensors() -> list[torch.Tensor]:
        return [mine((2,)), mine((), torch.int64), mine((0, 3)), mine((3, 3), torch.float64)]

    def check(results: object) -> None:
        assert isinstance(results, list | tuple)
        for result, given in zip(results, tensors(), strict=True):
            assert torch.equal(result, torch.full_like(given, total()))

    results = hvd.grouped_allreduce(tensors(), op=hvd.Sum)
    assert isinstance(results, list)
    check(results)
    check(hvd.synchronize(hvd.grouped_allreduce_async(tensors(), op=hvd.Sum)))
    given = tensors()
    changed = hvd.grouped_allreduce_(given, op=hvd.Sum)
    assert isinstance(changed, tuple) and all(a is b for a, b in zip(changed, given, strict=True))
    check(given)
    given = tensors()
    assert hvd.synchronize(hvd.grouped_allreduce_async_(given, op=hvd.Sum))[0] is given[0]
    check(given)


def test_a_leaf_that_requires_a_gradient_is_changed_in_place() -> None:
    parameter = torch.nn.Parameter(mine((3,)))
    assert hvd.allreduce_(parameter, op=hvd.Sum) is parameter
    assert torch.equal(parameter.detach(), torch.full((3,), float(total())))
    assert parameter.requires_grad and parameter.grad_fn is None
    result = hvd.synchronize(hvd.allreduce_async(parameter, op=hvd.Max))
    assert not result.requires_grad


def test_compression() -> None:
    result = hvd.allreduce(mine((3,)) / 3, op=hvd.Sum, compression=hvd.Compression.fp16)
    assert result.dtype == torch.float32
    assert torch.allclose(result, torch.full((3,), total() / 3), atol=1e-2)
    results = hvd.grouped_allreduce([mine((3,)), mine((2,), torch.int32)], compression=hvd.Compression.fp16, op=hvd.Sum)
    assert [each.dtype for each in results] == [torch.float32, torch.int32]


def test_the_older_argument_average() -> None:
    for call in (
        lambda: hvd.allreduce(mine((3,)), False),
        lambda: hvd.allreduce_(mine((3,)), average=False),
        lambda: hvd.allreduce(mine((3,)).requires_grad_(), average=False),
    ):
        with pytest.warns(DeprecationWarning, match="average") as caught:
            result = call()
        assert [each.filename for each in caught] == [__file__]
        assert torch.equal(result.detach(), torch.full((3,), float(total())))
    with pytest.raises(ValueError, match="not both"):
        hvd.allreduce(mine((3,)), average=True, op=hvd.Sum)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hvd.allreduce(mine((3,)))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: torch.zeros(4, 4).t(), r"allreduce of w: .*contiguous"),
        (lambda: torch.zeros(1, 2, 3, 4).contiguous(memory_format=torch.channels_last), "contiguous"),
        (lambda: torch.zeros(3).to_sparse(), "sparse_allreduce_async"),
        (lambda: torch.zeros(3, dtype=torch.complex64).conj(), "resolve_conj"),
        (lambda: torch.zeros(3, dtype=torch.float8_e4m3fn), "float8"),
        (lambda: torch.zeros(3, device="meta"), "meta"),
        (lambda: [1.0, 2.0], "list"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_name(make: object, text: str) -> None:
    assert callable(make)
    for verb in (hvd.allreduce, hvd.allreduce_, hvd.allreduce_async, hvd.allreduce_async_):
        with pytest.raises(ValueError, match=text):
            verb(make(), name="w")
    with pytest.raises(ValueError, match="tensor 2 of 2"):
        hvd.grouped_allreduce([torch.zeros(2), make()], name="w")
    with pytest.raises(ValueError):
        hvd.grouped_allreduce([])


def test_a_name_is_a_str() -> None:
    with pytest.raises(TypeError, match="str"):
        hvd.allreduce(torch.zeros(2), name=b"bytes")  # type: ignore[arg-type]


def test_adasum_works_on_the_world_only() -> None:
    orthogonal = torch.zeros(hvd.size())
    orthogonal[hvd.rank()] = 1.0
    assert torch.allclose(hvd.allreduce(orthogonal, op=hvd.Adasum), torch.ones(hvd.size()))
    with pytest.raises(NotImplementedError):
        hvd.allreduce(orthogonal, op=hvd.Adasum, process_set=hvd.ProcessSet([0]))
