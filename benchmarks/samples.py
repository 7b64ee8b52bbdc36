"""Samples, the state of the machine in which they were taken, and what they say together."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

STATES = ("near", "far", "smt")


def state_of(probe_ns: float) -> str:
    """near: the two cores share a last-level cache; far: they do not; smt: they are threads of one core."""
    if probe_ns <= 0:
        return "near"  # a single core: nothing can move
    if probe_ns < 32:
        return "smt"
    if probe_ns < 120:
        return "near"
    return "far" if 140 < probe_ns < 1000 else "unclear"


@dataclass(frozen=True)
class Sample:
    round: int
    place: str
    program: str
    collective: str
    bytes: int
    ranks: int
    us: float
    probe_before: float
    probe_after: float
    wrong: bool

    @property
    def state(self) -> str | None:
        """None: the cores moved meanwhile, or the machine did something else; the sample counts for nothing."""
        before, after = state_of(self.probe_before), state_of(self.probe_after)
        return before if before == after and before in STATES else None


def parse(line: str, round_number: int, place: str, program: str) -> Sample:
    """One line of sampler.h."""
    collective, size, ranks, us, *probes = line.split("\t")
    before, after, *flags = probes
    return Sample(
        round=round_number,
        place=place,
        program=program,
        collective=collective,
        bytes=int(size),
        ranks=int(ranks),
        us=float(us),
        probe_before=float(before),
        probe_after=float(after),
        wrong=bool(flags),
    )


def write(path: Path, samples: Iterable[Sample]) -> None:
    with path.open("w") as file:
        print(*(f.name for f in fields(Sample)), sep="\t", file=file)
        for sample in samples:
            print(*astuple(sample), sep="\t", file=file)


@dataclass(frozen=True)
class Cell:
    """The samples of one program in one case and state."""

    median: float
    low: float
    high: float
    spread: float  # half the distance of the quartiles, relative to the median
    count: int


def _cell(values: list[float]) -> Cell:
    median = statistics.median(values)
    first, _, third = statistics.quantiles(values, n=4) if len(values) > 1 else (median, median, median)
    spread = (third - first) / 2 / median if median > 0 else 0.0
    return Cell(median, min(values), max(values), spread, len(values))


@dataclass(frozen=True)
class Case:
    place: str
    ranks: int
    state: str
    collective: str
    bytes: int


class Results:
    """Cells by case and program; only those with enough samples to mean something."""

    def __init__(self, samples: Sequence[Sample], least: int, order: Sequence[str]) -> None:
        values: dict[tuple[Case, str], list[float]] = defaultdict(list)
        for s in samples:
            if s.state is not None and not s.wrong:
                values[Case(s.place, s.ranks, s.state, s.collective, s.bytes), s.program].append(s.us)
        self._cells = {key: _cell(v) for key, v in values.items() if len(v) >= least}
        self._order = order
        self._places = list(dict.fromkeys(s.place for s in samples))
        self._measured: dict[tuple[str, int, str, int], set[str]] = defaultdict(set)  # programs, in whatever state
        for s in samples:
            self._measured[s.place, s.ranks, s.collective, s.bytes].add(s.program)
        self._wires = {
            place: _cell([s.us / s.bytes for s in samples if s.place == place and s.collective == "wire"])
            for place in {s.place for s in samples if s.collective == "wire"}
        }

    def __iter__(self) -> Iterator[tuple[Case, str, Cell]]:
        for (case, program), cell in self._cells.items():
            yield case, program, cell

    def find(self, case: Case, program: str) -> Cell | None:
        return self._cells.get((case, program))

    def cases(self, **where: object) -> list[Case]:
        """The cases with these fields, smallest first."""
        found = {c for c, _ in self._cells if all(getattr(c, name) == value for name, value in where.items())}
        return sorted(
            found,
            key=lambda c: (self._places.index(c.place), c.ranks, STATES.index(c.state), c.collective, c.bytes),
        )

    def programs(self, places: Iterable[str] | None = None) -> list[str]:
        """With collectives, at these places or any."""
        found = {
            program
            for case, program in self._cells
            if case.collective != "wire" and (places is None or case.place in places)
        }
        return [program for program in self._order if program in found]

    def best(self, case: Case, programs: Iterable[str]) -> tuple[str, Cell] | None:
        """The fastest of these programs."""
        cells = [(p, self._cells[case, p]) for p in programs if (case, p) in self._cells]
        return min(cells, key=lambda pc: pc[1].median, default=None)

    def complete(self, case: Case, programs: Iterable[str]) -> bool:
        """Does every one of these that was run for this case have enough samples in this state? Otherwise the fastest
        may be the one that is missing."""
        run = self._measured.get((case.place, case.ranks, case.collective, case.bytes), set())
        return all((case, program) in self._cells for program in programs if program in run)

    def wires(self) -> dict[str, Cell]:
        """By place: the microseconds of a byte in one direction, in any state of the cores."""
        return self._wires

    def wire_share(self, case: Case, program: str) -> float | None:
        """Of an allreduce between two hosts: each sends and receives the tensor once, in both directions at a time."""
        cell, wire = self.find(case, program), self._wires.get(case.place)
        return wire.median * case.bytes / cell.median if cell and wire else None

    def ratio(self, case: Case, program: str, other_case: Case, other: str) -> float | None:
        """How many times as long the first takes as the other."""
        first, second = self.find(case, program), self.find(other_case, other)
        return first.median / second.median if first and second else None
