"""An optimizer whose state is divided among the ranks (ZeRO stage 1).

A step: gradients are reduced and scattered, so that every rank has the result for its piece of the parameters; an
inner optimizer of the given class, which holds the state of that piece alone, steps; the pieces are gathered. The bytes
on the network equal those of an allreduce, and the memory for the state is divided by the number of ranks.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch

from horovod._generic.objects import broadcast_object
from horovod._generic.reduce_ops import Average, Max, Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import mpi_ops
from horovod.torch.grad_scaler import unscaling_code
from horovod.torch.optimizer import shards
from horovod.torch.optimizer.names import name_parameters
from horovod.torch.optimizer.resharding import Has, Holding, Place, Verdict, exchange, gather_entries, judge
from horovod.torch.optimizer.shards import ShardedBucket, divide

# These treat every element of a parameter separately, so that pieces give the same result as the whole.
_ELEMENTWISE = {
    "ASGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
}
# State that belongs to a parameter as a whole, in these.
_WHOLE = {"eta", "mu", "mu_product", "step"}
_UNSCALING = unscaling_code()


class ShardedOptimizer(torch.optim.Optimizer):
    """Steps like the given optimizer with the gradients of all ranks, and keeps only a part of its state on each rank.

    Parameters must be the same on all ranks at the start. `step()` is collective: all ranks of the set call it. A
    parameter without a gradient counts as one with zeros, and sparse gradients are refused. Gradients stay local: to
    clip their norm use `clip_grad_norm_` of this class.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
        op: int = Average,
        process_set: ProcessSet = global_process_set,
        elementwise: bool | None = None,
    ) -> None:
        """`elementwise=True` accepts a class that is not torch's: its step must treat every element separately."""
        _check_elementwise(optimizer, elementwise)
        if op not in (Average, Sum):
            raise ValueError("ShardedOptimizer reduces with hvd.Average or hvd.Sum")
        name_parameters(optimizer, named_parameters)  # only to validate the names: parameters are not sent one by one
        self._class = type(optimizer)
        self._options = optimizer.defaults
        self._op = op
        self.process_set = process_set
        self._loaded: dict[str, Any] | None = None  # until the next step: the world may change before
        self._steps = 0  # of the inner optimizer, since a state was loaded
        self._is_torn = False  # a step has changed the state, and not all of the parameters
        self._settled_in: Place | None = None  # where all ranks last agreed on the owner of each piece
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self._divide()

    def _divide(self) -> None:
        """Cut the parameters for the world as it is, and make an inner optimizer without state."""
        self._place = Place.now(self.process_set)
        self._reduced = False  # the shards have the gradients of this step
        wanted = [[each for each in group["params"] if each.requires_grad] for group in self.param_groups]
        self._divided = divide(wanted, self._place.rank, self._place.size, shards.BUCKET_BYTES)
        accepted = inspect.signature(self._class.__init__).parameters
        options = {name: value for name, value in self._options.items() if name in accepted}
        groups = [
            {**self._options_of(group), "params": [bucket.shard for bucket in buckets]}
            for group, buckets in zip(self.param_groups, self._divided, strict=True)
        ]
        self._inner: torch.optim.Optimizer = self._class(groups, **options)

    @staticmethod
    def _options_of(group: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in group.items() if name not in ("params", "param_names")}

    @property
    def _buckets(self) -> list[ShardedBucket]:
        return [bucket for buckets in self._divided for bucket in buckets]

    @property
    def _size(self) -> int:
        return self._place.size

    # ---- the world

    def _settle(self) -> None:
        """Have the piece of the state that belongs to this rank of this world. Collective once per world."""
        place = Place.now(self.process_set)
        if place == self._settled_in:
            return
        holdings = exchange(self._holding(), place, self.process_set)
        verdict = judge(holdings)
        if verdict is Verdict.MOVE:
            self._move(holdings)
        elif verdict is Verdict.CUT:
            self._divide()
            if self._loaded is not None:
                self._load_inner(self._loaded)
        self._reduced = False
        self._place = self._settled_in = place

    def _holding(self) -> Holding:
        if self._is_torn:
            has = Has.TORN
        elif self._loaded is not None and self._loaded["state"]:
            has = Has.ALL
        else:
            has = Has.PIECE if self._inner.state and self._loaded is None else Has.NOTHING
        return Holding(has, self._place.rank, self._place.size, self._steps)

    def _move(self, holdings: list[Holding]) -> None:
        """Take over the pieces of the state that belong to this rank now, from their previous owners."""
        old_buckets, old_inner = self._buckets, self._inner
        has_piece = self._holding().has is Has.PIECE
        self._divide()
        packed = self._inner.state_dict()
        for number, (old, new) in enumerate(zip(old_buckets, self._buckets, strict=True)):
            mine = old_inner.state.get(old.shard, {}) if has_piece else None
            entries = gather_entries(mine, holdings, self.process_set, f"{new.name}.move")
            packed["state"][number] = {
                key: new.cut(torch.cat(parts)) if _is_piece(key, parts[0]) else parts[0]
                for key, parts in entries.items()
            }
        packed["state"] = {number: state for number, state in packed["state"].items() if state}
        self._inner.load_state_dict(packed)
        self._loaded, self._steps = None, next(each.steps for each in holdings if each.has is Has.PIECE)

    # ---- stepping

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step with the gradients of all ranks. Collective."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._settle()
        self._reduce()
        for group, inner in zip(self.param_groups, self._inner.param_groups, strict=True):
            inner.update(self._options_of(group))
        for bucket in self._buckets:
            bucket.load_shard()
        self._is_torn, self._loaded = True, None
        self._inner.step()
        self._gather()
        self._steps += 1
        self._is_torn = False
        self._forget_shards()
        return loss

    def _reduce(self) -> None:
        """Give every shard the reduced gradient of its piece."""
        if self._reduced:
            return
        pending: list[tuple[ShardedBucket, int]] = []
        for bucket in self._buckets:
            grads = [parameter.grad for parameter in bucket.parameters]
            if any(grad is not None and grad.layout != torch.strided for grad in grads):
                raise ValueError("ShardedOptimizer does not take sparse gradients; use DistributedOptimizer for them")
            flat = bucket.flatten(grads)
            if self._size == 1:
                bucket.shard.grad = flat
            else:
                handle = mpi_ops.reducescatter_async(flat, bucket.name, self._op, self.process_set)
                pending.append((bucket, handle))
        for bucket, handle in pending:
            bucket.shard.grad = mpi_ops.synchronize(handle)
        self._reduced = True

    def _gather(self) -> None:
        """Write the pieces of all ranks into the parameters."""
        gathered = [(bucket, self._start_gathering(bucket, bucket.shard.detach(), "")) for bucket in self._buckets]
        with torch.no_grad():
            for bucket, wait in gathered:
                for parameter, values in zip(bucket.parameters, bucket.unflatten(wait()), strict=True):
                    parameter.copy_(values)

    def _start_gathering(self, bucket: ShardedBucket, piece: torch.Tensor, what: str) -> Callable[[], torch.Tensor]:
        if self._size == 1:
            return lambda: piece
        handle = mpi_ops.allgather_async(piece.contiguous(), bucket.name + what, self.process_set)

        def wait() -> torch.Tensor:
            whole: torch.Tensor = mpi_ops.synchronize(handle)
            return whole

        return wait

    def _forget_shards(self) -> None:
        for bucket in self._buckets:
            bucket.shard.grad = None
        self._reduced = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget or zero the gradients."""
        self._forget_shards()
        super().zero_grad(set_to_none)

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """Reduce the gradients, scale them down to this 2-norm if theirs is larger, and return what theirs was.

        Collective. After it `step()` does not reduce again; `zero_grad()` or `step()` end that.
        """
        self._settle()
        self._reduce()
        grads = [bucket.shard.grad for bucket in self._buckets if bucket.shard.grad is not None]
        square = torch.stack([grad.float().square().sum() for grad in grads]).sum()
        if self._size > 1:
            square = mpi_ops.allreduce(square, op=Sum, name="sharded.norm", process_set=self.process_set)
        norm = square.sqrt()
        for grad in grads:
            grad.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0).to(grad.dtype))
        return norm

    # A GradScaler looks at the local gradients for infinities; all ranks must come to the same conclusion.
    def _get_param_groups(self) -> list[dict[str, Any]]:
        groups: list[dict[str, Any]] = self.__dict__["param_groups"]
        if sys._getframe(1).f_code is _UNSCALING and Place.now(self.process_set).size > 1:
            grads = [each.grad for group in groups for each in group["params"] if each.grad is not None]
            finite = all(bool(torch.isfinite(grad).all()) for grad in grads)
            flag = torch.tensor([0.0 if finite else 1.0])
            if mpi_ops.allreduce(flag, op=Max, name="sharded.overflow", process_set=self.process_set) and grads:
                grads[0].fill_(float("inf"))
        return groups

    def _set_param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.__dict__["param_groups"] = groups

    param_groups = property(_get_param_groups, _set_param_groups)

    # ---- state

    def state_dict(self) -> dict[str, Any]:
        """The whole state, in the format of the plain optimizer.

        Collective, all ranks of the set call it, unless a state was loaded since the last step or there is none yet.
        """
        packed = super().state_dict()
        if self._loaded is not None:
            return {**packed, "state": dict(self._loaded["state"])}
        if not self._inner.state:
            return packed
        self._settle()
        numbers = self._numbers()
        for bucket in self._buckets:
            pieces = self._inner.state.get(bucket.shard, {})
            for key in sorted(pieces):
                value = pieces[key]
                if not _is_piece(key, value):
                    for parameter in bucket.parameters:
                        state = packed["state"].setdefault(numbers[parameter], {})
                        state[key] = value.clone() if isinstance(value, torch.Tensor) else value
                    continue
                whole = self._start_gathering(bucket, value, f".{key}")()
                for parameter, part in zip(bucket.parameters, bucket.unflatten(whole), strict=True):
                    packed["state"].setdefault(numbers[parameter], {})[key] = part.clone()
        return packed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state in the format of the plain optimizer, from a world of any size. Every rank passes the whole.

        Where the world has changed since the last step, each rank takes its piece at the next one.
        """
        super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})
        self._load_inner(state_dict)
        self._loaded, self._steps, self._is_torn = state_dict, 0, False
        self._forget_shards()

    def broadcast_state(self, root_rank: int) -> None:
        """Take over the options of `root_rank`, and its state if it has loaded one or has none yet. Collective.

        Once it has stepped, its state is divided among all ranks, which keep their pieces.
        """
        is_root = mpi_ops.rank() == root_rank
        mine = None
        if is_root:
            whole = self._loaded if self._loaded is not None or self._inner.state else {"state": {}}
            mine = whole, [self._options_of(group) for group in self.param_groups]
        whole, options = broadcast_object(mine, root_rank, "sharded.state")
        if is_root:
            return
        if whole is not None:
            self.load_state_dict({**whole, "param_groups": super().state_dict()["param_groups"]})
        for group, roots in zip(self.param_groups, options, strict=True):
            group.update(roots)

    def _load_inner(self, state_dict: dict[str, Any]) -> None:
        numbers = self._numbers()
        packed = self._inner.state_dict()
        packed["state"] = {}
        for number, bucket in enumerate(self._buckets):
            states = [state_dict["state"].get(numbers[parameter]) for parameter in bucket.parameters]
            if not any(states):
                continue
            if not all(states):
                raise ValueError("the state has entries for some parameters of a group and not for others")
            packed["state"][number] = {key: _cut(bucket, key, [each[key] for each in states]) for key in states[0]}
        self._inner.load_state_dict(packed)

    def _numbers(self) -> dict[torch.Tensor, int]:
        """The number by which the plain optimizer's state_dict calls each parameter."""
        everything = [each for group in self.param_groups for each in group["params"]]
        return {parameter: number for number, parameter in enumerate(everything)}


def _is_piece(key: str, value: object) -> bool:
    return key not in _WHOLE and isinstance(value, torch.Tensor)


def _cut(bucket: ShardedBucket, key: str, values: list[Any]) -> Any:
    """This rank's piece of one entry of the state, given that of every parameter in the bucket."""
    if _is_piece(key, values[0]):
        return bucket.mine(bucket.flatten(values)).clone()
    if any(value != values[0] for value in values):
        raise ValueError(
            f"the parameters of a group differ in the state's {key}, which is one for all of them in a divided state"
        )
    return values[0].clone() if isinstance(values[0], torch.Tensor) else values[0]


def _check_elementwise(optimizer: torch.optim.Optimizer, vouched: bool | None) -> None:
    name = type(optimizer).__name__
    if vouched is None:
        vouched = type(optimizer).__module__.startswith("torch.optim") and name in _ELEMENTWISE
    if not vouched:
        raise ValueError(
            f"ShardedOptimizer cannot divide the state of {name}: its step must treat every element of a parameter by "
            f"itself, as that of {', '.join(sorted(_ELEMENTWISE))} does. Use DistributedOptimizer, or pass "
            f"elementwise=True if {name} is like them"
        )
