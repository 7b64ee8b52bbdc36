"""Random calls of every verb with the backends "hvd" and "gloo": both must give what a serial model gives.

The values are small integers, so that sums of floats are exact, too.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

ROUNDS = 6000 if os.environ.get("TEST_FULL") == "1" else 350
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
TYPES = [*INTEGERS, *FLOATS, torch.bool, *COMPLEX]
Op = dist.ReduceOp
Groups = tuple[dist.ProcessGroup, dist.ProcessGroup]


def data(seed: int, rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed * 1000 + rank)
    return torch.randint(0, 3, (count,), generator=generator).to(dtype)


def as_view(values: torch.Tensor, kind: str) -> tuple[torch.Tensor, Callable[[], None]]:
    """A tensor with these values in memory of that kind, and a check that nothing was written beside it."""
    count = values.numel()
    if kind == "plain":
        return values.clone(), lambda: None
    base = torch.full((2 * count + 3,), 7).to(values.dtype)
    view = base[2 : 2 + count] if kind == "offset" else base[1 : 1 + 2 * count : 2]
    if kind == "transposed" and count % 2 == 0:
        view = view.view(2, count // 2).t()
        values = values.view(view.shape)
    view.copy_(values)
    mask = torch.ones(len(base), dtype=torch.bool)
    mask.as_strided(view.shape, view.stride(), view.storage_offset()).fill_(False)
    before = base[mask].clone()

    def check() -> None:
        assert torch.equal(base[mask], before), f"written beside a tensor ({kind})"

    return view, check


def ops_of(dtype: torch.dtype) -> list[Any]:
    if dtype in INTEGERS:
        return [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, Op.BAND, Op.BOR, Op.BXOR]
    if dtype in FLOATS:
        return [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX]
    return [Op.BAND, Op.BOR, Op.BXOR] if dtype == torch.bool else [Op.SUM]


def fold(op: Any, values: list[torch.Tensor]) -> torch.Tensor:
    pair = {
        Op.SUM: torch.add,
        Op.PRODUCT: torch.mul,
        Op.MIN: torch.minimum,
        Op.MAX: torch.maximum,
        Op.BAND: torch.bitwise_and,
        Op.BOR: torch.bitwise_or,
        Op.BXOR: torch.bitwise_xor,
    }[op]
    result = values[0]
    for value in values[1:]:
        result = pair(result, value)
    return result


class Call:
    """One call: the same choices on every rank."""

    def __init__(self, seed: int, size: int, rank: int) -> None:
        choose = random.Random(seed)
        self.seed, self.size, self.rank = seed, size, rank
        self.verb = choose.choice(VERBS)
        self.dtype = choose.choice(TYPES)
        self.op = choose.choice(ops_of(self.dtype))
        self.count = choose.choice([0, 1, 2, 10, 1000, 6000, 70000])
        self.view = choose.choice(["plain", "plain", "offset", "strided", "transposed"])
        self.root = choose.randrange(size)
        self.is_async = choose.random() < 0.5
        self.splits = [[choose.randrange(4) for _ in range(size)] for _ in range(size)]

    def __repr__(self) -> str:
        return str(self.__dict__)

    def input(self, rank: int, count: int | None = None) -> torch.Tensor:
        return data(self.seed, rank, self.count if count is None else count, self.dtype)

    def inputs(self, count: int | None = None) -> list[torch.Tensor]:
        return [self.input(rank, count) for rank in range(self.size)]


def run(call: Call, group: dist.ProcessGroup, kind: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Make the call; pairs of what the tensors are and what they have to be."""
    checks: list[Callable[[], None]] = []

    def view(values: torch.Tensor) -> torch.Tensor:
        tensor, check = as_view(values, kind)
        checks.append(check)
        return tensor

    def empty(count: int = call.count) -> torch.Tensor:
        return view(torch.zeros(count, dtype=call.dtype))

    work, pairs = call.verb(call, group, view, empty)
    if call.is_async:
        for each in work if isinstance(work, list) else [work]:
            each.wait()
    for check in checks:
        check()
    return [(got.reshape(-1), wanted.reshape(-1)) for got, wanted in pairs]


def all_reduce(c: Call, group: Any, view: Any, empty: Any) -> Any:
    tensor = view(c.input(c.rank))
    work = dist.all_reduce(tensor, c.op, group, c.is_async)
    return work, [(tensor, fold(c.op, c.inputs()))]


def reduce(c: Call, group: Any, view: Any, empty: Any) -> Any:
    tensor = view(c.input(c.rank))
    work = dist.reduce(tensor, c.root, c.op, group, c.is_async)
    return work, [(tensor, fold(c.op, c.inputs()))] if c.rank == c.root else []


def broadcast(c: Call, group: Any, view: Any, empty: Any) -> Any:
    tensor = view(c.input(c.rank))
    return dist.broadcast(tensor, c.root, group, c.is_async), [(tensor, c.input(c.root))]


