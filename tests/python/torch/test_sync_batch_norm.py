"""SyncBatchNorm on N ranks is batch normalisation of the whole batch on one."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import horovod.torch as hvd

CHANNELS = 3
LAYERS: dict[int, type[nn.Module]] = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def batches(dims: int, sizes: list[int], dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(dims)
    shape = (CHANNELS, *[2, 3, 4][: dims - 2])
    return [10 + 3 * torch.randn(count, *shape, generator=generator, dtype=dtype) for count in sizes]


def weights_of(outputs: torch.Tensor) -> torch.Tensor:
    """A loss in which every element counts differently."""
    return torch.linspace(-1, 2, outputs.numel(), dtype=outputs.dtype).reshape(outputs.shape)


def pair(dims: int, dtype: torch.dtype, **options: object) -> tuple[nn.Module, hvd.SyncBatchNorm]:
    """A plain layer for the whole batch, and the same for the part of this rank."""
    torch.manual_seed(1)
    whole = LAYERS[dims](CHANNELS, **options).to(dtype)
    if options.get("affine", True):
        nn.init.uniform_(whole.weight)
        nn.init.uniform_(whole.bias)
    part = hvd.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(whole))
    assert isinstance(part, hvd.SyncBatchNorm)
    return whole, part


def compare(whole: nn.Module, part: hvd.SyncBatchNorm, parts: list[torch.Tensor], tolerance: float) -> None:
    start = sum(len(each) for each in parts[: hvd.rank()])
    mine = slice(start, start + len(parts[hvd.rank()]))
    everything = torch.cat(parts).requires_grad_()
    own = parts[hvd.rank()].clone().requires_grad_()
    expected, result = whole(everything), part(own)
    assert result.dtype == own.dtype
    torch.testing.assert_close(result, expected[mine], rtol=tolerance, atol=tolerance)
    weights = weights_of(expected)
    (expected * weights).sum().backward()
    (result * weights[mine]).sum().backward()
    torch.testing.assert_close(own.grad, everything.grad[mine], rtol=tolerance, atol=tolerance)
    for name, parameter in part.named_parameters():
        total = hvd.allreduce(parameter.grad, op=hvd.Sum)
        reference = whole.get_parameter(name).grad
        torch.testing.assert_close(
            total, reference, rtol=tolerance, atol=tolerance * max(1.0, float(reference.abs().max()))
        )
    for name, buffer in part.named_buffers():
        torch.testing.assert_close(buffer, whole.get_buffer(name), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dims", LAYERS)
def test_equals_one_process_on_the_whole_batch(dims: int) -> None:
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
        whole, part = pair(dims, dtype)
        for _ in range(2):
            compare(whole, part, batches(dims, [4] * hvd.size(), dtype), tolerance)


@pytest.mark.parametrize(
    "options",
    [{"affine": False}, {"momentum": None}, {"momentum": 0.7, "eps": 0.1}, {"track_running_stats": False}],
    ids=str,
)
def test_options(options: dict[str, object]) -> None:
    whole, part = pair(4, torch.float64, **options)
    for _ in range(2):
        compare(whole, part, batches(4, [3] * hvd.size(), torch.float64), 1e-10)


def test_batches_of_different_sizes() -> None:
    for sizes in ([1 + 2 * rank for rank in range(hvd.size())], [rank * 3 for rank in range(hvd.size())]):
        whole, part = pair(4, torch.float64)
        compare(whole, part, batches(4, sizes, torch.float64), 1e-10)


def test_evaluation_uses_the_running_statistics() -> None:
    whole, part = pair(4, torch.float64)
    compare(whole, part, batches(4, [2] * hvd.size(), torch.float64), 1e-10)
    whole.eval()
    part.eval()
    for count in range(1, hvd.rank() + 2):  # not collective: ranks may run it as often as they like
        values = torch.randn(count, CHANNELS, 2, 2, dtype=torch.float64)
        torch.testing.assert_close(part(values), whole(values))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(dtype: torch.dtype) -> None:
    """Statistics are computed in float32; the layer itself stays float32, as under autocast."""
    parts = batches(4, [4] * hvd.size(), torch.float32)
    whole, part = pair(4, torch.float32)
    own = parts[hvd.rank()].to(dtype).requires_grad_()
    result = part(own)
    assert result.dtype == dtype
    expected = whole(torch.cat([each.to(dtype).float() for each in parts]))
    torch.testing.assert_close(result.float(), expected[4 * hvd.rank() : 4 * hvd.rank() + 4], rtol=2e-2, atol=2e-2)
    result.float().pow(2).sum().backward()
    assert own.grad.dtype == dtype
    assert part.weight.grad.dtype == torch.float32
    torch.testing.assert_close(part.running_mean, whole.running_mean, rtol=1e-3, atol=1e-3)


def test_channels_last_and_strided_batches() -> None:
    whole, part = pair(4, torch.float64)
    parts = [each.contiguous(memory_format=torch.channels_last) for each in batches(4, [4] * hvd.size(), torch.float64)]
    compare(whole, part, parts, 1e-10)


def test_a_model_is_converted() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Sequential(nn.BatchNorm2d(2, affine=False)))
    model[1].eval()
    state, parameters = copy.deepcopy(model.state_dict()), list(model.parameters())
    converted = hvd.SyncBatchNorm.convert_sync_batchnorm(model)
    assert converted is model
    assert isinstance(model[1], hvd.SyncBatchNorm) and isinstance(model[2][0], hvd.SyncBatchNorm)
    assert not model[1].training and model[2][0].training
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(one is other for one, other in zip(model.parameters(), parameters, strict=True))
    layer = model[1]
    assert hvd.SyncBatchNorm.convert_sync_batchnorm(model)[1] is layer


def test_a_batch_of_one_value_per_channel_is_refused_on_all_ranks() -> None:
    rows = 1 if hvd.rank() == 0 else 0
    with pytest.raises(ValueError, match="more than one value"):
        hvd.SyncBatchNorm(CHANNELS)(torch.ones(rows, CHANNELS))


def test_one_dimension_is_refused() -> None:
    with pytest.raises(ValueError, match="2 dimensions"):
        hvd.SyncBatchNorm(CHANNELS)(torch.ones(CHANNELS))


def test_a_frozen_layer_passes_gradients_on() -> None:
    layer = hvd.SyncBatchNorm(CHANNELS).requires_grad_(False)
    values = torch.randn(4, CHANNELS, requires_grad=True)
    layer(values)[0].sum().backward()
    assert values.grad is not None
    layer = hvd.SyncBatchNorm(CHANNELS)
    layer(torch.randn(4, CHANNELS)).sum().backward()
    assert layer.bias.grad.tolist() == [4.0] * CHANNELS
