"""The gradients of the verbs. They are averages where an adjoint would be a sum, as Horovod's always were."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import horovod.torch as hvd


def leaf(*shape: int) -> torch.Tensor:
    return torch.full(shape, float(hvd.rank() + 1), requires_grad=True)


def upstream_of(rank: int, like: torch.Tensor) -> torch.Tensor:
    """A gradient that differs between ranks and elements."""
    return (rank + 1.0) * torch.arange(1.0, like.numel() + 1).reshape(like.shape)


def gradient_through(output: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    tensor.grad = None
    output.backward(upstream_of(hvd.rank(), output))
    assert tensor.grad is not None
    return tensor.grad


def everyones(like: torch.Tensor) -> torch.Tensor:
    return torch.stack([upstream_of(rank, like) for rank in range(hvd.size())])


@pytest.mark.parametrize("name", [None, "named"])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("factors", [(1.0, 1.0), (0.5, 4.0)])
def test_allreduce(name: str | None, grouped: bool, factors: tuple[float, float]) -> None:
    for op, reduced in (
        (hvd.Average, lambda values: values.mean(0)),
        (hvd.Sum, lambda values: values.sum(0)),
        (hvd.Max, lambda values: values.amax(0)),
    ):
        tensor = leaf(2, 3)
        options = {"name": name, "op": op, "prescale_factor": factors[0], "postscale_factor": factors[1]}
        if grouped:
            first, second = hvd.grouped_allreduce([tensor, tensor * 2], **options)
            result = gradient_through(first + second, tensor)
            expected = 3 * reduced(everyones(tensor))
        else:
            result = gradient_through(hvd.allreduce(tensor, **options), tensor)
            expected = reduced(everyones(tensor))
        assert torch.allclose(result, expected * factors[0] * factors[1])


def test_a_gradient_without_memory_of_its_own() -> None:
    """sum() expands one number: it is not contiguous."""
    tensor = leaf(4)
    hvd.allreduce(tensor, op=hvd.Sum).sum().backward()
    assert torch.equal(tensor.grad, torch.full((4,), float(hvd.size())))


def test_a_group_with_whole_numbers_and_constants() -> None:
    tensor = leaf(2)
    whole, constant, reduced = hvd.grouped_allreduce([torch.ones(3, dtype=torch.int64), torch.ones(2), tensor])
    assert not whole.requires_grad
    (constant + reduced).sum().backward()
    assert torch.equal(tensor.grad, torch.ones(2))


def test_ranks_may_differ_in_what_requires_a_gradient() -> None:
    """All run backward; a rank whose own tensor needs no gradient still takes part."""
    own = torch.ones(2, requires_grad=hvd.rank() == 0)
    shared = torch.ones(2, requires_grad=True)
    first, second = hvd.grouped_allreduce([own, shared], op=hvd.Sum, name="some")
    (first + second).sum().backward()
    assert (own.grad is not None) == (hvd.rank() == 0)


@pytest.mark.parametrize("name", [None, "named"])
@pytest.mark.parametrize("grouped", [False, True])
def test_allgather(name: str | None, grouped: bool) -> None:
    rank, size = hvd.rank(), hvd.size()
    tensor = leaf(rank + 1, 2)
    if grouped:
        _, output = hvd.grouped_allgather([torch.ones(3), tensor], name)
    else:
        output = hvd.allgather(tensor, name)
    start = rank * (rank + 1) // 2
    expected = everyones(output).mean(0)[start : start + rank + 1]
    assert output.shape == (size * (size + 1) // 2, 2)
    assert torch.allclose(gradient_through(output, tensor), expected)


@pytest.mark.parametrize("name", [None, "named"])
def test_broadcast(name: str | None) -> None:
    root = hvd.size() - 1
    tensor = leaf(3)
    output = hvd.broadcast(tensor, root, name)
    expected = everyones(output).mean(0) * (hvd.rank() == root)
    assert torch.allclose(gradient_through(output, tensor), expected)


def test_alltoall() -> None:
    rank, size = hvd.rank(), hvd.size()
    tensor = leaf(2 * size + 1, 2)  # the last row is not sent
    output, received = hvd.alltoall(tensor, [2] * size, "there")
    assert not received.requires_grad
    back = torch.stack([upstream_of(each, output) for each in range(size)])[:, 2 * rank : 2 * rank + 2]
    expected = torch.cat([back.reshape(2 * size, 2), torch.zeros(1, 2)])
    assert torch.allclose(gradient_through(output, tensor), expected)
    even = leaf(size)
    result = hvd.alltoall(even)
    assert isinstance(result, torch.Tensor)
    assert torch.allclose(gradient_through(result, even), (torch.arange(size) + 1.0) * (rank + 1))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum])
@pytest.mark.parametrize("factors", [(1.0, 1.0), (0.5, 4.0)])
def test_reducescatter(grouped: bool, op: int, factors: tuple[float, float]) -> None:
    size = hvd.size()
    tensor = leaf(2 * size + 1)
    options = {"name": "scattered", "op": op, "prescale_factor": factors[0], "postscale_factor": factors[1]}
    verb: Callable[..., torch.Tensor] = hvd.reducescatter
    output = hvd.grouped_reducescatter([torch.ones(size), tensor], **options)[1] if grouped else verb(tensor, **options)
    gathered = torch.cat([upstream_of(rank, torch.empty(3 if rank == 0 else 2)) for rank in range(size)])
    scale = (size if op == hvd.Sum else 1) * factors[0] * factors[1]
    assert torch.allclose(gradient_through(output, tensor), gathered * scale)


@pytest.mark.usefixtures("numbered_anew")
def test_process_sets() -> None:
    """All ranks but the first."""
    last = hvd.size() - 1
    members = hvd.add_process_set(list(range(1, hvd.size())))
    if members.included():
        tensor = leaf(2)
        hvd.allreduce(tensor, op=hvd.Sum, process_set=members).sum().backward()
        assert torch.equal(tensor.grad, torch.full((2,), float(last)))
        tensor = leaf(hvd.rank(), 2)
        gathered = hvd.allgather(tensor, process_set=members)
        (gathered * torch.arange(float(len(gathered)))[:, None]).sum().backward()
        start = hvd.rank() * (hvd.rank() - 1) // 2
        assert tensor.grad[:, 0].tolist() == list(range(start, start + hvd.rank()))
        tensor = leaf(4)
        hvd.reducescatter(tensor, op=hvd.Sum, process_set=members).sum().backward()
        assert torch.equal(tensor.grad, torch.full((4,), float(last)))
        tensor = leaf(2)
        hvd.broadcast(tensor, last, process_set=members).sum().backward()
        assert torch.equal(tensor.grad, torch.full((2,), float(hvd.rank() == last)))
    else:
        with pytest.raises(ValueError):
            hvd.allreduce(leaf(2), name="stranger", process_set=members)
    hvd.remove_process_set(members)


def test_compression_is_followed() -> None:
    tensor = leaf(3)
    output = hvd.allreduce(tensor, op=hvd.Sum, compression=hvd.Compression.fp16)
    output.sum().backward()
    assert output.dtype == torch.float32
    assert torch.equal(tensor.grad, torch.full((3,), float(hvd.size())))


def test_gradients_of_gradients() -> None:
    tensor = torch.full((3,), 2.0, requires_grad=True)
    output = hvd.allreduce(tensor**3, op=hvd.Sum)
    (first,) = torch.autograd.grad(output.sum(), tensor, create_graph=True)
    assert torch.equal(first, torch.full((3,), 12.0 * hvd.size()))
    (hvd.allreduce(first, op=hvd.Sum)).sum().backward()
    assert torch.equal(tensor.grad, torch.full((3,), 12.0 * hvd.size() ** 2))


def test_no_graph_without_a_need() -> None:
    assert hvd.allreduce(torch.ones(2)).grad_fn is None
    with torch.no_grad():
        assert not hvd.allreduce(leaf(2)).requires_grad
        assert not hvd.allgather(leaf(2)).requires_grad
    assert hvd.allreduce(leaf(2)).requires_grad
