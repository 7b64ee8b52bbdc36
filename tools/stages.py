"""Runs stages of tools/test.sh in lanes side by side, and ends with a table of them and of the slowest cases.

    tools/stages.py "ctest asan tsan" "hosts launcher" "torch"      one argument is one lane

A lane runs its stages one after the other; one that is done takes over the last stage of the lane that has most left.
What a stage writes is shown when it has ended, and stays in build/test/STAGE.log. A stage that fails does not stop the
others; the end names all that failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build/test"
# The line that tools/test.sh prints after ctest, which counts processes of up to 16 cases.
CASES = re.compile(r"(\d+) cases passed, (\d+) skipped$", re.MULTILINE)
SLOWEST = 10


@dataclass
class Case:
    name: str
    seconds: float
    outcome: str  # passed, failed or skipped


@dataclass
class Result:
    """What became of a stage."""

    stage: str
    seconds: float
    processor_seconds: float  # of all processes that the stage has waited for
    succeeded: bool
    cases: list[Case] = field(default_factory=list)
    compiled: dict[str, int] = field(default_factory=dict)  # cases of C++ suites by outcome

    def count(self, outcome: str) -> int:
        return sum(case.outcome == outcome for case in self.cases) + self.compiled.get(outcome, 0)


class Run:
    """All stages of one call."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.results: list[Result] = []
        self._mutex = threading.Lock()  # guards results, _running and the screen
        self._running: list[subprocess.Popen[bytes]] = []
        self._stopped = False

    def lane(self, own: deque[str], all_lanes: list[deque[str]]) -> None:
        while stage := take(own, all_lanes):
            self.stage(stage)

    def stage(self, stage: str) -> None:
        reports = LOGS / stage
        reports.mkdir(parents=True, exist_ok=True)
        for old in reports.glob("*.json"):
            old.unlink()
        began = time.monotonic()
        with (LOGS / f"{stage}.log").open("wb") as log:
            with self._mutex:
                if self._stopped:
                    return
                self._say(f"{stage} begins")
                process = subprocess.Popen(
                    ["tools/test.sh", "--alone", stage],
                    cwd=ROOT,
                    env={**os.environ, "TEST_REPORTS": str(reports)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._running.append(process)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        text = (LOGS / f"{stage}.log").read_text(errors="replace")
        seconds, processor_seconds = time.monotonic() - began, used.ru_utime + used.ru_stime
        succeeded = process.returncode == 0
        result = Result(stage, seconds, processor_seconds, succeeded, read_cases(reports), count_compiled(text))
        with self._mutex:
            self._running.remove(process)
            self.results.append(result)
            print(f"\n== {stage} ==\n{text.rstrip()}", flush=True)
            self._say(f"{stage} {'took' if succeeded else 'FAILED after'} {result.seconds:.0f} s")

    def stop(self) -> None:
        with self._mutex:
            self._stopped = True
            for process in self._running:
                os.killpg(process.pid, signal.SIGTERM)

    def _say(self, text: str) -> None:
        print(f"-- {time.monotonic() - self.began:5.0f} s: {text}", flush=True)


def take(own: deque[str], lanes: list[deque[str]]) -> str:
    """The next stage, or nothing. Any thread: a deque gives each of its elements once."""
    with contextlib.suppress(IndexError):
        return own.popleft()
    while longest := max(lanes, key=len):
        with contextlib.suppress(IndexError):  # another lane may have taken its last stage
            return longest.pop()
    return ""


def read_cases(reports: Path) -> list[Case]:
    """What tests/conftest.py wrote in every pytest of the stage."""
    return [Case(**json.loads(line)) for file in reports.glob("*.json") for line in file.read_text().splitlines()]


def count_compiled(log: str) -> dict[str, int]:
    found = CASES.findall(log)
    return {"passed": sum(int(passed) for passed, _ in found), "skipped": sum(int(skipped) for _, skipped in found)}


def table(results: list[Result]) -> str:
    lines = [f"{'stage':<14}{'cases':>7}{'skipped':>9}{'seconds':>9}{'CPU':>7}"]
    for result in results:
        end = "" if result.succeeded else "  failed"
        cases = result.count("passed") + result.count("failed")
        times = f"{result.seconds:>9.0f}{result.processor_seconds:>7.0f}"
        lines.append(f"{result.stage:<14}{cases:>7}{result.count('skipped'):>9}{times}{end}")
    lines.append(f"{'':<30}{sum(result.processor_seconds for result in results):>16.0f}")
    slowest = sorted((case for result in results for case in result.cases), key=lambda case: -case.seconds)
    if slowest:
        lines += ["", "slowest cases"] + [f"{case.seconds:>8.1f} s  {case.name}" for case in slowest[:SLOWEST]]
    return "\n".join(lines)


def main(lanes: list[deque[str]]) -> int:
    # SIGINT is ignored in the background and SIGHUP under nohup; programs under test would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    run = Run()
    threads = [threading.Thread(target=run.lane, args=(lane, lanes)) for lane in lanes]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        run.stop()
        raise
    failed = [result.stage for result in run.results if not result.succeeded]
    print(f"\n{table(run.results)}\n\nall stages: {time.monotonic() - run.began:.0f} s")
    counts = {name: sum(result.count(name) for result in run.results) for name in ("passed", "failed", "skipped")}
    counts["failed"] = max(counts["failed"], len(failed))  # what failed outside of a case counts, too
    if failed:
        print(f"failed: {' '.join(failed)}")
    print(f"tests: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main([deque(lane.split()) for lane in sys.argv[1:]]))
