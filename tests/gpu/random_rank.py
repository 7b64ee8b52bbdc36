"""One rank of a random GPU job (gpu_programs.py): every result is compared with the same operation on host memory."""

from __future__ import annotations

import random
from typing import Any

import device_array as gpu
import ml_dtypes
import numpy as np
from gpu_programs import Job, Step

import horovod.numpy as hvd
from horovod._native import operations
from horovod._native.abi import Kind

Array = np.ndarray[Any, Any]
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-6, "float64": 1e-14}


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


class Begun:
    """A step in flight: its memory on the GPU, its handles, and the values it was given."""

    def __init__(self, step: Step, rank: int, gpus: list[gpu.Device], process_set: int, seed: str) -> None:
        self.step = step
        self._rank = rank
        self._set = process_set
        self._chance = random.Random(f"{seed} {step.name} {rank}")
        self.device = gpus[step.gpu[rank]]
        self._stream = self.device.side_stream(step.stream[rank])
        self.given = [self._values(shape) for shape in self._shapes()]
        self._sources = [gpu.DeviceArray(each, self.device, stream=self._stream) for each in self.given]
        self._targets: list[gpu.DeviceArray | None] = [self._target(each) for each in self._sources]
        self._handles: list[int] = []

    def _shapes(self) -> list[tuple[int, ...]]:
        if self.step.kind == "fused":
            return [(count,) for count in self.step.sizes]
        return [(self.step.rows[self._rank], self.step.width)]

    def _values(self, shape: tuple[int, ...]) -> Array:
        """Small whole numbers: sums and products of them are exact in every type, in every order."""
        dtype = dtype_of(self.step.dtype)
        seed = [ord(letter) for letter in self.step.name] + [self._rank, self._chance.randrange(1 << 30)]
        low = 0 if dtype.kind in "ub" else -3
        return np.random.default_rng(seed).integers(low, 4, shape).astype(dtype)

    def _target(self, source: gpu.DeviceArray) -> gpu.DeviceArray | None:
        if self.step.kind in ("allgather", "alltoall", "reducescatter"):
            return None  # the engine allocates it
        if self.step.in_place:
            return source
        return gpu.DeviceArray(np.zeros_like(source.values), self.device, stream=self._stream)

    def submit(self) -> None:
        step, kind = self.step, Kind.ALLREDUCE if self.step.kind == "fused" else Kind[self.step.kind.upper()]
        options: dict[str, Any] = {"process_set": self._set}
        if kind in (Kind.ALLREDUCE, Kind.REDUCESCATTER):
            options |= {"reduce_op": int(getattr(hvd, step.op))}
            options |= {"prescale_factor": step.prescale, "postscale_factor": step.postscale}
        elif kind == Kind.BROADCAST:
            options |= {"root_rank": step.root}
        elif step.splits:
            options |= {"splits": step.splits[step.members.index(self._rank)]}
        requests = [
            operations.make_request(
                kind, f"{step.name}.{i}", source.view(), target.view() if target else None, **options
            )
            for i, (source, target) in enumerate(zip(self._sources, self._targets, strict=True))
        ]
        if step.is_group:
            self._handles = [operations.submit(requests, False)]
            return
        order = self._chance.sample(range(len(requests)), len(requests))
        handles = {i: operations.submit([requests[i]], False) for i in order}
        self._handles = [handles[i] for i in range(len(requests))]

    def finish(self) -> list[Array]:
        """The results, read from the GPU on a stream that has to wait for them, or on any stream after the end."""
        ending, reader = self.step.ending[self._rank], self.device.side_stream(self._chance.randrange(3))
        if ending == "stream" and self._targets[0] is not None:
            for handle in self._handles:
                operations.wait_on_stream(handle, reader.value or 0)
            results = self._read(reader)
            for handle in self._handles:
                operations.wait(handle)
        else:
            for handle in self._handles:
                while ending == "poll" and not operations.is_done(handle):
                    pass
                operations.wait(handle)
            results = self._read(reader)
        for handle in self._handles:
            operations.release(handle)
        for array in {id(each): each for each in [*self._sources, *self._targets] if each is not None}.values():
            array.free()
        return results

    def _read(self, reader: Any) -> list[Array]:
        results = []
        for i, target in enumerate(self._targets):
            if target is not None:
                results.append(gpu.read(target.memory.value, target.values, self.device, reader))
                continue
            memory = operations.take_result(self._handles[i], 0)
            like = np.empty(memory.shape, dtype_of(self.step.dtype))
            results.append(gpu.read(memory.address, like, self.device, reader))
            if self.step.kind == "alltoall":
                self.received = operations.received_splits(self._handles[i], 0)
        return results

    def on_host(self, process_set: hvd.ProcessSet) -> list[Array]:
        """The same operation on host memory; all members call it."""
        step, name = self.step, self.step.name + ".host"
        reduced: dict[str, Any] = {"prescale_factor": step.prescale, "postscale_factor": step.postscale}
        reduced |= {"op": getattr(hvd, step.op)}
        where: dict[str, Any] = {"process_set": process_set}
        first = self.given[0]
        if step.kind == "fused":
            return list(hvd.grouped_allreduce(self.given, name=name, **reduced, **where))
        if step.kind == "allreduce":
            return [hvd.allreduce(first, name=name, **reduced, **where)]
        if step.kind == "reducescatter":
            return [hvd.reducescatter(first, name=name, **reduced, **where)]
        if step.kind == "allgather":
            return [hvd.allgather(first, name=name, **where)]
        if step.kind == "broadcast":
            return [hvd.broadcast(first, step.root, name=name, **where)]
        splits = step.splits[step.members.index(self._rank)] if step.splits else None
        result = hvd.alltoall(first, splits=None if splits is None else list(splits), name=name, **where)
        if splits is None:
            return [result]
        assert self.received == list(np.asarray(result[1])), (step, self.received, result[1])
        return [result[0]]


