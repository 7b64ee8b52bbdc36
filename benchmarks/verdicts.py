"""The bars: what the collectives must and should reach beside the peers, and what the engine may cost on top of them.

A ratio compares medians of the same run and the same state of the machine, never across, and only where every peer has
samples: the missing one may be the strongest. A bar over several sizes is reached when the worst of them reaches it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from machine import CPUS
from places import GIGABIT, SHM, TCP, TEN_GIGABIT, Place
from programs import CAPI, OURS, RAW
from samples import STATES, Case, Results

KI, MI = 1 << 10, 1 << 20
ALLREDUCE_BYTES = [4**k for k in range(1, 15)]  # 4 B .. 256 MiB
HOSTS_BYTES = [4, 4 * KI, 64 * KI, MI, 16 * MI, 64 * MI]
BURST_BYTES = 100 * 4 * KI


@dataclass(frozen=True)
class Bar:
    """Allreduce: time of the strongest peer / ours, or of the wire / ours, at sizes first..last."""

    title: str
    ranks: int
    crowded: bool  # more ranks than cores
    states: tuple[str, ...]
    first: int
    last: int
    must: float
    should: float
    peer: str | None = None  # None: the fastest of all
    place: Place = SHM
    of_wire: bool = False

    def sizes(self) -> list[int]:
        all_sizes = HOSTS_BYTES if self.place.kind == "hosts" else ALLREDUCE_BYTES
        return [size for size in all_sizes if self.first <= size <= self.last]


BARS = [
    Bar("<= 256 B", 2, False, ("near",), 4, 256, 1.5, 2.0),
    Bar("1 - 4 KiB", 2, False, ("near",), KI, 4 * KI, 2.0, 3.5),
    Bar("16 - 256 KiB", 2, False, ("near",), 16 * KI, 256 * KI, 1.8, 3.0),
    Bar("1 - 4 MiB", 2, False, ("near",), MI, 4 * MI, 1.5, 1.8),
    Bar("16 MiB", 2, False, ("near",), 16 * MI, 16 * MI, 1.8, 2.3),
    Bar(">= 64 MiB, Open MPI as installed", 2, False, ("near",), 64 * MI, 256 * MI, 3.5, 4.5, "ompi"),
    Bar(">= 64 MiB, best tuned peer", 2, False, ("near",), 64 * MI, 256 * MI, 1.8, 2.3),
    Bar("4 KiB - 4 MiB", 2, False, ("far",), 4 * KI, 4 * MI, 2.5, 5.0),
    Bar(">= 64 MiB, Open MPI as installed", 2, False, ("far",), 64 * MI, 256 * MI, 2.5, 3.5, "ompi"),
    Bar(">= 64 MiB, best tuned peer", 2, False, ("far",), 64 * MI, 256 * MI, 1.4, 1.7),
    Bar("all sizes, more ranks than cores", 4, True, ("near", "far"), 4, 256 * MI, 1.2, 1.6),
    Bar("<= 4 KiB", 2, False, ("near", "far"), 4, 4 * KI, 1.0, 1.5, place=TCP),
    Bar("16 - 256 KiB", 2, False, ("near", "far"), 16 * KI, 256 * KI, 1.0, 1.3, place=TCP),
    Bar(">= 16 MiB", 2, False, ("near", "far"), 16 * MI, 64 * MI, 1.3, 1.8, place=TCP),
    Bar("<= 64 KiB, Gloo", 2, False, ("near", "far"), 4, 64 * KI, 2.0, 5.0, "gloo ring", TCP),
    Bar("256 KiB - 64 MiB, Gloo", 2, False, ("near", "far"), 256 * KI, 64 * MI, 2.0, 2.0, "gloo ring", TCP),
    Bar(">= 1 MiB, share of the wire", 2, False, ("near", "far"), MI, 64 * MI, 0.98, 0.995, None, GIGABIT, True),
    Bar(
        ">= 16 MiB, share of the wire", 2, False, ("near", "far"), 16 * MI, 64 * MI, 0.97, 0.99, None, TEN_GIGABIT, True
    ),
]


@dataclass(frozen=True)
class Verdict:
    place: str
    title: str
    ranks: int
    state: str
    program: str
    must: float
    should: float
    worst: float | None  # None: too few samples
    at: str  # where the worst is
    best: float | None
    word: str


def _word(good: bool, text: str, found: int, wanted: int) -> str:
    """A failure counts at once; a success only when every size was seen."""
    return text if not good or found == wanted else f"{text} so far, {found} of {wanted} sizes"


def _ratio(bar: Bar, state: str, program: str, size: int, results: Results) -> tuple[float, str] | None:
    """How it compares, and with what."""
    case = Case(bar.place.name, bar.ranks, state, "allreduce", size)
    if bar.of_wire:
        share = results.wire_share(case, program)
        return None if share is None else (share, f"{size} B")
    peers = [bar.peer] if bar.peer else [p for p in results.programs([bar.place.name]) if p not in OURS]
    own, peer = results.find(case, program), results.best(case, peers)
    if not own or not peer or not results.complete(case, peers):
        return None
    return peer[1].median / own.median, f"{size} B, {peer[0]}"


def _judge_bar(bar: Bar, state: str, program: str, results: Results) -> Verdict:
    sizes = bar.sizes()
    ratios = [ratio for size in sizes if (ratio := _ratio(bar, state, program, size, results))]
    worst, at = min(ratios, default=(None, ""))
    if worst is None:
        word = "no samples"
    elif worst < bar.must:
        word = "not reached"
    else:
        reached = "reached, should" if worst >= bar.should else "reached, must"
        word = _word(True, reached, len(ratios), len(sizes))
    best = max(ratios)[0] if ratios else None
    return Verdict(bar.place.name, bar.title, bar.ranks, state, program, bar.must, bar.should, worst, at, best, word)


def judge_peers(results: Results, places: list[Place], ranks: list[int]) -> list[Verdict]:
    bars = [b for b in BARS if b.place in places and b.ranks in ranks and b.crowded == (b.ranks > len(CPUS))]
    return [_judge_bar(bar, state, program, results) for bar in bars for state in bar.states for program in (RAW, CAPI)]


Figure = Callable[[Results, Case], list[tuple[float, str]]]  # of a case that gives ranks and state: values and where


def _between(collective: str, size: int, program: str, other_collective: str, other: str) -> Figure:
    def figure(results: Results, case: Case) -> list[tuple[float, str]]:
        case = replace(case, collective=collective, bytes=size)
        ratio = results.ratio(case, program, replace(case, collective=other_collective), other)
        return [] if ratio is None else [(ratio, "")]

    return figure


def _engine_cost(results: Results, case: Case) -> list[tuple[float, str]]:
    found = []
    for c in results.cases(place=case.place, ranks=case.ranks, state=case.state, collective="allreduce"):
        ratio = results.ratio(c, CAPI, c, RAW)
        if c.bytes >= 64 * KI and ratio is not None:
            found.append((ratio, f"{c.bytes} B"))
    return found


def _crowd_cost(program: str) -> Figure:
    def figure(results: Results, case: Case) -> list[tuple[float, str]]:
        case = replace(case, collective="allreduce", bytes=64 * KI)
        ratio = results.ratio(replace(case, ranks=4), program, replace(case, ranks=2), program)
        return [] if ratio is None else [(ratio, "")]

    return figure


def _value(collective: str, size: int, unit: float) -> Figure:
    def figure(results: Results, case: Case) -> list[tuple[float, str]]:
        cell = results.find(replace(case, collective=collective, bytes=size), CAPI)
        return [] if cell is None else [(cell.median / unit, "")]

    return figure


# Title, ranks, the largest value that is good (None: only shown), how it is found, and in how many sizes.
FIGURES: list[tuple[str, int, float | None, Figure, int]] = [
    ("C ABI / raw, 4 B, plan in the cache", 2, 15, _between("allreduce", 4, CAPI, "allreduce", RAW), 1),
    ("C ABI / raw, worst size >= 64 KiB", 2, 1.1, _engine_cost, len([b for b in ALLREDUCE_BYTES if b >= 64 * KI])),
    ("burst of 100 x 4 KiB / one raw 400 KiB", 2, 20, _between("burst", BURST_BYTES, CAPI, "burst", RAW), 1),
    ("4 ranks / 2 ranks, raw, 64 KiB", 4, 3, _crowd_cost(RAW), 1),
    ("4 ranks / 2 ranks, C ABI, 64 KiB", 4, 3, _crowd_cost(CAPI), 1),
    ("idle engine, % of a core", 2, 0.1, _value("idle", 0, 1e4), 1),
    ("submit without wait_follows, then wait, 4 B, us", 2, None, _value("async", 4, 1), 1),
]


@dataclass(frozen=True)
class Reading:
    title: str
    ranks: int
    state: str
    limit: float | None
    value: float  # the worst, where there are several
    at: str
    word: str


def judge_figures(results: Results, ranks: list[int]) -> list[Reading]:
    readings = []
    for title, figure_ranks, limit, figure, sizes in FIGURES:
        for state in STATES if figure_ranks in ranks else ():
            values = figure(results, Case(SHM.name, figure_ranks, state, "", 0))
            if not values:
                continue
            value, at = max(values)
            word = ""
            if limit is not None:
                good = value <= limit
                word = _word(good, "reached" if good else "not reached", len(values), sizes)
            readings.append(Reading(title, figure_ranks, state, limit, value, at, word))
    return readings
