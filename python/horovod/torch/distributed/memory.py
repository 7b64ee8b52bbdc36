"""The memory of tensors as the engine sees it: flat, in one piece, on the host. What is not like that is copied.

Functions that say where a result goes also give a function that brings it to the user's tensors, or None.
Thread rule: any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from horovod.torch.distributed import requests
from horovod.torch.distributed.work import DoneWork

Finish = Callable[..., None]


def _is_flat(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_cpu and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg())


def to_read(tensor: torch.Tensor) -> torch.Tensor:
    """The elements, in one piece."""
    if _is_flat(tensor):
        return tensor
    with torch.no_grad():
        return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()


def to_change(tensor: torch.Tensor) -> tuple[torch.Tensor, Finish | None]:
    """Memory with the elements, which the result replaces."""
    if _is_flat(tensor):
        return tensor, None
    flat = to_read(tensor)
    return flat, lambda *_: copy(tensor, flat)


def to_fill(tensor: torch.Tensor) -> tuple[torch.Tensor, Finish | None]:
    """Memory for the elements of a result."""
    if _is_flat(tensor):
        return tensor, None
    flat = torch.empty(tensor.shape, dtype=tensor.dtype)
    return flat, lambda *_: copy(tensor, flat)


def to_fill_all(parts: Sequence[torch.Tensor], like: torch.Tensor) -> tuple[torch.Tensor, Finish | None]:
    """Memory for all parts, one after another."""
    if any(part.dtype != like.dtype for part in parts):
        raise ValueError("all tensors must have the same type")
    whole = _neighbours(parts)
    if whole is not None:
        return whole, None
    flat = torch.empty(sum(part.numel() for part in parts), dtype=like.dtype)

    def spread(*_: Any) -> None:
        for part, piece in zip(parts, flat.split([part.numel() for part in parts]), strict=True):
            copy(part, piece.view(part.shape))

    return flat, spread


def as_one(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The elements of all parts, one after another."""
    if any(part.dtype != parts[0].dtype for part in parts):
        raise ValueError("all tensors must have the same type")
    whole = _neighbours(parts)
    if whole is not None:
        return whole
    with torch.no_grad():
        return torch.cat([to_read(part).detach().reshape(-1) for part in parts])


def _neighbours(parts: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """One tensor over all parts, if they follow each other in memory."""
    first = parts[0]
    end, total = first.data_ptr(), 0
    storage = first.untyped_storage().data_ptr()
    for part in parts:
        if not _is_flat(part) or part.data_ptr() != end or part.untyped_storage().data_ptr() != storage:
            return None
        end += part.numel() * part.itemsize
        total += part.numel()
    if total == 0:
        return None
    return first.detach().as_strided((total,), (1,))


def copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """Replace the elements of a tensor, which may require a gradient."""
    target.detach().copy_(source)


def all_of(finishes: Sequence[Finish]) -> Finish | None:
    """One function that calls them all."""
    if len(finishes) <= 1:
        return finishes[0] if finishes else None

    def finish(*_: Any) -> None:
        for each in finishes:
            each()

    return finish


def checked(verb: str, whole: torch.Tensor, finish: Finish | None) -> Finish:
    """The engine has used the caller's memory, unless ranks sent another number of elements than there is room for."""

    def check(handle: int) -> None:
        if whole.numel() > 0 and requests.result_address(handle) != whole.data_ptr():
            raise ValueError(f"{verb}: the ranks sent another number of elements than this rank's output has")
        if finish is not None:
            finish()

    return check


def allreduce_sparse(group: Any, tensor: torch.Tensor, options: Any) -> Any:
    """The sum of sparse tensors: everybody's elements one after another. It is over when this returns."""
    import torch.distributed as dist

    if options.reduceOp != dist.ReduceOp.SUM:
        raise RuntimeError("unsupported reduction operation: sparse tensors can only be summed")
    target, tensor = tensor, tensor.coalesce()
    own = torch.tensor([tensor._nnz()], dtype=torch.int64)
    counts = torch.empty(group.size(), dtype=torch.int64)
    group.all_gather_single(counts, own).wait()
    rows = counts.tolist()
    indices = [torch.empty((count, tensor.sparse_dim()), dtype=torch.int64) for count in rows]
    values = [torch.empty((count, *tensor._values().shape[1:]), dtype=tensor.dtype) for count in rows]
    group.allgather([indices], [tensor._indices().t().contiguous()]).wait()
    group.allgather([values], [tensor._values()]).wait()
    result = torch.sparse_coo_tensor(torch.cat(indices).t(), torch.cat(values), tensor.shape).coalesce()
    with torch.no_grad():
        target.copy_(result)
    return DoneWork([target])
