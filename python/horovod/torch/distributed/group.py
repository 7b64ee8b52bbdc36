"""A process group of torch.distributed whose collectives Horovod's engine runs.

Operations have no names there: the n-th of a group is the n-th on every rank, and that is its name here.

Thread rule: any thread; threads that share a group have to agree on the order among the ranks, as with any backend.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    Backend,
    BarrierOptions,
    BroadcastOptions,
    ProcessGroup,
    ReduceScatterOptions,
    Work,
)

from horovod._generic.handles import handles
from horovod._native.abi import Kind
from horovod._native.library import checked, library
from horovod.torch.distributed import meeting, memory, point_to_point, requests
from horovod.torch.distributed.barrier import MonitoredBarrier
from horovod.torch.distributed.sets import Sets
from horovod.torch.distributed.work import AllWork, BaseWork, DoneWork, EngineWork

_DEFAULT_TIMEOUT = timedelta(minutes=30)


class _World:
    """What the groups of one world of the engine share."""

    def __init__(self, number: int = -1, ranks: Sequence[int] = ()) -> None:
        self.number = number  # as handles counts worlds
        self.ranks = list(ranks)  # of the default group, in the engine's world
        self.groups: dict[tuple[str, tuple[int, ...]], int] = {}  # how often a group of this name and ranks was made
        self.sets = Sets(number)


_world = _World()


def create(options: Any, backend_options: Any = None) -> HorovodGroup:
    """What torch.distributed calls on every member of a new group."""
    global _world
    rank, size, store = options.group_rank, options.group_size, options.store
    members = list(options.global_ranks_in_group)
    if members != sorted(members):
        raise ValueError(f'the backend "hvd" keeps the order of ranks: a group cannot have the order {members}')
    if not members or handles.world != _world.number:
        if members and len(members) != checked(library().hvd_size()):
            raise ValueError('a smaller group of the backend "hvd" needs a default group of that backend')
        ranks = meeting.join_world(store, rank, size)
        if handles.world != _world.number:
            _world = _World(handles.world, ranks)
    else:
        ranks = [_world.ranks[each] for each in members]
    name = str(options.group_id)
    times = _world.groups[name, tuple(ranks)] = _world.groups.get((name, tuple(ranks)), 0) + 1
    # Groups of the same ranks share a process set, so the names of their operations must differ.
    scope = "d" + hashlib.blake2b(f"{name} {times} {ranks}".encode(), digest_size=8).hexdigest()
    timeout = getattr(backend_options, "_timeout", None) or options.timeout or _DEFAULT_TIMEOUT
    return HorovodGroup(rank, ranks, scope, name, timeout, store, members, _world.sets)


class HorovodGroup(ProcessGroup):
    """All verbs. The names that PyTorch 2.13 gave some of them, and the older ones, are at the end."""

    def __init__(
        self,
        rank: int,
        ranks: Sequence[int],
        scope: str,
        name: str,
        timeout: timedelta,
        store: Any,
        members: Sequence[int],
        sets: Sets,
    ) -> None:
        super().__init__(rank, len(ranks))
        self._rank, self._size = rank, len(ranks)
        self._ranks = list(ranks)
        self._sets: Sets | None = sets
        self._set = sets.acquire(self._ranks, timeout.total_seconds())
        self._scope = scope
        self._name, self._description = name, "undefined"
        self._seconds = timeout.total_seconds()
        self._store = store
        self._numbers = itertools.count(1)
        self._submitted = 0
        self._members = list(members) or list(range(len(ranks)))
        self._transfers = point_to_point.Transfers(scope, self._ranks)
        self._barriers = MonitoredBarrier(self)

    # ---- what torch.distributed asks of a group

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def name(self) -> str:
        return "hvd"

    def getBackendName(self) -> str:  # noqa: N802 - the name that PyTorch calls
        return "hvd"

    _get_backend_name = getBackendName

    def getGroupName(self) -> str:  # noqa: N802 - the name that PyTorch calls
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802 - the name that PyTorch calls
        self._name = name

    _set_group_name = setGroupName

    def getGroupDesc(self) -> str:  # noqa: N802 - the name that PyTorch calls
        return self._description

    def setGroupDesc(self, description: str) -> None:  # noqa: N802 - the name that PyTorch calls
        self._description = description

    _set_group_desc = setGroupDesc

    @property
    def group_name(self) -> str:
        return self._name

    @property
    def group_desc(self) -> str:
        return self._description

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    @property
    def options(self) -> Any:
        options = Backend.Options("hvd", timedelta(seconds=self._seconds))
        options.global_ranks_in_group, options.group_name = self._members, self._name
        return options

    @property
    def _timeout(self) -> timedelta:
        return timedelta(seconds=self._seconds)

    @property
    def supports_splitting(self) -> bool:
        return False

    @property
    def supports_coalescing(self) -> bool:
        return False

    @property
    def supports_time_estimate(self) -> bool:
        return False

    def _get_backend(self, device: Any) -> HorovodGroup:
        return self

    def get_group_store(self) -> Any:
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        self._seconds = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def _get_sequence_number_for_group(self) -> int:
        return self._submitted

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _has_hooks(self) -> bool:
        return False

    def _wait_for_pending_works(self) -> None:
        pass

    def _verify_work_timeout(self, work: BaseWork, timeout: timedelta) -> bool:
        return bool(work._seconds == timeout.total_seconds())

    def shutdown(self) -> None:
        """End the group. The engine goes on: other groups use it, and ranks that are not here yet."""
        sets, self._sets = self._sets, None
        if sets is not None:
            sets.release(self._ranks)

    abort = shutdown

    # ---- submitting

    def seconds_of(self, options: Any) -> float:
        """The time limit of one call."""
        seconds = options.timeout.total_seconds() if options is not None else -1.0
        return float(seconds) if seconds > 0 else self._seconds

    def _request(self, kind: Kind, source: Any, target: Any, **details: Any) -> Any:
        dtype, shape, out_shape = details.pop("dtype"), details.pop("shape"), details.pop("out_shape", None)
        self._submitted = number = next(self._numbers)
        return requests.make(
            kind,
            f"{self._scope}.{number}",
            0 if source is None else source.data_ptr(),
            0 if target is None else target.data_ptr(),
            dtype,
            shape,
            shape if out_shape is None else out_shape,
            self._set,
            **details,
        )

    def _submit(
        self,
        verb: str,
        asked: Sequence[Any],
        held: Any,
        outputs: Any,
        options: Any,
        finish: Any = None,
        source: int = -1,
    ) -> Work:
        handle = requests.submit(asked, options is not None and not options.asyncOp)
        return EngineWork(verb, handle, (asked, held), outputs, self.seconds_of(options), finish, source)

    # ---- reductions

    def _reduce_request(
        self, kind: Kind, op: Any, source: torch.Tensor, target: torch.Tensor | None, root: int = -1
    ) -> tuple[Any, Any]:
        """The request, and what must stay alive for it."""
        dtype = requests.DTYPES.get(source.dtype)
        if dtype is None:
            raise ValueError(f'the backend "hvd" cannot reduce tensors of {source.dtype}')
        code, factor, factors = requests.reduction_of(op)
        if factors is not None:
            source = source * factors.to(source.dtype)
        count = source.numel()
        shape = (self._size, count // self._size) if kind == Kind.REDUCESCATTER else (count,)
        request = self._request(
            kind, source, target, dtype=dtype, shape=shape, root=root, reduce_op=code, prescale=factor
        )
        return request, (source, target)

    def allreduce(self, tensors: Any, options: Any = None, timeout: Any = None) -> Work:
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        if not hasattr(options, "asyncOp"):
            op, options = options, AllreduceOptions()
            if op is not None:
                options.reduceOp = op
        return self._allreduce("all_reduce", tensors, options)

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], options: Any = None) -> Work:
        return self._allreduce("all_reduce_coalesced", tensors, options or AllreduceOptions())

    def _allreduce(self, verb: str, tensors: Sequence[torch.Tensor], options: Any) -> Work:
        if tensors and tensors[0].layout == torch.sparse_coo:
            return memory.allreduce_sparse(self, tensors[0], options)
        if self._set < 0:
            return _reduced_alone(tensors, options.reduceOp)
        asked, held, finishes = [], [], []
        for tensor in tensors:
            flat, finish = memory.to_change(tensor)
            request, kept = self._reduce_request(Kind.ALLREDUCE, options.reduceOp, flat, flat)
            asked.append(request)
            held.append((tensor, kept))
            if finish is not None:
                finishes.append(finish)
        if not asked:
            return DoneWork(tensors)
        return self._submit(verb, asked, held, tensors, options, memory.all_of(finishes))

    def reduce(self, tensors: Sequence[torch.Tensor], options: Any) -> Work:
        (tensor,) = tensors
        if self._set < 0:
            return _reduced_alone(tensors, options.reduceOp)
        root = self._ranks[options.rootRank]
        is_root = options.rootRank == self._rank
        flat, finish = memory.to_change(tensor)
        request, held = self._reduce_request(Kind.REDUCE, options.reduceOp, flat, flat if is_root else None, root)
        return self._submit("reduce", [request], (tensor, held), tensors, options, finish if is_root else None)

    def reduce_scatter(self, outputs: Sequence[torch.Tensor], inputs: Sequence[Any], options: Any) -> Work:
        works = []
        for output, parts in zip(outputs, inputs, strict=True):
            if any(part.numel() != output.numel() for part in parts):
                raise ValueError("reduce_scatter: all tensors must have the size of the output")
            works.append(self.reduce_scatter_single(output, memory.as_one(parts), options))
        return works[0] if len(works) == 1 else AllWork(works)

    def reduce_scatter_single(self, output: torch.Tensor, source: torch.Tensor, options: Any = None) -> Work:
        options = options or ReduceScatterOptions()
        request, held, finish = self._reduce_scatter(output, source, options)
        if request is None:
            return DoneWork([output])
        return self._submit("reduce_scatter", [request], held, [output], options, finish)

    def _reduce_scatter(self, output: torch.Tensor, source: torch.Tensor, options: Any) -> tuple[Any, Any, Any]:
        if source.numel() != output.numel() * self._size:
            raise ValueError("reduce_scatter: input tensor must be the same size as output size times world size")
        if source.dtype != output.dtype:
            raise ValueError("reduce_scatter: input and output must have the same type")
        if self._set < 0:
            memory.copy(output, source.reshape(output.shape))
            _reduced_alone([output], options.reduceOp)
            return None, None, None
        source = memory.to_read(source)
        if not requests.is_sum(options.reduceOp):
            return self._reduce_and_cut(output, source, options)
        flat, finish = memory.to_fill(output)
        request, held = self._reduce_request(Kind.REDUCESCATTER, options.reduceOp, source, flat)
        return request, (output, source, held), finish

    def _reduce_and_cut(self, output: torch.Tensor, source: torch.Tensor, options: Any) -> tuple[Any, Any, Any]:
        """A reduce_scatter by an allreduce: that of the engine, as Horovod's, only sums and averages."""
        whole = source.detach().reshape(-1).clone()
        own = whole[self._rank * output.numel() : (self._rank + 1) * output.numel()]
        request, held = self._reduce_request(Kind.ALLREDUCE, options.reduceOp, whole, whole)
        return request, (output, held), lambda *_: memory.copy(output, own.view(output.shape))

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], options: Any = None
    ) -> Work:
        return _together([self.reduce_scatter_single(out, source, options) for out, source in _pairs(outputs, inputs)])

    # ---- moving

    def broadcast(self, tensors: Any, options: Any, timeout: Any = None) -> Work:
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        if isinstance(options, int):
            root, options = options, BroadcastOptions()
            options.rootRank = root
        (tensor,) = tensors
        if self._set < 0:
            return DoneWork(tensors)
        if tensor.layout == torch.sparse_coo:
            raise RuntimeError("broadcast of sparse tensors is not supported")
        is_root = options.rootRank == self._rank
        flat, finish = memory.to_change(tensor) if is_root else memory.to_fill(tensor)
        dtype, count = requests.in_bytes(flat.dtype, flat.numel())
        request = self._request(
            Kind.BROADCAST, flat, flat, dtype=dtype, shape=(count,), root=self._ranks[options.rootRank]
        )
        finish = None if is_root else finish
        return self._submit("broadcast", [request], (tensor, flat), tensors, options, finish)

    def _gather_request(
        self, kind: Kind, source: torch.Tensor, target: torch.Tensor | None, total: int, root: int = -1
    ) -> Any:
        dtype, count = requests.in_bytes(source.dtype, source.numel())
        _, room = requests.in_bytes(source.dtype, total)
        return self._request(kind, source, target, dtype=dtype, shape=(count,), out_shape=(room,), root=root)

    def allgather(self, outputs: Any, inputs: Any, options: Any = None) -> Work:
        options = options or AllgatherOptions()
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        works = []
        for parts, source in _pairs(outputs, inputs):
            if len(parts) != self._size:
                raise ValueError(f"all_gather: {len(parts)} tensors for the results of {self._size} ranks")
            whole, spread = memory.to_fill_all(parts, source)
            works.append(self._allgather(whole, source, options, spread, parts))
        return works[0] if len(works) == 1 else AllWork(works)

    def allgather_coalesced(self, outputs: Any, inputs: Any, options: Any = None) -> Work:
        return self.allgather(outputs, inputs, options)

    def all_gather_single(self, output: torch.Tensor, source: torch.Tensor, options: Any = None) -> Work:
        if source.numel() * self._size != output.numel():
            raise ValueError("all_gather: output tensor size must be equal to world_size times input tensor size")
        if source.dtype != output.dtype:
            raise TypeError("output tensor must have the same type as input tensor")
        flat, finish = memory.to_fill(output)
        return self._allgather(flat, source, options or AllgatherOptions(), finish, [output])

    def _allgather(self, whole: torch.Tensor, source: torch.Tensor, options: Any, finish: Any, outputs: Any) -> Work:
        if self._set < 0:
            whole.view(-1).copy_(source.reshape(-1))
            if finish is not None:
                finish()
            return DoneWork(outputs)
        source = memory.to_read(source)
        request = self._gather_request(Kind.ALLGATHER, source, whole, whole.numel())
        finish = memory.checked("all_gather", whole, finish)
        return self._submit("all_gather", [request], (source, whole), outputs, options, finish)

    def all_gather_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], options: Any = None
    ) -> Work:
        return _together([self.all_gather_single(out, source, options) for out, source in _pairs(outputs, inputs)])

    def gather(self, outputs: Any, inputs: Sequence[torch.Tensor], options: Any) -> Work:
        (source,) = inputs
        is_root = options.rootRank == self._rank
        parts = outputs[0] if is_root else []
        if is_root and len(parts) != self._size:
            raise ValueError(f"gather: {len(parts)} tensors for the results of {self._size} ranks")
        whole, spread = memory.to_fill_all(parts, source) if is_root else (None, None)
        if self._set < 0:
            parts[0].copy_(source)
            return DoneWork(parts)
        source = memory.to_read(source)
        root = self._ranks[options.rootRank]
        total = 0 if whole is None else whole.numel()
        request = self._gather_request(Kind.GATHER, source, whole, total, root)
        finish = None if whole is None else memory.checked("gather", whole, spread)
        return self._submit("gather", [request], (source, whole), parts, options, finish)

    def scatter(self, outputs: Sequence[torch.Tensor], inputs: Any, options: Any) -> Work:
        (output,) = outputs
        is_root = options.rootRank == self._rank
        whole = None
        if is_root:
            parts = inputs[0]
            if len(parts) != self._size or any(part.numel() != output.numel() for part in parts):
                raise ValueError("scatter: the root needs a tensor of the size of the output for each rank")
            whole = memory.as_one(parts)
        flat, finish = memory.to_fill(output)
        if self._set < 0:
            output.copy_(inputs[0][0])
            return DoneWork(outputs)
        dtype, count = requests.in_bytes(flat.dtype, flat.numel())
        shape = (self._size, count)
        request = self._request(
            Kind.SCATTER, whole, flat, dtype=dtype, shape=shape, out_shape=(count,), root=self._ranks[options.rootRank]
        )
        return self._submit("scatter", [request], (whole, flat), outputs, options, finish)

    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], options: Any = None) -> Work:
        options = options or AllToAllOptions()
        source = memory.as_one(inputs)
        whole, spread = memory.to_fill_all(outputs, source)
        sizes = [part.numel() for part in inputs]
        return self._alltoall(whole, source, sizes, options, spread, outputs)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        source: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        options: Any = None,
    ) -> Work:
        row = source[0].numel() if source.dim() > 0 and len(source) > 0 else 1
        for tensor, splits in ((source, input_splits), (output, output_splits)):
            rows = len(tensor) if tensor.dim() > 0 else 1
            if splits and (len(splits) != self._size or sum(splits) != rows):
                raise ValueError(f"all_to_all_single: splits {list(splits)} do not divide {rows} rows")
            if not splits and rows % self._size != 0:
                raise ValueError("all_to_all_single: tensor's dim 0 does not divide equally across group size")
        if source.dtype != output.dtype:
            raise ValueError("all_to_all_single: tensors are not equal in data type")
        sizes = [each * row for each in input_splits] or [source.numel() // self._size] * self._size
        flat, finish = memory.to_fill(output)
        return self._alltoall(flat, source, sizes, options or AllToAllOptions(), finish, [output])

    def _alltoall(
        self, whole: torch.Tensor, source: torch.Tensor, sizes: list[int], options: Any, finish: Any, outputs: Any
    ) -> Work:
        if self._set < 0:
            whole.view(-1).copy_(source.reshape(-1))
            if finish is not None:
                finish()
            return DoneWork(outputs)
        source = memory.to_read(source)
        dtype, count = requests.in_bytes(source.dtype, source.numel())
        width = count // source.numel() if source.numel() else 1
        _, room = requests.in_bytes(source.dtype, whole.numel())
        splits = [size * width for size in sizes]
        request = self._request(
            Kind.ALLTOALL, source, whole, dtype=dtype, shape=(count,), out_shape=(room,), splits=splits
        )
        finish = memory.checked("all_to_all", whole, finish)
        return self._submit("all_to_all", [request], (source, whole), outputs, options, finish)

    # ---- without tensors

    def barrier(self, options: Any = None, **named: Any) -> Work:
        options = options or named.get("opts") or BarrierOptions()
        if self._set < 0:
            return DoneWork([])
        token = torch.zeros(1, dtype=torch.uint8)
        request, held = self._reduce_request(Kind.ALLREDUCE, torch.distributed.ReduceOp.MAX, token, token)
        return self._submit("barrier", [request], held, [], options)

    def monitored_barrier_of_horovod(self, timeout: timedelta | None, wait_all_ranks: bool) -> None:
        seconds = self._seconds if timeout is None else timeout.total_seconds()
        self._barriers.enter(seconds, wait_all_ranks)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        self.monitored_barrier_of_horovod(timeout, wait_all_ranks)

    # ---- point to point

    def send(self, tensors: Sequence[torch.Tensor], target: int, tag: int = 0) -> Work:
        (tensor,) = tensors
        return self._transfers.send(tensor, target, tag, self._seconds)

    def recv(self, tensors: Sequence[torch.Tensor], source: int, tag: int = 0) -> Work:
        (tensor,) = tensors
        return self._transfers.receive(tensor, source, tag, self._seconds)

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int = 0) -> Work:
        (tensor,) = tensors
        return self._transfers.receive_from_anybody(tensor, tag, self._seconds)

    # ---- what DeviceMesh and the manager of coalesced operations ask for

    def _start_coalescing(self, device: Any = None) -> None:
        pass

    def _end_coalescing(self, device: Any = None) -> Work:
        return DoneWork([])

    # ---- other names

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single


def _pairs(outputs: Any, inputs: Any) -> Any:
    return zip(outputs, inputs, strict=True)


def _together(works: list[Any]) -> Work:
    return works[0] if len(works) == 1 else AllWork(works)


def _reduced_alone(tensors: Sequence[torch.Tensor], op: Any) -> Work:
    """A reduction in a group of one: nothing but the factor of PREMUL_SUM is left of it."""
    _, factor, factors = requests.reduction_of(op)
    if factor != 1.0 or factors is not None:
        for tensor in tensors:
            tensor.detach().mul_(factor if factors is None else factors)
    return DoneWork(tensors)


def _keep_out_of_graphs() -> None:
    """torch.compile must not trace into these methods, which compiled code calls from C++."""
    try:
        from torch._C._dynamo.eval_frame import (
            _FrameAction,
            _FrameExecStrategy,
            set_code_exec_strategy,
        )
    except ImportError:  # an older PyTorch
        return
    skip = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
    for each in [*vars(HorovodGroup).values(), *vars(BaseWork).values(), *vars(EngineWork).values()]:
        code = getattr(each, "__code__", None)
        if code is not None:
            set_code_exec_strategy(code, skip)


_keep_out_of_graphs()
