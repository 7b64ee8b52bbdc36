"""Makes a job that goes wrong shorter, as long as it goes wrong in the same way.

Races do not show in every run, so every shorter job is run several times; what then succeeds by chance stays long.
"""

from __future__ import annotations

import dataclasses
import select
import time
from collections.abc import Iterator

from processes import JobFailed, RunningJob
from program import Job, Phase, Program, World, narrow

TRIES = 5
HANG_SECONDS = 5  # on a busy machine a job may seem to hang that does not: then it only stays longer


class Shortener:
    """Gives up at a time, with the shortest job found until then."""

    def __init__(self, kind: str, inject: str, seconds: float) -> None:
        self._kind = kind
        self._inject = inject
        self._deadline = time.monotonic() + seconds

    def shorten(self, job: Job, world: int, program: int | None) -> Job | None:
        """None when no part of the job goes wrong in the same way."""
        found = next((each for each in _parts(job, world, program) if self._fails(each)), None)
        while found is not None:
            shorter = next((each for each in _shorter(found) if self._fails(each)), None)
            if shorter is None:
                break
            found = shorter
        return found

    def _fails(self, job: Job) -> bool:
        return any(self._fails_once(job) for _ in range(TRIES) if time.monotonic() < self._deadline)

    def _fails_once(self, job: Job) -> bool:
        running = RunningJob(job, HANG_SECONDS, self._inject)
        try:
            while not running.tick():
                select.select(running.descriptors(), [], [], 0.01)
        except JobFailed as problem:
            return problem.kind == self._kind
        finally:
            running.close()
        return False


def _parts(job: Job, world: int, program: int | None) -> Iterator[Job]:
    if program is not None:
        yield narrow(job, world, program)
    whole = narrow(job, world, None)
    if program is not None:
        kept = whole.worlds[0]
        yield _with(whole, dataclasses.replace(kept, programs=kept.programs[: program + 1]))
    yield whole


def _shorter(job: Job) -> Iterator[Job]:
    """Without one of its programs, phases or operations. Sets are added and removed as before."""
    world = job.worlds[0]
    changes = ("add", "remove")
    for number, program in enumerate(world.programs):
        if len(world.programs) > 1 and not any(phase.kind in changes for phase in program.phases):
            rest = world.programs[:number] + world.programs[number + 1 :]
            last = max(0, world.victim_program - (number < world.victim_program))
            yield _with(job, dataclasses.replace(world, programs=rest, victim_program=min(last, len(rest) - 1)))
        for place, phase in enumerate(program.phases):
            if phase.kind not in changes and len(program.phases) > 1:
                yield _with_phase(job, world, number, program, place, ())
            for smaller in _smaller_phases(phase):
                yield _with_phase(job, world, number, program, place, (smaller,))


def _smaller_phases(phase: Phase) -> Iterator[Phase]:
    if phase.repeat > 1:
        yield dataclasses.replace(phase, repeat=1)
    if phase.kind == "join":
        return  # the members and their number belong together
    every = [operation for lane in phase.lanes for operation in lane]
    if len(every) > 2:
        yield from (dataclasses.replace(phase, lanes=((operation,),)) for operation in every)
    for number, lane in enumerate(phase.lanes):
        for place in range(len(lane)):
            rest = lane[:place] + lane[place + 1 :]
            lanes = (*phase.lanes[:number], rest, *phase.lanes[number + 1 :])
            yield dataclasses.replace(phase, lanes=lanes)


def _with_phase(job: Job, world: World, number: int, program: Program, place: int, phases: tuple[Phase, ...]) -> Job:
    changed = dataclasses.replace(program, phases=program.phases[:place] + phases + program.phases[place + 1 :])
    programs = (*world.programs[:number], changed, *world.programs[number + 1 :])
    return _with(job, dataclasses.replace(world, programs=programs))


def _with(job: Job, world: World) -> Job:
    return dataclasses.replace(job, worlds=(world,))
