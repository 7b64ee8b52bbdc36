"""Batch normalisation over the batches of all ranks, as a module of Flax (linen)."""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from horovod._generic.process_sets import ProcessSet, global_process_set
from horovod._generic.reduce_ops import Sum
from horovod.jax import verbs


def statistics(x: Any, axes: tuple[int, ...], process_set: ProcessSet, name: str | None) -> tuple[Any, Any]:
    """Mean and variance over the axes and over all ranks, whose batches may have different sizes."""
    values = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    count = jnp.asarray(math.prod(x.shape[axis] for axis in axes), values.dtype)
    parts = (values.sum(axes), jnp.square(values).sum(axes), count)
    total, squares, everyones = verbs.allreduce(parts, op=Sum, name=name, process_set=process_set)
    mean = total / everyones
    return mean, jnp.maximum(squares / everyones - jnp.square(mean), 0.0)


class SyncBatchNorm(nn.Module):  # type: ignore[misc]
    """As `flax.linen.BatchNorm`, with statistics over all ranks. Variables have the same names, so weights fit both.

    Gradients of scale and bias stay this rank's: the optimizer reduces them with the others.
    """

    use_running_average: bool | None = None
    momentum: float = 0.99
    epsilon: float = 1e-5
    dtype: Any = None
    param_dtype: Any = jnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: Any = nn.initializers.zeros
    scale_init: Any = nn.initializers.ones
    process_set: ProcessSet = global_process_set

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Any, use_running_average: bool | None = None) -> Any:
        use_average = nn.merge_param("use_running_average", self.use_running_average, use_running_average)
        features = (x.shape[-1],)
        running_mean = self.variable("batch_stats", "mean", jnp.zeros, features, jnp.float32)
        running_var = self.variable("batch_stats", "var", jnp.ones, features, jnp.float32)
        if use_average:
            mean, var = running_mean.value, running_var.value
        elif self.is_initializing():
            mean, var = jnp.zeros(features), jnp.ones(features)  # each rank creates its own parameters
        else:
            name = f"sync_batch_norm.{'/'.join(self.path)}" if self.path else None
            mean, var = statistics(x, tuple(range(x.ndim - 1)), self.process_set, name)
            keep = self.momentum
            running_mean.value = keep * running_mean.value + (1 - keep) * mean
            running_var.value = keep * running_var.value + (1 - keep) * var
        factor = jax.lax.rsqrt(var + self.epsilon)
        if self.use_scale:
            factor = factor * self.param("scale", self.scale_init, features, self.param_dtype)
        result = (x - mean) * factor
        if self.use_bias:
            result = result + self.param("bias", self.bias_init, features, self.param_dtype)
        return result.astype(self.dtype or x.dtype)


__all__ = ["SyncBatchNorm", "statistics"]
