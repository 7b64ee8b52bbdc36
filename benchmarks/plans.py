"""How much is measured, and in which portions."""

from __future__ import annotations

from dataclasses import dataclass

import verdicts
from places import Place
from programs import CAPI, RAW, Program

KI, MI = 1 << 10, 1 << 20
OTHERS = ("allgather", "broadcast", "alltoall", "reducescatter")
COLLECTIVES = ("allreduce", *OTHERS, "barrier")
SPECIAL = {RAW: [("burst", verdicts.BURST_BYTES)], CAPI: [("burst", verdicts.BURST_BYTES), ("async", 4), ("idle", 0)]}

Cases = list[tuple[str, int]]  # collective and bytes


@dataclass(frozen=True)
class Band:
    """Cases that are run together: they take few seconds, so that the programs stay close in time."""

    cases: Cases
    milliseconds: float  # of a sample


@dataclass(frozen=True)
class Plan:
    rounds: int
    samples: int  # of each case and round
    milliseconds: float  # of a sample
    least: int  # samples that make a cell
    allreduce: dict[str, list[int]]  # bytes by kind of place
    others: dict[str, list[int]]
    # The burst that a rate limit lets pass (2 ms) must not count in the samples that are held against the wire.
    wire_milliseconds: float


FULL = Plan(
    rounds=4,
    samples=5,
    milliseconds=15,
    least=3,
    allreduce={
        "shm": verdicts.ALLREDUCE_BYTES,
        "tcp": [size for size in verdicts.ALLREDUCE_BYTES if size <= 64 * MI],
        "hosts": verdicts.HOSTS_BYTES,
    },
    others={"shm": [4 * KI, 512 * KI, 64 * MI], "tcp": [4 * KI, 512 * KI], "hosts": []},
    wire_milliseconds=200,
)
QUICK = Plan(
    rounds=1,
    samples=3,
    milliseconds=8,
    least=1,
    allreduce={
        "shm": [4, 4 * KI, 64 * KI, MI, 16 * MI],
        "tcp": [4, 4 * KI, 64 * KI, MI, 16 * MI],
        "hosts": [4, 64 * KI, 16 * MI],
    },
    others={"shm": [4 * KI, 512 * KI], "tcp": [4 * KI], "hosts": []},
    wire_milliseconds=50,
)


def bands(plan: Plan, place: Place, only: set[str]) -> list[Band]:
    allreduce = [("allreduce", size) for size in plan.allreduce[place.kind]]
    others = [(kind, size) for kind in OTHERS for size in plan.others[place.kind]]
    barrier = [("barrier", 0)] if others else []
    large = plan.wire_milliseconds if place.rate else plan.milliseconds
    limit = 256 * KI if place.rate else MI
    groups = [
        Band([case for case in allreduce if case[1] <= limit], plan.milliseconds),
        Band([case for case in allreduce if case[1] > limit], large),
        Band([case for case in others if case[1] <= MI] + barrier, plan.milliseconds),
        Band([case for case in others if case[1] > MI], plan.milliseconds),
    ]
    chosen = [Band([c for c in band.cases if not only or c[0] in only], band.milliseconds) for band in groups]
    if place.kind == "hosts" and (not only or "allreduce" in only):
        chosen.append(Band([("wire", MI)], plan.milliseconds))
    return [band for band in chosen if band.cases]


def cases_of(program: Program, band: Band) -> Cases:
    def wanted(kind: str, size: int) -> bool:
        if program.collectives is None:
            return kind != "wire" and size >= program.min_bytes
        return kind in program.collectives and size >= program.min_bytes

    return [case for case in band.cases if wanted(*case)]
