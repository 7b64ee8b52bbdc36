"""How an operation of a program is called, and how its results are looked at."""

from __future__ import annotations

from typing import Any

import model
from operations import Operation

import horovod.numpy as hvd

REDUCTIONS = {name: getattr(hvd, name) for name in ("Sum", "Average", "Min", "Max", "Product", "Adasum")}
Given = list[model.Array]


def _arguments(operation: Operation, rank: int, process_set: hvd.ProcessSet | None) -> dict[str, Any]:
    arguments: dict[str, Any] = {"name": operation.name}
    if process_set is not None:
        arguments["process_set"] = process_set
    is_odd = operation.odd == rank
    if operation.verb in ("allreduce", "reducescatter"):
        reduce = operation.reduce
        if is_odd and operation.wrong == "reduction":
            other = "Max" if operation.verb == "allreduce" else "Average"
            reduce = "Sum" if reduce != "Sum" else other
        arguments |= {"op": REDUCTIONS[reduce]}
        arguments |= {"prescale_factor": operation.prescale, "postscale_factor": operation.postscale}
    if operation.verb == "broadcast":
        others = [member for member in operation.members if member != operation.root]
        arguments["root_rank"] = others[0] if is_odd and operation.wrong == "root" else operation.root
    if operation.verb == "alltoall" and operation.splits:
        arguments["splits"] = list(operation.splits[operation.members.index(rank)])
    return arguments


def _prepare(operation: Operation, rank: int, turn: int) -> tuple[str, Given, Any]:
    """The name of the function, what it is given, and its first argument."""
    given = model.inputs(operation, rank, turn)
    if operation.in_place:
        given = [each.copy() for each in given]
    name = "grouped_" * operation.grouped + operation.verb
    return name, given, given if operation.grouped else given[0]


def begin(operation: Operation, rank: int, turn: int, process_set: hvd.ProcessSet | None) -> tuple[int, Given]:
    """Start it; its handle and what it was given."""
    name, given, first = _prepare(operation, rank, turn)
    function = getattr(hvd, f"{name}_async{'_' * operation.in_place}")
    return function(first, **_arguments(operation, rank, process_set)), given


def finish(operation: Operation, handle: int, given: Given) -> list[Any]:
    """Wait for it; its results."""
    return _results(operation, hvd.synchronize(handle), given)


def call(operation: Operation, rank: int, turn: int, process_set: hvd.ProcessSet | None) -> list[Any]:
    """Call it and wait; its results."""
    if operation.verb == "barrier":
        hvd.barrier(**({} if process_set is None else {"process_set": process_set}))
        return []
    if operation.verb == "broadcast_object":
        arguments = {} if process_set is None else {"process_set": process_set}
        return [hvd.broadcast_object(_object(operation, rank, turn), operation.root, operation.name, **arguments)]
    if operation.verb == "allgather_object":
        from horovod._generic.objects import allgather_object_in

        where = hvd.global_process_set if process_set is None else process_set
        return list(allgather_object_in(where, _object(operation, rank, turn), operation.name))
    name, given, first = _prepare(operation, rank, turn)
    result = getattr(hvd, name + "_" * operation.in_place)(first, **_arguments(operation, rank, process_set))
    if operation.verb == "alltoall" and not operation.splits:
        result = (result, None)
    return _results(operation, result, given)


def _results(operation: Operation, result: Any, given: Given) -> list[Any]:
    results = list(result) if operation.grouped or operation.verb == "alltoall" else [result]
    if operation.in_place and any(one is not other for one, other in zip(results, given, strict=True)):
        raise model.Difference("the result is not the tensor that was given")
    return results


def _object(operation: Operation, rank: int, turn: int) -> dict[str, Any]:
    return {"rank": rank, "key": operation.key + turn, "text": "x" * ((operation.key * (rank + 1)) % 3000)}


def check(
    operation: Operation,
    rank: int,
    turn: int,
    hosts: tuple[int, ...],
    results: list[Any],
    present: tuple[int, ...] | None,
) -> None:
    """Difference when the results are not those of the model."""
    if operation.verb == "barrier":
        return
    if operation.verb.endswith("_object"):
        givers = operation.members if operation.verb == "allgather_object" else (operation.root,)
        wanted = [_object(operation, giver, turn) for giver in givers]
        if results != wanted:
            raise model.Difference(f"{str(results)[:200]} instead of {str(wanted)[:200]}")
        return
    expected = model.expected(operation, rank, turn, hosts, present)
    if operation.verb == "alltoall" and results[1] is None:
        results, expected = results[:1], expected[:1]
    model.compare(operation, results, expected)
