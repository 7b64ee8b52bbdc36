"""Random GPU programs: what every rank of a job does, made from a seed alone, so that all ranks and a replay agree.

A job has a size, GPUs for each rank, knobs and rounds. In a round every rank submits the steps that concern it in an
order of its own, on streams and GPUs of its own, and then waits for them. The last rounds have ranks that joined.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

REDUCED = ("uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
MOVED = (*REDUCED, "uint16", "int16", "bool", "complex64", "complex128")
OPS = ("Sum", "Average", "Min", "Max", "Product")
KINDS = ("allreduce", "fused", "allgather", "broadcast", "alltoall", "reducescatter")
ROWS = (0, 1, 2, 3, 5, 7, 16, 17, 33, 100)
WIDTHS = (1, 1, 3, 5, 8)
COUNTS = (1, 2, 3, 7, 20, 40)
MANY = (159, 160, 161, 320, 500)
LARGE = 9_001  # rows: above the thresholds that jobs choose
SCHEDULES = ("eager", "lazy", "random")
VERSIONS = ("nccl-2.18", "nccl-2.27", "nccl-2.30")  # of the stand-in


@dataclass(frozen=True)
class Step:
    """One operation, or several that may be fused. Tuples by rank have an entry for each rank of the world."""

    name: str
    kind: str
    members: tuple[int, ...]
    dtype: str
    op: str = "Sum"
    prescale: float = 1.0
    postscale: float = 1.0
    rows: tuple[int, ...] = ()  # by rank
    sizes: tuple[int, ...] = ()  # fused: elements of each tensor
    width: int = 1
    splits: tuple[tuple[int, ...], ...] = ()  # alltoall, by position; none: even parts
    root: int = 0  # a rank of the world
    in_place: bool = False
    is_group: bool = False  # fused: one call for all tensors
    gpu: tuple[int, ...] = ()  # by rank: which of its GPUs
    stream: tuple[int, ...] = ()  # by rank: which stream of that GPU makes the input
    ending: tuple[str, ...] = ()  # by rank: wait, poll or stream


@dataclass
class Job:
    seed: str
    size: int
    gpus: int  # of each rank
    schedule: str
    sets: list[tuple[int, ...]]
    env: dict[str, str]
    nccl: str = VERSIONS[0]
    rounds: list[list[Step]] = field(default_factory=list)
    joins_before: tuple[int, ...] = ()  # by rank: the round from which on it has joined


def make_job(seed: str, rounds: int = 6, size: int = 0, gpus: int = 0) -> Job:
    """The job of this seed. `size` and `gpus` are limits that a machine with real GPUs has."""
    chance = random.Random(f"gpu {seed}")
    job = Job(
        seed=seed,
        size=min(chance.choice((1, 2, 2, 3, 3, 4)), size or 4),
        gpus=min(chance.choice((1, 1, 2, 3)), gpus or 3),
        schedule=chance.choice(SCHEDULES),
        sets=[],
        env={},
    )
    if job.size > 1:
        job.sets = [tuple(sorted(chance.sample(range(job.size), chance.randint(1, job.size - 1))))]
    job.env = {
        "HOROVOD_FUSION_THRESHOLD": chance.choice(("", "", "0", "4096", "65536")),
        "HOROVOD_CYCLE_TIME": chance.choice(("", "", "2")),
        "HOROVOD_CACHE_CAPACITY": chance.choice(("", "", "", "0", "3")),
        "HOROVOD_NUM_NCCL_STREAMS": chance.choice(("", "", "2", "3")),
        "HOROVOD_BATCH_D2D_MEMCOPIES": chance.choice(("", "", "", "0")),
        "HOROVOD_DISABLE_GROUP_FUSION": chance.choice(("", "", "1")),
    }
    job.env = {name: value for name, value in job.env.items() if value}
    everyone = tuple(range(job.size))
    for number in range(rounds):
        steps = []
        for each in range(chance.randint(1, 6)):
            members = everyone if not job.sets or chance.random() < 0.7 else job.sets[0]
            steps.append(_step(chance, job, f"{number}.{each}", members, chance.choice(KINDS)))
        job.rounds.append(steps)
    # Ranks leave one after the other; the last one stays until the end.
    stays = chance.randrange(job.size)
    job.joins_before = tuple(rounds + (2 if rank == stays else chance.randint(0, 1)) for rank in range(job.size))
    for number in (rounds, rounds + 1):
        steps = [
            _step(chance, job, f"{number}.{each}", everyone, chance.choice(("allreduce", "fused")))
            for each in range(chance.randint(1, 3))
        ]
        job.rounds.append(steps)
    job.nccl = chance.choice(VERSIONS)
    if chance.random() < 0.25:  # which the library prefers to what a program asks for
        job.env["NCCL_COMM_BLOCKING"] = "1"
    return job


def _step(chance: random.Random, job: Job, name: str, members: tuple[int, ...], kind: str) -> Step:
    def by_rank(choices: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(chance.choice(choices) for _ in range(job.size))

    same_gpu = chance.random() < 0.6
    common: dict[str, object] = {
        "name": name,
        "kind": kind,
        "members": members,
        "dtype": chance.choice(REDUCED if kind in ("allreduce", "fused", "reducescatter") else MOVED),
        "gpu": (0,) * job.size if same_gpu else by_rank(tuple(range(job.gpus))),
        "stream": by_rank((0, 0, 1, 2)),
        "ending": by_rank(("wait", "wait", "poll", "stream")),
        "width": chance.choice(WIDTHS),
    }
    factors = {"prescale": chance.choice((1.0, 1.0, 0.5, 2.0)), "postscale": chance.choice((1.0, 1.0, 0.5))}
    if kind in ("allreduce", "fused", "reducescatter"):
        common |= {"op": chance.choice(OPS if kind != "reducescatter" else OPS[:2]), **factors}
    rows = LARGE if chance.random() < 0.05 else chance.choice(ROWS)
    if kind == "fused":
        count = chance.choice(MANY) if chance.random() < 0.15 else chance.choice(COUNTS)
        sizes = tuple(chance.choice((0, 1, 1, 3, 4, 15, 64)) for _ in range(count))
        common |= {"sizes": sizes, "is_group": chance.random() < 0.4, "in_place": chance.random() < 0.5}
    elif kind == "allgather":
        common |= {"rows": (rows,) * job.size if chance.random() < 0.4 else by_rank(ROWS)}
    elif kind == "alltoall":
        if chance.random() < 0.5:
            splits = tuple(tuple(chance.choice((0, 1, 2, 5, 11)) for _ in members) for _ in members)
            sums = {rank: sum(splits[position]) for position, rank in enumerate(members)}
            common |= {"splits": splits, "rows": tuple(sums.get(rank, 0) for rank in range(job.size))}
        else:
            common |= {"rows": tuple(len(members) * count for count in by_rank((0, 1, 2, 5)))}  # type: ignore[operator]
    else:
        common |= {"rows": (rows,) * job.size, "in_place": chance.random() < 0.5, "root": chance.choice(members)}
    return Step(**common)  # type: ignore[arg-type]
