"""Draws what bench_scale has written: what a step costs each node, over the number of ranks.

python benchmarks/scale/plot.py scale.json scale.png     (needs matplotlib)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

STYLES = {"star": {"linestyle": "--"}, "tree": {"linewidth": 2.2}}


def draw(cases: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    default = next(case["fan_out"] for case in cases if case["fan_out"])
    shapes = {"star": [c for c in cases if c["fan_out"] == 0], "tree": [c for c in cases if c["fan_out"] == default]}
    figure, axes = plt.subplots(2, 2, figsize=(13, 9), layout="constrained")
    panels = [
        ("CPU time of a cached step", "us", lambda c, node: c["cached"][node]["cpu_us"]),
        ("bytes heard in a cached step", "bytes", lambda c, node: c["cached"][node]["bytes_in"]),
        ("memory", "bytes", lambda c, node: c["memory"][node]),
    ]
    for axis, (title, unit, value) in zip(axes.flat, panels, strict=False):
        for shape, points in shapes.items():
            for number, node in enumerate(("rank", "leader", "root")):
                if node == "leader" and shape == "star":
                    continue
                known = [(c["ranks"], value(c, node)) for c in points if value(c, node) > 0]
                ranks, values = zip(*known, strict=True)
                axis.plot(ranks, values, label=f"{node}, {shape}", color=f"C{number}", marker="o", **STYLES[shape])
        axis.set(title=title, xscale="log", yscale="log", xlabel="ranks", ylabel=f"{unit} per node")
    paths = axes[1][1]
    for shape, points in shapes.items():
        for number, step in enumerate(("cached", "uncached")):
            times = [c[step]["path_us"] for c in points]
            ranks = [c["ranks"] for c in points]
            paths.plot(ranks, times, label=f"{step}, {shape}", color=f"C{number}", marker="o", **STYLES[shape])
    for case in shapes["tree"]:
        paths.annotate(f"{case['hops']} hops", (case["ranks"], case["cached"]["path_us"]), fontsize=8, va="top")
    paths.set(title="the longest way up: work done one after the other", xscale="log", yscale="log", ylabel="us")
    paths.set(xlabel="ranks")
    for axis in axes.flat:
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
