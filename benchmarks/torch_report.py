"""What the samples of torch_train.py say: ratios with their spread, the bars for them, tables, a picture."""

from __future__ import annotations

import importlib.util
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from report import machine, size_text, table


@dataclass(frozen=True)
class Case:
    ranks: int
    kind: str  # train, allreduce
    what: str  # the model, or the bytes

    def text(self) -> str:
        return f"{self.kind} {size_text(int(self.what)) if self.what.isdigit() else self.what}, {self.ranks} ranks"


@dataclass
class Samples:
    """Seconds of a step or operation, in the order in which they were taken."""

    seconds: dict[tuple[Case, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    imports: list[float] = field(default_factory=list)
    import_seconds: dict[str, float] = field(default_factory=dict)
    matmul: list[float] = field(default_factory=list)
    bytes_sent: dict[str, float] = field(default_factory=dict)  # of an allreduce, by compression

    def add(self, case: Case, system: str, seconds: float) -> None:
        self.seconds[case, system].append(seconds)

    def cases(self, kind: str) -> list[Case]:
        return list(dict.fromkeys(case for case, _ in self.seconds if case.kind == kind))

    def systems(self, kind: str) -> list[str]:
        """The uncommunicating first, ours next."""
        found = {system for case, system in self.seconds if case.kind == kind}
        return sorted(found, key=lambda system: (system != "alone", not system.startswith("horovod"), system))

    def ratio(self, case: Case, slower: str, faster: str) -> Ratio:
        """How many times as fast the second is as the first, of the samples of the same round."""
        first, second = self.seconds[case, slower], self.seconds[case, faster]
        return Ratio.of([a / b for a, b in zip(first, second, strict=False)])


@dataclass(frozen=True)
class Ratio:
    low: float  # the quartiles
    median: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Ratio:
        if len(values) < 2:
            return Ratio(values[0], values[0], values[0])
        return Ratio(*statistics.quantiles(values, n=4))

    def text(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f} - {self.high:.2f}]"


@dataclass(frozen=True)
class Verdict:
    title: str
    value: float
    spread: str
    bar: str
    reached: bool


def judge(samples: Samples) -> list[Verdict]:
    verdicts = []
    goals = {"small": 1.4, "large": 1.6}
    for case in samples.cases("train"):
        against = samples.ratio(case, "ddp", "horovod")
        goal = goals[case.what]
        title = f"{case.text()}: steps/s against DDP"
        verdicts.append(Verdict(title, against.median, against.text(), f">= {goal}", against.median >= goal))
        best = min(("ddp", "ddp view"), key=lambda peer: statistics.median(samples.seconds[case, peer]))
        strongest = samples.ratio(case, best, "horovod")
        title = f"{case.text()}: against the faster DDP ({best})"
        verdicts.append(Verdict(title, strongest.median, strongest.text(), ">= 1", strongest.median >= 1))
        if case.what == "large" and case.ranks == 2:
            share = samples.ratio(case, "alone", "horovod")
            title = f"{case.text()}: efficiency"
            verdicts.append(Verdict(title, share.median, share.text(), ">= 0.85", share.median >= 0.85))
    cases = samples.cases("allreduce")
    for ranks in dict.fromkeys(case.ranks for case in cases):
        ratios = [(samples.ratio(case, "ddp", "horovod"), case) for case in cases if case.ranks == ranks]
        worst, where = min(ratios, key=lambda pair: pair[0].median)
        title = f"allreduce, {ranks} ranks: against Gloo, worst size ({size_text(int(where.what))})"
        verdicts.append(Verdict(title, worst.median, worst.text(), ">= 1", worst.median >= 1))
    if samples.imports:
        ratio = Ratio.of(samples.imports)
        title = "import and init against import torch"
        verdicts.append(Verdict(title, ratio.median, ratio.text(), "<= 1.15", ratio.median <= 1.15))
    if samples.matmul:
        ratio = Ratio.of(samples.matmul)
        spread = f"{ratio.median:.4f} [{ratio.low:.4f} - {ratio.high:.4f}]"
        verdicts.append(
            Verdict("matrix products while initialised", ratio.median, spread, "< 1.01", ratio.median < 1.01)
        )
    if samples.bytes_sent:
        fewer = samples.bytes_sent["none"] / samples.bytes_sent["int8"]
        verdicts.append(
            Verdict("int8 between hosts: bytes sent, times fewer", fewer, f"{fewer:.2f}", ">= 3.5", fewer >= 3.5)
        )
    return verdicts


def _training(samples: Samples) -> str:
    systems = samples.systems("train")
    rows = []
    for case in samples.cases("train"):
        rates = [f"{1 / statistics.median(samples.seconds[case, system]):.2f}" for system in systems]
        ours = [system for system in systems if system.startswith("horovod")]
        against = [samples.ratio(case, "ddp", system).text() for system in ours]
        shares = [samples.ratio(case, "alone", system).text() for system in [*ours, "ddp"]]
        rows.append([case.what, str(case.ranks), *rates, *against, *shares])
    head = ["model", "ranks", *(f"{system} steps/s" for system in systems)]
    ours = [system for system in systems if system.startswith("horovod")]
    head += [*(f"{system} x ddp" for system in ours), *(f"{system} x alone" for system in [*ours, "ddp"])]
    return table(head, rows)


def _collectives(samples: Samples) -> str:
    rows = []
    for case in samples.cases("allreduce"):
        times = [f"{statistics.median(samples.seconds[case, system]) * 1e6:.3g}" for system in ("horovod", "ddp")]
        ratio = samples.ratio(case, "ddp", "horovod").text()
        rows.append([size_text(int(case.what)), str(case.ranks), *times, ratio])
    return table(["allreduce", "ranks", "horovod us", "torch.distributed us", "ratio"], rows)


def text(samples: Samples) -> str:
    parts = ["## PyTorch\n"]
    if samples.cases("train"):
        parts += [_training(samples), ""]
    if samples.cases("allreduce"):
        parts += [_collectives(samples), ""]
    rows = [[v.title, v.spread, v.bar, "reached" if v.reached else "missed"] for v in judge(samples)]
    parts += [table(["figure", "median [quartiles]", "goal", "verdict"], rows)]
    if samples.import_seconds:
        seconds = ", ".join(f"{name} {value:.2f} s" for name, value in samples.import_seconds.items())
        parts += ["", f"From the start of the process, two at a time: {seconds}."]
    return "\n".join(parts)


def document(samples: Samples) -> dict[str, Any]:
    cells = [asdict(case) | {"system": system, "seconds": values} for (case, system), values in samples.seconds.items()]
    return {
        "machine": machine(),
        "cells": cells,
        "imports": samples.imports,
        "import_seconds": samples.import_seconds,
        "matmul": samples.matmul,
        "bytes_sent": samples.bytes_sent,
        "verdicts": [asdict(verdict) for verdict in judge(samples)],
    }


def draw(samples: Samples, path: Path) -> None:
    """Training as shares of the speed without communication, and allreduce as time over size."""
    if not importlib.util.find_spec("matplotlib"):
        print("matplotlib is not installed: no picture")
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    groups = dict.fromkeys(case.ranks for case in samples.cases("allreduce"))
    parts = bool(samples.cases("train")) + len(groups)
    if parts == 0:
        return
    figure, axes = plt.subplots(1, parts, figsize=(6.5 * parts, 4.5), squeeze=False, layout="constrained")
    places = list(axes[0])
    if samples.cases("train"):
        axis = places.pop(0)
        cases, systems = samples.cases("train"), [s for s in samples.systems("train") if s != "alone"]
        width = 0.8 / len(systems)
        for number, system in enumerate(systems):
            ratios = [samples.ratio(case, "alone", system) for case in cases]
            spots = [place + number * width for place in range(len(cases))]
            errors = [[r.median - r.low for r in ratios], [r.high - r.median for r in ratios]]
            axis.bar(spots, [r.median for r in ratios], width, yerr=errors, label=system, color=f"C{number}")
        middle = 0.4 - width / 2
        names = [f"{case.what}, {case.ranks} ranks" for case in cases]
        axis.set_xticks([place + middle for place in range(len(cases))], names)
        axis.set(title="training", ylabel="speed against processes that do not communicate")
        axis.axhline(1, color="black", linewidth=0.8)
        axis.grid(alpha=0.3, axis="y")
        axis.legend(fontsize=8)
    for axis, ranks in zip(places, groups, strict=True):
        cases = [case for case in samples.cases("allreduce") if case.ranks == ranks]
        sizes = [int(case.what) for case in cases]
        for number, (system, label) in enumerate(
            (("horovod", "hvd.allreduce_"), ("ddp", "torch.distributed.all_reduce"))
        ):
            values = [[1e6 * value for value in samples.seconds[case, system]] for case in cases]
            style = {"linewidth": 2.2} if system == "horovod" else {"linewidth": 1, "linestyle": "--"}
            axis.plot(sizes, [statistics.median(v) for v in values], label=label, color=f"C{number}", **style)
            axis.fill_between(sizes, [min(v) for v in values], [max(v) for v in values], color=f"C{number}", alpha=0.08)
        axis.set(title=f"allreduce, {ranks} ranks", xscale="log", yscale="log", ylabel="us", xlabel="bytes")
        axis.set_xticks(sizes[::2], [size_text(size) for size in sizes[::2]], rotation=45)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.savefig(path, dpi=110)
