"""Allreduce as a picture: time over size, and how many times as long the best peer takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from programs import OURS
from report import MI, size_text
from samples import Case, Results


def draw(results: Results, place: str, path: Path) -> None:
    """Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    all_cases = results.cases(place=place, collective="allreduce")
    own_cases = [c for c in all_cases if results.best(c, OURS)]
    sizes_seen = Counter((c.ranks, c.state) for c in own_cases or all_cases)
    groups = [group for group, sizes in sizes_seen.items() if sizes > 1]  # one point is no line
    if not groups:
        return
    programs = results.programs([place])
    peers = [p for p in programs if p not in OURS]
    rows = 2 if own_cases else 1
    size = (6.5 * len(groups), 4.5 * rows)
    figure, axes = plt.subplots(rows, len(groups), figsize=size, squeeze=False, layout="constrained")
    for column, (ranks, state) in enumerate(groups):
        cases = [c for c in all_cases if (c.ranks, c.state) == (ranks, state)]
        times, ratios = axes[0][column], axes[-1][column]
        for number, program in enumerate(programs):
            ours = program in OURS
            points = [(c.bytes, cell) for c in cases if (cell := results.find(c, program))]
            if not points:
                continue
            sizes = [size for size, _ in points]
            style = {"linewidth": 2.2} if ours else {"linewidth": 1, "linestyle": "--"}
            line = times.plot(sizes, [c.median for _, c in points], label=program, color=f"C{number}", **style)[0]
            times.fill_between(
                sizes, [c.low for _, c in points], [c.high for _, c in points], color=line.get_color(), alpha=0.08
            )
            if ours:
                pairs = _ratios(results, cases, program, peers)
                ratios.plot([s for s, _ in pairs], [r for _, r in pairs], label=program, color=f"C{number}", marker="o")
        if own_cases:
            ratios.set(xscale="log", yscale="log", ylabel="best peer / ours", xlabel="bytes")
            ratios.axhline(1, color="black", linewidth=0.8)
        if wire := results.wires().get(place):
            sizes = [c.bytes for c in cases if c.bytes >= MI]
            times.plot(sizes, [wire.median * size for size in sizes], label="wire", color="black", linewidth=0.8)
        times.set(title=f"{place}, {ranks} ranks, {state}", xscale="log", yscale="log", ylabel="us per allreduce")
        for axis in {times, ratios}:
            ticks = [c.bytes for c in cases][::2]
            axis.set_xticks(ticks, [size_text(size) for size in ticks], rotation=45)
            axis.grid(alpha=0.3)
            axis.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def _ratios(results: Results, cases: list[Case], program: str, peers: list[str]) -> list[tuple[int, float]]:
    pairs = []
    for case in cases:
        own, best = results.find(case, program), results.best(case, peers)
        if own and best and results.complete(case, peers):
            pairs.append((case.bytes, best[1].median / own.median))
    return pairs