def all_gather(c: Call, group: Any, view: Any, empty: Any) -> Any:
    outputs = [empty() for _ in range(c.size)]
    work = dist.all_gather(outputs, view(c.input(c.rank)), group, c.is_async)
    return work, list(zip(outputs, c.inputs(), strict=True))


def all_gather_single(c: Call, group: Any, view: Any, empty: Any) -> Any:
    output = empty(c.count * c.size)
    work = dist.all_gather_into_tensor(output, view(c.input(c.rank)), group, c.is_async)
    return work, [(output, torch.cat(c.inputs()))]


def gather(c: Call, group: Any, view: Any, empty: Any) -> Any:
    outputs = [empty() for _ in range(c.size)] if c.rank == c.root else None
    work = dist.gather(view(c.input(c.rank)), outputs, c.root, group, c.is_async)
    return work, list(zip(outputs, c.inputs(), strict=True)) if outputs is not None else []


def scatter(c: Call, group: Any, view: Any, empty: Any) -> Any:
    output = empty()
    inputs = [view(part) for part in c.inputs()] if c.rank == c.root else None
    return dist.scatter(output, inputs, c.root, group, c.is_async), [(output, c.input(c.rank))]


def _parts(c: Call, rank: int) -> list[torch.Tensor]:
    return list(c.input(rank, c.count * c.size).split(c.count)) if c.count else [c.input(rank)] * c.size


def reduce_scatter(c: Call, group: Any, view: Any, empty: Any) -> Any:
    output = empty()
    work = dist.reduce_scatter(output, [view(part) for part in _parts(c, c.rank)], c.op, group, c.is_async)
    return work, [(output, fold(c.op, [_parts(c, rank)[c.rank] for rank in range(c.size)]))]


def reduce_scatter_single(c: Call, group: Any, view: Any, empty: Any) -> Any:
    output = empty()
    work = dist.reduce_scatter_tensor(output, view(torch.cat(_parts(c, c.rank))), c.op, group, c.is_async)
    return work, [(output, fold(c.op, [_parts(c, rank)[c.rank] for rank in range(c.size)]))]


def all_to_all(c: Call, group: Any, view: Any, empty: Any) -> Any:
    outputs = [empty() for _ in range(c.size)]
    work = dist.all_to_all(outputs, [view(part) for part in _parts(c, c.rank)], group, c.is_async)
    return work, [(outputs[rank], _parts(c, rank)[c.rank]) for rank in range(c.size)]


def all_to_all_single(c: Call, group: Any, view: Any, empty: Any) -> Any:
    sent = c.splits[c.rank]
    received = [splits[c.rank] for splits in c.splits]
    output = torch.zeros(sum(received), dtype=c.dtype)
    work = dist.all_to_all_single(output, c.input(c.rank, sum(sent)), received, sent, group, c.is_async)
    wanted = [c.input(rank, sum(c.splits[rank])).split(c.splits[rank])[c.rank] for rank in range(c.size)]
    return work, [(output, torch.cat(wanted))]


def exchange(c: Call, group: Any, view: Any, empty: Any) -> Any:
    """Everybody sends to everybody."""
    others = [rank for rank in range(c.size) if rank != c.rank]
    outputs = {rank: empty() for rank in others}
    ops = [dist.P2POp(dist.isend, view(c.input(c.rank)), rank, group, tag=c.rank) for rank in others]
    ops += [dist.P2POp(dist.irecv, outputs[rank], rank, group, tag=rank) for rank in others]
    c.is_async = True
    works = dist.batch_isend_irecv(ops) if ops else []
    return works, [(outputs[rank], c.input(rank)) for rank in others]


VERBS: list[Any] = [
    all_reduce,
    reduce,
    broadcast,
    all_gather,
    all_gather_single,
    gather,
    scatter,
    reduce_scatter,
    reduce_scatter_single,
    all_to_all,
    all_to_all_single,
    exchange,
]


@pytest.mark.parametrize("part", range(5))
def test_calls_give_what_the_model_and_gloo_give(groups: Groups, part: int) -> None:
    own, gloo = groups
    compared = 0
    for seed in range(part * ROUNDS // 5, (part + 1) * ROUNDS // 5):
        call = Call(seed, dist.get_world_size(), dist.get_rank())
        for got, wanted in run(call, own, call.view):
            assert torch.equal(got, wanted), (call, got, wanted)
        if call.count == 0:
            continue  # Gloo refuses some of them, on some ranks
        try:
            theirs = run(call, gloo, "plain")
        except (RuntimeError, ValueError, TypeError):
            continue  # a type or an operation that Gloo does not have, on any rank
        compared += 1
        for got, wanted in theirs:
            assert torch.equal(got, wanted), (call, got, wanted)
    assert compared > ROUNDS // 10
