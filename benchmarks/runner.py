"""Runs programs: one after the other, at all places, in rounds."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from machine import CPUS
from places import Network, Place
from plans import SPECIAL, Band, Cases, Plan, bands, cases_of
from programs import Program, installed
from samples import Sample, parse

TIME_LIMIT = 180  # seconds for one program; some peers hang now and then
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None


def arguments(cases: Cases) -> list[str]:
    kinds = dict.fromkeys(kind for kind, _ in cases)
    return [f"{kind}:" + ",".join(str(size) for k, size in cases if k == kind) for kind in kinds]


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Launchers put their ranks into groups of their own: they are asked first, so that they can stop them."""
    for process in processes:
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, signal_number)
                process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                continue
            except ProcessLookupError:
                break


def wait(processes: Sequence[subprocess.Popen[bytes]]) -> str:
    """Until all have ended well, or one has not: then the others wait in vain. Returns what went wrong."""
    deadline = time.monotonic() + TIME_LIMIT
    running = {os.pidfd_open(process.pid): process for process in processes}
    try:
        while running:
            ready, _, _ = select.select(list(running), [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return f"no end after {TIME_LIMIT} s"
            for descriptor in ready:
                process = running.pop(descriptor)
                os.close(descriptor)
                if process.wait() != 0:
                    return f"exit code {process.returncode}"
        return ""
    finally:
        for descriptor in running:
            os.close(descriptor)


class Runner:
    def __init__(self, plan: Plan, pin: bool) -> None:
        self.plan = plan
        self.pin = pin
        self.network = Network()
        self.samples: list[Sample] = []
        self.failures: list[str] = []
        self.own_failures = 0

    def run(self, round_number: int, place: Place, program: Program, ranks: int, band: Band) -> None:
        self.network.prepare(place)
        settings = [str(ranks), str(self.plan.samples), str(band.milliseconds), *arguments(band.cases)]
        # Hosts share no memory file system, but the machine's files.
        directory_of_block = None if place.kind == "hosts" else MEMORY
        with tempfile.TemporaryDirectory(prefix="horovod-bench-", dir=directory_of_block) as directory:
            store, out, errors = (Path(directory) / name for name in ("store", "out", "errors"))
            store.mkdir()
            common = {"BENCH_BLOCK": f"{directory}/block", "BENCH_GLOO_STORE": str(store)}
            common |= {"BENCH_CPUS": ",".join(map(str, CPUS)), "BENCH_PIN": str(int(self.pin))}
            processes: list[subprocess.Popen[bytes]] = []
            with out.open("ab") as out_file, errors.open("ab") as error_file:
                try:
                    for process in program.start(place, ranks):
                        processes.append(
                            subprocess.Popen(
                                self.network.command(process.host, [*process.command, *settings]),
                                env={**os.environ, **common, **process.environment},
                                stdin=subprocess.DEVNULL,
                                stdout=out_file,
                                stderr=error_file,
                                start_new_session=True,
                            )
                        )
                    problem = wait(processes)
                finally:
                    stop([process for process in processes if process.poll() is None])
            if problem:
                self.network.close()
                # A launcher says something after the rank that failed, and draws lines.
                said = [line.strip() for line in errors.read_text().splitlines() if line.strip("- \t")]
                problem = "; ".join(dict.fromkeys([*said[:1], *said[-1:], problem]))
            lines = [line for line in out.read_text().splitlines() if line.count("\t") >= 5]
        samples = [parse(line, round_number, place.name, program.name) for line in lines]
        self.samples += samples
        if not problem and any(sample.wrong for sample in samples):
            problem = "wrong result: " + ", ".join(sorted({f"{s.collective} {s.bytes}" for s in samples if s.wrong}))
        if problem:
            self.failures.append(f"round {round_number}, {place.name}, {program.name}, {ranks} ranks: {problem}")
            self.own_failures += program.ours
            print(self.failures[-1], flush=True)

    def run_round(self, number: int, places: Sequence[Place], all_ranks: list[int], only: set[str]) -> None:
        for place in places:
            programs = installed(place.kind)
            order = programs if number % 2 == 0 else programs[::-1]
            for ranks in all_ranks:
                for band in bands(self.plan, place, only):
                    for program in order:
                        if cases := cases_of(program, band):
                            self.run(number, place, program, ranks, Band(cases, band.milliseconds))

    def run_special(self, number: int, place: Place, all_ranks: list[int]) -> None:
        for ranks in all_ranks:
            for program in installed(place.kind):
                if program.name in SPECIAL:
                    self.run(number, place, program, ranks, Band(SPECIAL[program.name], self.plan.milliseconds))
