"""The collectives through horovod.numpy: what a Python program sees. Output and arguments are those of sampler.h."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

Operation = Callable[[], Any]


class Team:
    """The ranks of this run; see team.h."""

    def __init__(self, rank: int, size: int) -> None:
        library = ctypes.CDLL(os.environ["BENCH_TEAM"])
        for name in ("share", "largest"):
            function = getattr(library, f"bench_{name}")
            function.argtypes = [ctypes.c_double]
            function.restype = ctypes.c_double
        library.bench_probe.restype = ctypes.c_double
        library.bench_join(rank, size)
        self.rank, self.size = rank, size
        self.pin: Callable[[], None] = library.bench_pin
        self.barrier: Callable[[], None] = library.bench_barrier
        self.share: Callable[[float], float] = library.bench_share
        self.largest: Callable[[float], float] = library.bench_largest
        self.probe: Callable[[], float] = library.bench_probe


def seconds_of(team: Team, operation: Operation, repeats: int) -> float:
    team.barrier()
    start = time.perf_counter()
    for _ in range(repeats):
        operation()
    return time.perf_counter() - start


def calibrate(team: Team, operation: Operation, seconds: float) -> int:
    repeats = 1
    while True:
        taken = team.share(seconds_of(team, operation, repeats))
        if taken >= seconds / 5:
            return max(1, int(repeats * seconds / taken))
        repeats *= 4


def prepare(kind: str, size: int, team: Team) -> tuple[Any, Operation, Any]:
    """The input, an operation on it that returns its result, and the result to expect."""
    import numpy as np

    import horovod.numpy as hvd

    count, ranks = size // 4, team.size
    share = count // ranks
    places = np.arange(count, dtype=np.float32) % 7

    def values(rank: int, where: slice = slice(None)) -> Any:
        return places[where] + np.float32(rank + 1)

    def total(where: slice = slice(None)) -> Any:
        return places[where] * np.float32(ranks) + np.float32(ranks * (ranks + 1) / 2)

    mine = slice(team.rank * share, (team.rank + 1) * share)
    tensor = values(team.rank, slice(share) if kind == "allgather" else slice(None))
    name = f"{kind}.{size}"
    match kind:
        case "allreduce":
            return tensor, lambda: hvd.allreduce_(tensor, name=name, op=hvd.Sum), total()
        case "broadcast":
            return tensor, lambda: hvd.broadcast_(tensor, 0, name=name), values(0)
        case "allgather":
            gathered = np.concatenate([values(r, slice(share)) for r in range(ranks)])
            return tensor, lambda: hvd.allgather(tensor, name=name), gathered
        case "alltoall":
            received = np.concatenate([values(r, mine) for r in range(ranks)])
            return tensor, lambda: hvd.alltoall(tensor, name=name), received
        case "reducescatter":
            return tensor, lambda: hvd.reducescatter(tensor, name=name, op=hvd.Sum), total(mine)
        case "barrier":
            return tensor, hvd.barrier, None
    raise ValueError(f"not a collective: {kind}")


def measure(team: Team, kind: str, size: int, samples: int, seconds: float) -> None:
    import numpy as np

    tensor, operation, expected = prepare(kind, size, team)
    result = operation()
    wrong = team.largest(float(expected is not None and not np.array_equal(result, expected)))
    del result, expected
    tensor[:] = 0
    repeats = calibrate(team, operation, seconds)
    for _ in range(samples):
        before = team.probe()
        slowest = team.largest(seconds_of(team, operation, repeats) / repeats)
        after = team.probe()
        if team.rank == 0:
            fields = [kind, size, team.size, f"{slowest * 1e6:.4f}", f"{before:.0f}", f"{after:.0f}"]
            print(*fields, *(["WRONG"] if wrong else []), sep="\t", flush=True)


def run_rank(rank: int, size: int, port: int, samples: int, seconds: float, cases: list[str]) -> None:
    team = Team(rank, size)
    for name, value in (("RANK", rank), ("SIZE", size), ("LOCAL_RANK", rank), ("LOCAL_SIZE", size)):
        os.environ[f"HOROVOD_{name}"] = str(value)
    os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = "127.0.0.1"
    os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"] = str(port)
    import horovod.numpy as hvd

    hvd.init()
    team.pin()  # after init, which counts the cores that it may use
    for case in cases:
        kind, sizes = case.split(":")
        for tensor_bytes in sizes.split(","):
            measure(team, kind, int(tensor_bytes), samples, seconds)
    hvd.shutdown()


def main() -> int:
    size, samples, seconds, cases = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) * 1e-3, sys.argv[4:]
    port = 1024 + os.getpid() % 60000  # names the world; nothing listens there
    children = set()
    for rank in range(size):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                run_rank(rank, size, port, samples, seconds, cases)
                code = 0
            except Exception as error:
                print(f"rank {rank}: {error}", file=sys.stderr)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        children.add(child)
    result = 0
    while children:
        ended, status = os.wait()
        children.discard(ended)
        if status != 0 and result == 0:
            result = 1
            for child in children:
                os.kill(child, signal.SIGKILL)
    return result


if __name__ == "__main__":
    sys.exit(main())
