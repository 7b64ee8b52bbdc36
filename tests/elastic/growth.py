"""What the processes of a job hold, and whether it grows while the job does the same again and again.

    usage = Growth()
    for _ in range(12):
        ...                                  # one more generation
        usage.measure({"launcher": pid})     # at a moment at which the job is at rest
    usage.check()

A leak grows in every part of a run. What is mapped once, or is there only for a moment, does not.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

PARTS = 3
MEMORY = 4 << 20  # an allocator keeps what it was given for a while


def processes_below(pid: int) -> list[int]:
    """A process and everything that came out of it, as far as it lives."""
    children = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            children[int(parent)].append(int(entry.parent.name))
    found = [pid]
    for each in found:
        found += children[each]
    return found


def launchers_of(pid: int) -> dict[str, int]:
    """The launcher, its guard, and the agents below it."""
    named = {}
    own = Path(f"/proc/{pid}/exe").resolve()
    for each in processes_below(pid):
        try:
            if Path(f"/proc/{each}/exe").resolve() == own:
                named[f"horovodrun (pid {each})"] = each
        except (FileNotFoundError, ProcessLookupError):
            continue
    return named


class Growth:
    """Samples of what named processes hold, in order."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], list[int]] = defaultdict(list)

    def measure(self, processes: Mapping[str, int]) -> None:
        """One sample of each; those that have ended meanwhile are left out."""
        for name, pid in processes.items():
            try:
                status = Path(f"/proc/{pid}/status").read_text()
                descriptors = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
            except (FileNotFoundError, ProcessLookupError):
                continue
            lines = dict(line.split(":", 1) for line in status.splitlines())
            self._samples[name, "descriptors"].append(descriptors)
            self._samples[name, "threads"].append(int(lines["Threads"]))
            self._samples[name, "bytes"].append(int(lines["RssAnon"].split()[0]) << 10)

    def leaks(self, least: int = 2 * PARTS) -> list[str]:
        """What grew in every part of the run; of those with at least so many samples."""
        found = []
        for (name, kind), samples in self._samples.items():
            if len(samples) < least:
                continue
            cuts = [len(samples) * part // PARTS for part in range(PARTS + 1)]
            lows = [min(samples[begin:end]) for begin, end in itertools.pairwise(cuts)]
            grew = all(before < after for before, after in itertools.pairwise(lows))
            if grew and (kind != "bytes" or lows[-1] - lows[0] > MEMORY):
                found.append(f"{name}: {kind} grow: {samples}")
        return found

    def check(self) -> None:
        """AssertionError if something grew, or nothing was watched for long enough."""
        watched = [samples for samples in self._samples.values() if len(samples) >= 2 * PARTS]
        assert watched, "no process was measured often enough"
        assert not self.leaks(), "\n".join(self.leaks())
