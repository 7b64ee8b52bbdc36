"""Tables for people and a JSON document for programs."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from machine import CPUS
from programs import OURS
from samples import Case, Cell, Results
from verdicts import Reading, Verdict

MI = 1 << 20
UNCOMPARED = ("burst", "async", "idle", "wire")


def size_text(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _time(cell: Cell | None) -> str:
    return f"{_number(cell.median)} ±{cell.spread * 100:.0f}%" if cell else "-"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]

    def text(line: list[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([text(lines[0]), rule, *map(text, lines[1:])])


def _peers(results: Results, cases: list[Case]) -> list[str]:
    return [p for p in results.programs({case.place for case in cases}) if p not in OURS]


def _ratios(results: Results, cases: list[Case]) -> str:
    peers = _peers(results, cases)
    rows = []
    for case in cases:
        best = results.best(case, peers)
        own = [results.find(case, program) for program in OURS]
        mark = "" if results.complete(case, peers) else "?"
        ratios = [f"{best[1].median / cell.median:.2f}{mark}" if best and cell else "-" for cell in own]
        count = min((cell.count for cell in own if cell), default=0)
        rows.append(
            [
                case.collective,
                size_text(case.bytes),
                *map(_time, own),
                *([_time(best[1]), best[0]] if best else ["-", "-"]),
                *ratios,
                str(count),
            ]
        )
    head = ["collective", "bytes", *(f"{p} us" for p in OURS), "best peer us", "peer", *(f"x {p}" for p in OURS), "n"]
    return table(head, rows)


def _all_peers(results: Results, cases: list[Case]) -> str:
    peers = _peers(results, cases)
    rows = [[c.collective, size_text(c.bytes), *(_time(results.find(c, p)) for p in peers)] for c in cases]
    return table(["collective", "bytes", *peers], rows)


def _shares(results: Results, cases: list[Case]) -> str:
    programs = results.programs({case.place for case in cases})

    def text(share: float | None) -> str:
        return "-" if share is None else f"{share * 100:.1f} %"

    large = [case for case in cases if case.collective == "allreduce" and case.bytes >= MI]
    rows = [[size_text(c.bytes), *(text(results.wire_share(c, program)) for program in programs)] for c in large]
    return table(["bytes", *programs], rows)


def measurements(results: Results) -> str:
    """Per place, number of ranks and state: our times beside the best peer's, and the times of all peers."""
    parts = []
    groups = dict.fromkeys((c.place, c.ranks, c.state) for c in results.cases())
    for place, ranks, state in groups:
        cases = [c for c in results.cases(place=place, ranks=ranks, state=state) if c.collective not in UNCOMPARED]
        if not cases:
            continue
        parts += [f"## {place}, {ranks} ranks, {state}\n"]
        if any(results.best(case, OURS) for case in cases):
            parts += [_ratios(results, cases), ""]
        parts += ["Peers, us:\n", _all_peers(results, cases), ""]
        if wire := results.wires().get(place):
            speed = f"{1 / wire.median:.0f} MB/s ±{wire.spread * 100:.0f}%, {wire.count} samples"
            parts += [f"Share of the wire (iperf3: {speed}):\n", _shares(results, cases), ""]
    return "\n".join(parts)


def verdict_table(verdicts: list[Verdict]) -> str:
    rows = [
        [
            v.place,
            v.title,
            str(v.ranks),
            v.state,
            v.program,
            "-" if v.worst is None else f"{v.worst:.2f} ({v.at})",
            "-" if v.best is None else f"{v.best:.2f}",
            f"{v.must:g}",
            f"{v.should:g}",
            v.word,
        ]
        for v in verdicts
    ]
    return table(
        ["place", "allreduce", "ranks", "state", "layer", "worst ratio", "best", "must", "should", "verdict"], rows
    )


def reading_table(readings: list[Reading]) -> str:
    rows = [
        [
            r.title,
            str(r.ranks),
            r.state,
            _number(r.value) + (f" ({r.at})" if r.at else ""),
            "-" if r.limit is None else f"{r.limit:g}",
            r.word,
        ]
        for r in readings
    ]
    return table(["figure", "ranks", "state", "value", "at most", "verdict"], rows)


def machine() -> dict[str, Any]:
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {"cpu": model, "cores": len(CPUS), "kernel": platform.release(), "load": os.getloadavg()[0]}


def document(
    results: Results, verdicts: list[Verdict], readings: list[Reading], facts: dict[str, Any]
) -> dict[str, Any]:
    return {
        **facts,
        "wires": {place: asdict(wire) for place, wire in results.wires().items()},  # us per byte
        "cells": [asdict(case) | {"program": program} | asdict(cell) for case, program, cell in results],
        "verdicts": [asdict(v) for v in verdicts],
        "figures": [asdict(r) for r in readings],
    }
