"""Verbs with a compressor that runs the reduction itself."""

from __future__ import annotations

import pytest
import torch

import horovod.torch as hvd


def mine() -> torch.Tensor:
    generator = torch.Generator().manual_seed(hvd.rank())
    return torch.rand(6000, 2, generator=generator)


@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum])
def test_results_are_close_and_gradients_exact(op: int) -> None:
    int8 = hvd.Compression.int8
    exact = hvd.allreduce(mine(), op=op)
    part = hvd.reducescatter(mine(), op=op)
    followed = mine().requires_grad_()
    reduced = hvd.allreduce(followed, op=op, compression=int8)
    assert reduced.requires_grad
    for result, expected in (
        (reduced.detach(), exact),
        (hvd.allreduce(mine(), op=op, compression=int8), exact),
        (hvd.grouped_allreduce([mine(), torch.ones(2)], op=op, compression=int8)[0], exact),
        (hvd.reducescatter(mine(), op=op, compression=int8), part),
        (hvd.grouped_reducescatter([mine(), mine()], op=op, compression=int8)[1], part),
    ):
        assert result.shape == expected.shape
        assert not torch.equal(result, expected)  # it was compressed
        torch.testing.assert_close(result, expected, rtol=0.1, atol=0.05)
    reduced.sum().backward()
    assert torch.equal(followed.grad, torch.full((6000, 2), float(hvd.size() if op == hvd.Sum else 1)))


def test_factors() -> None:
    options = {"op": hvd.Sum, "prescale_factor": 2.0, "postscale_factor": 0.25}
    result = hvd.allreduce(mine(), compression=hvd.Compression.int8, **options)
    torch.testing.assert_close(result, hvd.allreduce(mine(), **options), rtol=0.1, atol=0.05)


def test_a_class_instead_of_an_object_is_refused() -> None:
    with pytest.raises(ValueError, match="brackets"):
        hvd.allreduce(mine(), compression=hvd.Compression.topk)
