"""Batch normalisation over the batches of all ranks, as if they were one batch on one rank.

Every rank sends the count, mean and sum of squared deviations of each channel, one row of numbers, so that batches may
have different sizes; they are combined without the loss of digits that sums of squares would have. Backward sends two
sums per channel. Weight and bias get the gradient of the rank's own batch: as other gradients they are averaged by the
optimizer. Works on every device; two layers must not run at the same time, because the names of operations are fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from horovod._generic.reduce_ops import Sum
from horovod.torch.mpi_ops import allgather, allreduce_, size


class SyncBatchNorm(_BatchNorm):
    """Replaces BatchNorm1d, 2d and 3d: statistics are those of the batches of all ranks.

    In evaluation mode, unless running statistics are switched off, and in a world of one rank it is ordinary batch
    normalisation.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm expects a batch of at least 2 dimensions, not {input.dim()}")

    def forward(self, input: Tensor) -> Tensor:
        """Normalise the batch. Collective in training: all ranks run it the same number of times."""
        self._check_input_dim(input)
        uses_running = not self.training and self.running_mean is not None and self.running_var is not None
        if uses_running or size() == 1:
            return super().forward(input)
        statistics = _Statistics.of_all_ranks(input)
        if self.training and self.track_running_stats:
            self._track(statistics)
        normalise: Callable[..., Tensor] = _Normalise.apply
        return normalise(input, self.weight, self.bias, statistics, self.eps)

    @torch.no_grad()
    def _track(self, statistics: _Statistics) -> None:
        """Move the running statistics towards those of this batch."""
        factor = self.momentum or 0.0
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.lerp_(statistics.mean.to(self.running_mean.dtype), factor)
            unbiased = statistics.variance * (statistics.count / (statistics.count - 1))
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), factor)

    @classmethod
    def convert_sync_batchnorm(cls, module: nn.Module) -> nn.Module:
        """Return the module with every batch normalisation layer in it replaced by a synchronised one.

        Weights, statistics and settings are kept; build the optimizer afterwards.
        """
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            return cls._from(module)
        for name, child in module.named_children():
            setattr(module, name, cls.convert_sync_batchnorm(child))
        return module

    @classmethod
    def _from(cls, layer: _BatchNorm) -> SyncBatchNorm:
        converted = cls(layer.num_features, layer.eps, layer.momentum, layer.affine, layer.track_running_stats)
        converted.weight, converted.bias = layer.weight, layer.bias
        converted.running_mean, converted.running_var = layer.running_mean, layer.running_var
        converted.num_batches_tracked = layer.num_batches_tracked
        converted.training = layer.training
        return converted


def _per_channel(tensor: Tensor) -> list[int]:
    """The dimensions over which a channel extends: all but the second."""
    return [0, *range(2, tensor.dim())]


class _Statistics:
    """Of each channel over the batches of all ranks."""

    def __init__(self, count: int, mean: Tensor, variance: Tensor) -> None:
        self.count = count
        self.mean = mean
        self.variance = variance  # biased

    @staticmethod
    @torch.no_grad()
    def of_all_ranks(batch: Tensor) -> _Statistics:
        # float64 is for the counts, which may not fit float32, and for combining: these are few numbers.
        working = batch if batch.dtype == torch.float64 else batch.float()
        channels = batch.shape[1]
        count = batch.numel() // channels if channels else 0
        mine = torch.zeros(1, 2 * channels + 1, dtype=torch.float64, device=batch.device)
        mine[0, -1] = count
        if count:
            variance, mean = torch.var_mean(working, _per_channel(batch), correction=0)
            mine[0, :channels], mine[0, channels:-1] = mean, variance
        every = allgather(mine, "sync_batch_norm.statistics")
        counts, means, variances = every[:, -1:], every[:, :channels], every[:, channels:-1]
        total = int(counts.sum())
        if total <= 1:
            raise ValueError(
                f"SyncBatchNorm needs more than one value per channel in training, over all ranks it got {total}"
            )
        mean = (counts * means).sum(0) / total
        variance = (counts * (variances + (means - mean) ** 2)).sum(0) / total
        return _Statistics(total, mean.to(working.dtype), variance.to(working.dtype))


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, batch: Tensor, weight: Tensor | None, bias: Tensor | None, statistics: _Statistics, eps: float
    ) -> Tensor:
        ctx.save_for_backward(batch, weight, statistics.mean, torch.rsqrt(statistics.variance + eps))
        ctx.count = statistics.count
        if not batch.numel():
            return torch.empty_like(batch)
        return functional.batch_norm(batch, statistics.mean, statistics.variance, weight, bias, eps=eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        batch, weight, mean, inverse_deviation = ctx.saved_tensors
        (gradient,) = gradients
        shape = [1, -1, *[1] * (batch.dim() - 2)]
        deviations = (batch.to(mean.dtype) - mean.reshape(shape)) * inverse_deviation.reshape(shape)  # normalised
        upward = gradient.to(mean.dtype)
        sums = torch.stack([upward.sum(_per_channel(batch)), (upward * deviations).sum(_per_channel(batch))])
        needs_input, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        own_bias, own_weight = sums.clone() if needs_weight or needs_bias else (None, None)
        allreduce_(sums, name="sync_batch_norm.gradient_sums", op=Sum)
        input_gradient = None
        if needs_input:
            per_value, along = (sums / ctx.count).reshape(2, *shape)
            scale = inverse_deviation if weight is None else inverse_deviation * weight.to(mean.dtype)
            input_gradient = (upward - per_value - deviations * along) * scale.reshape(shape)
            input_gradient = input_gradient.to(batch.dtype)
        weight_type = None if weight is None else weight.dtype
        return (
            input_gradient,
            own_weight.to(weight_type) if needs_weight and own_weight is not None else None,
            own_bias.to(weight_type) if needs_bias and own_bias is not None else None,
            None,
            None,
        )


__all__ = ["SyncBatchNorm"]
