"""Compressors that run the whole reduction and exchange something smaller than the arrays: int8, the largest elements,
low rank. They are those of horovod.torch (described in its compression/*.py), as functions: the error of one
reduction is a pytree in the state of DistributedOptimizer, which is added to the next one.

All arrays go through each exchange together, in one call of XLA. Arrays that are small or not of a floating-point type
are reduced as they are.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from horovod._generic.process_sets import ProcessSet
from horovod._generic.reduce_ops import Average, Sum
from horovod._generic.submission import Reduction
from horovod.jax import verbs
from horovod.jax.world import depends_on

SMALL = 4096  # elements: for smaller arrays the exchange is dominated by latency
_BLOCK = 128  # int8: elements that share a scale
_FEWEST_BLOCKS_OF_SHARE = 16


class ReducingCompressor(ABC):
    """A compressor that exchanges arrays itself, for Average and Sum. All ranks get the same bits."""

    def __init__(self, error_feedback: bool = True) -> None:
        self.error_feedback = error_feedback

    def init(self, arrays: Sequence[Any], process_set: ProcessSet) -> tuple[Any, ...]:
        """The initial state for each array."""
        ranks = process_set.size() or 1
        return tuple(self._empty(each, ranks) if self._is_worth_it(each, ranks) else () for each in arrays)

    def reduce(
        self, arrays: Sequence[Any], memory: Any, name: str | None, reduction: Reduction, process_set: ProcessSet
    ) -> tuple[list[Any], Any]:
        """Return the reduced arrays, and the new state; without a state, errors are lost."""
        if reduction.op not in (Average, Sum):
            raise ValueError(f"{type(self).__name__} supports only op=hvd.Average and op=hvd.Sum")
        depends_on(process_set)
        ranks = process_set.size()
        assert ranks is not None
        name = "compressed" if name is None else name
        places = [i for i, each in enumerate(arrays) if self._is_worth_it(each, ranks)]
        others = [i for i in range(len(arrays)) if i not in set(places)]
        results, kept = list(arrays), list(memory or [()] * len(arrays))
        if others:
            plain = verbs.grouped_allreduce(
                [arrays[i] for i in others],
                None,
                f"{name}.plain",
                op=reduction.op,
                prescale_factor=reduction.prescale_factor,
                postscale_factor=reduction.postscale_factor,
                process_set=process_set,
            )
            for i, each in zip(others, plain, strict=True):
                results[i] = each
        if places:
            factor = reduction.postscale_factor / (ranks if reduction.op == Average else 1)
            values = [arrays[i].astype(jnp.float32) * reduction.prescale_factor for i in places]
            before = [kept[i] if memory else self._empty(arrays[i], ranks) for i in places]
            reduced, after = self._exchange(values, before, name, factor, ranks, process_set)
            for i, each, state in zip(places, reduced, after, strict=True):
                results[i] = each.reshape(arrays[i].shape).astype(arrays[i].dtype)
                kept[i] = state if self.error_feedback else kept[i]
        return results, tuple(kept) if memory else memory

    def _is_worth_it(self, array: Any, ranks: int) -> bool:
        return ranks > 1 and jnp.issubdtype(array.dtype, jnp.floating) and array.size >= SMALL

    @abstractmethod
    def _empty(self, array: Any, ranks: int) -> Any:
        """The memory of an array before the first reduction."""

    @abstractmethod
    def _exchange(
        self, values: list[Any], memory: list[Any], name: str, factor: float, ranks: int, process_set: ProcessSet
    ) -> tuple[list[Any], list[Any]]:
        """The sums over the ranks times the factor, and the new memory."""


def _finite(error: Any) -> Any:
    """The error to keep: a non-finite one would never disappear."""
    return jnp.where(jnp.isfinite(error), error, 0.0)


class Int8Compressor(ReducingCompressor):
    """Sends floating-point arrays as int8 with a scale for every 128 elements."""

    def __call__(self, error_feedback: bool = True) -> Int8Compressor:
        """Another compressor."""
        return Int8Compressor(error_feedback)

    def _is_worth_it(self, array: Any, ranks: int) -> bool:
        return super()._is_worth_it(array, ranks) and array.size >= _FEWEST_BLOCKS_OF_SHARE * _BLOCK * ranks

    def _empty(self, array: Any, ranks: int) -> Any:
        share = _share_of(array.size, ranks)
        return jnp.zeros((ranks, share), jnp.float32), jnp.zeros((1, share), jnp.float32)

    def _exchange(
        self, values: list[Any], memory: list[Any], name: str, factor: float, ranks: int, process_set: ProcessSet
    ) -> tuple[list[Any], list[Any]]:
        sizes = [each.size for each in values]
        shares = []
        for each, (sent, _) in zip(values, memory, strict=True):
            padding = _share_of(each.size, ranks) * ranks - each.size
            shares.append(jnp.pad(each.reshape(-1), (0, padding)).reshape(ranks, -1) + sent)
        messages = [_encode(each) for each in shares]
        received = verbs.alltoall(messages, name=f"{name}.int8", process_set=process_set)
        totals = [
            _decode(each).sum(0, keepdims=True) * factor + summed
            for each, (_, summed) in zip(received, memory, strict=True)
        ]
        answers = [_encode(each) for each in totals]
        gathered = verbs.grouped_allgather(answers, f"{name}.int8", process_set)
        after = [
            (_finite(share - _decode(message)), _finite(total - _decode(answer)))
            for share, message, total, answer in zip(shares, messages, totals, answers, strict=True)
        ]
        return [_decode(each).reshape(-1)[:size] for each, size in zip(gathered, sizes, strict=True)], after


def _share_of(elements: int, ranks: int) -> int:
    return math.ceil(math.ceil(elements / ranks) / _BLOCK) * _BLOCK


def _encode(values: Any) -> Any:
    """Bytes of float32 elements, shaped (shares, elements): blocks of 128 elements and their scale."""
    blocks = values.reshape(-1, _BLOCK)
    scales = jnp.abs(blocks).max(1, keepdims=True) / 127
    scales = jnp.where(scales < jnp.finfo(jnp.float32).tiny, 0, scales)
    elements = jnp.round(blocks * jnp.where(scales == 0, 0, 1 / scales)).astype(jnp.int8)
    wire = jnp.concatenate([elements, jax.lax.bitcast_convert_type(scales, jnp.int8).reshape(-1, 4)], axis=1)
    return wire.reshape(values.shape[0], -1)


def _decode(shares: Any) -> Any:
    wire = shares.reshape(-1, _BLOCK + 4)
    scales = jax.lax.bitcast_convert_type(wire[:, _BLOCK:].reshape(-1, 1, 4), jnp.float32)
    return (wire[:, :_BLOCK].astype(jnp.float32) * scales).reshape(shares.shape[0], -1)


class TopKCompressor(ReducingCompressor):
    """Sends the given share of the elements, those with the largest values."""

    def __init__(self, ratio: float = 0.01, error_feedback: bool = True) -> None:
        if not 0 < ratio <= 1:
            raise ValueError(f"ratio is the share of elements to send, above 0 and at most 1, not {ratio}")
        super().__init__(error_feedback)
        self.ratio = ratio

    def _empty(self, array: Any, ranks: int) -> Any:
        return jnp.zeros(array.size, jnp.float32)

    def _exchange(
        self, values: list[Any], memory: list[Any], name: str, factor: float, ranks: int, process_set: ProcessSet
    ) -> tuple[list[Any], list[Any]]:
        whole = [each.reshape(-1) + unsent for each, unsent in zip(values, memory, strict=True)]
        places = [jax.lax.top_k(jnp.abs(each), math.ceil(self.ratio * each.size))[1] for each in whole]
        largest = [each[where] for each, where in zip(whole, places, strict=True)]
        pairs = [
            jnp.stack([jax.lax.bitcast_convert_type(each, jnp.int32), where.astype(jnp.int32)])[None]
            for each, where in zip(largest, places, strict=True)
        ]
        gathered = verbs.grouped_allgather(pairs, f"{name}.topk", process_set)
        totals = []
        for each, received in zip(whole, gathered, strict=True):
            total = jnp.zeros_like(each)
            for part in received:
                total = total.at[part[1]].add(jax.lax.bitcast_convert_type(part[0], jnp.float32))
            totals.append(total * factor)
        after = [_finite(each.at[where].set(0.0)) for each, where in zip(whole, places, strict=True)]
        return totals, after


class PowerSGDCompressor(ReducingCompressor):
    """Sends matrices as products of two with `rank` columns; vectors as they are."""

    def __init__(self, rank: int = 4, error_feedback: bool = True) -> None:
        if rank < 1:
            raise ValueError(f"rank must be at least 1, not {rank}")
        super().__init__(error_feedback)
        self.rank = rank

    def _is_worth_it(self, array: Any, ranks: int) -> bool:
        if array.ndim < 2 or not super()._is_worth_it(array, ranks):
            return False
        return bool(self.rank * (array.shape[0] + array.size // array.shape[0]) < array.size)

    def _empty(self, array: Any, ranks: int) -> Any:
        columns = array.size // array.shape[0]
        return jnp.zeros((array.shape[0], columns), jnp.float32), jnp.zeros((columns, self.rank), jnp.float32)

    def _exchange(
        self, values: list[Any], memory: list[Any], name: str, factor: float, ranks: int, process_set: ProcessSet
    ) -> tuple[list[Any], list[Any]]:
        matrices = [each.reshape(each.shape[0], -1) + error for each, (error, _) in zip(values, memory, strict=True)]
        rights = [_start_values(i, right) for i, (_, right) in enumerate(memory)]
        sums = functools.partial(verbs.grouped_allreduce, op=Sum, process_set=process_set)
        products = [matrix @ right for matrix, right in zip(matrices, rights, strict=True)]
        lefts = sums(products, name=f"{name}.p")
        lefts = [jnp.linalg.qr(each)[0] for each in lefts]
        own = [matrix.T @ left for matrix, left in zip(matrices, lefts, strict=True)]
        rights = sums(own, name=f"{name}.q")
        after = [
            (_finite(matrix - left @ mine.T), right)
            for matrix, left, mine, right in zip(matrices, lefts, own, rights, strict=True)
        ]
        return [(left @ right.T) * factor for left, right in zip(lefts, rights, strict=True)], after


def _start_values(index: int, before: Any) -> Any:
    """The Q of the previous time; random columns where that is useless: at first, and after zeros or an overflow."""
    lengths = jnp.linalg.norm(before, axis=0)
    usable = (lengths > 0) & jnp.isfinite(lengths)
    fresh = jax.random.normal(jax.random.key(index), before.shape, before.dtype)
    return jnp.where(usable, before, fresh)


__all__ = ["Int8Compressor", "PowerSGDCompressor", "ReducingCompressor", "TopKCompressor"]
