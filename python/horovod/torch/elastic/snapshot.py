"""Copies of state_dicts: tensors go into the memory of the copy before, so that a commit allocates nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def snapshot(value: Any, previous: Any = None) -> Any:
    """Return a copy of a tree of dicts, lists, tuples and tensors. `previous` is a copy that may be overwritten.

    On a GPU the copies are ordered by its stream, and the caller does not wait for them.
    """
    if isinstance(value, Tensor):
        return _copy_of_tensor(value, previous)
    if isinstance(value, dict):
        known = previous if isinstance(previous, dict) else {}
        copied = copy.copy(value)  # also attributes of a state_dict besides its items: versions
        copied.update({key: snapshot(each, known.get(key)) for key, each in value.items()})
        return copied
    if type(value) in (list, tuple):
        known_items = previous if type(previous) is type(value) and len(previous) == len(value) else [None] * len(value)
        return type(value)(map(snapshot, value, known_items))
    return copy.deepcopy(value)


def map_tensors(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Return the tree with every tensor replaced; other values are shared."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        mapped = copy.copy(value)
        mapped.update({key: map_tensors(each, function) for key, each in value.items()})
        return mapped
    if type(value) in (list, tuple):
        return type(value)(map_tensors(each, function) for each in value)
    return value


def _copy_of_tensor(value: Tensor, previous: Any) -> Tensor:
    source = value.detach()
    fits = (
        isinstance(previous, Tensor)
        and previous.layout == source.layout == torch.strided
        and (previous.shape, previous.dtype, previous.device) == (source.shape, source.dtype, source.device)
        and previous.stride() == source.stride()
    )
    return previous.copy_(source, non_blocking=True) if fits else source.clone()
