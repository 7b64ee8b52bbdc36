"""The names of an optimizer's parameters in the negotiation, and their groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

Names = dict[torch.Tensor, str]  # by identity, as tensors hash


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """All parameters, in the order of the parameter groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def name_parameters(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None,
    unnamed: str = "allreduce.noname.{group}.{index}",
) -> Names:
    """The name of every parameter: the user's, or one derived from its index. ValueError for invalid user names."""
    if named_parameters is None:
        places = [
            (group, parameter)
            for group, options in enumerate(optimizer.param_groups)
            for parameter in options["params"]
        ]
        counts: dict[int, int] = {}
        names: Names = {}
        for total, (group, parameter) in enumerate(places):
            within = counts[group] = counts.get(group, -1) + 1
            names[parameter] = unnamed.format(group=group, index=within, total=total)
        return names
    entries = list(named_parameters)
    for entry in entries:
        if not (isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str)):
            raise ValueError(
                "named_parameters must hold (name, parameter) tuples; usually it is model.named_parameters(), not "
                "model.parameters()"
            )
    seen: set[str] = set()
    for name, _ in entries:
        if name in seen:
            raise ValueError(
                f"two parameters are named {name}; names must be unique: with several models put the model's name "
                "before each"
            )
        seen.add(name)
    names = {parameter: name for name, parameter in entries}
    missing = [tuple(parameter.shape) for parameter in parameters_of(optimizer) if parameter not in names]
    if missing:
        raise ValueError(
            f"named_parameters does not name {len(missing)} of the optimizer's parameters, such as one of shape "
            f"{missing[0]}; pass the names of all that it optimizes, or none at all"
        )
    return names


def check_groups(groups: int | Sequence[Sequence[torch.Tensor]] | None) -> None:
    """ValueError unless this can be the argument `groups` of an optimizer."""
    if groups is None:
        return
    if isinstance(groups, int):
        if groups <= 0:
            raise ValueError(f"groups must be a positive number or lists of parameters, not {groups}")
        return
    members: set[torch.Tensor] = set()
    for group in groups:
        for member in group:
            if not isinstance(member, torch.Tensor):
                raise ValueError(f"groups must hold lists of parameters, not of {type(member).__name__}")
            if member in members:
                raise ValueError("a parameter is in two groups; it can be in one only")
            members.add(member)


def split_evenly(names: Sequence[str], count: int) -> list[list[str]]:
    """The names in `count` groups of nearly the same size, in order; fewer if there are fewer names."""
    shorter, longer = divmod(len(names), count)
    groups, start = [], 0
    for i in range(count):
        stop = start + shorter + (1 if i < longer else 0)
        if stop > start:
            groups.append(list(names[start:stop]))
        start = stop
    return groups