def compare(step: Step, found: list[Array], wanted: list[Array]) -> None:
    assert len(found) == len(wanted)
    averages = step.kind in ("allreduce", "fused", "reducescatter") and step.op == "Average"
    for i, (one, other) in enumerate(zip(found, wanted, strict=True)):
        other = np.asarray(other)
        assert one.shape == other.shape, (step, i, one.shape, other.shape)
        # NCCL multiplies by 1/n, rounded to the type, and then adds: what cancels out is near to nothing, not nothing.
        tolerance = TOLERANCE.get(step.dtype, 0) if averages else 0
        wide = "c16" if other.dtype.kind == "c" else "f8"
        np.testing.assert_allclose(
            one.astype(wide), other.astype(wide), rtol=tolerance, atol=8 * tolerance, err_msg=f"{step}, tensor {i}"
        )


def run(job: Job) -> int:
    """All rounds; how many steps this rank took part in."""
    sets = [hvd.ProcessSet(list(members)) for members in job.sets]
    hvd.init(process_sets=sets)
    rank, done = hvd.rank(), 0
    gpus = [gpu.Device(rank * job.gpus + i) for i in range(job.gpus)]
    order = random.Random(f"{job.seed} order {rank}")
    for number, steps in enumerate(job.rounds):
        if job.joins_before[rank] <= number:
            break
        begun = []
        for step in steps:
            if rank in step.members:
                where = sets[0] if step.members != tuple(range(job.size)) else hvd.global_process_set
                begun.append((Begun(step, rank, gpus, where.process_set_id, job.seed), where))
        for each, _ in order.sample(begun, len(begun)):
            each.submit()
        found = {}
        for each, _ in order.sample(begun, len(begun)):
            found[each.step.name] = each.finish()
        for each, where in begun:
            compare(each.step, found[each.step.name], each.on_host(where))
        done += len(begun)
    hvd.join(order.choice([-1, gpus[0].ordinal]))
    hvd.shutdown()
    for device in gpus:
        device.close()
    return done
