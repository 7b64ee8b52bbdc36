"""A rank of a job: forms its worlds, runs their programs and compares every result with the model."""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import calls
import model
import numpy as np
import placement
from operations import Operation
from program import Job, Phase, Program, World
from resources import Resources, now

import horovod.numpy as hvd


class Lost(Exception):
    """A world has ended because a rank is gone, as it should be."""


class Worker:
    """One process of a job. `progress` is called after each program."""

    def __init__(
        self, job: Job, process: int, shared: dict[str, str], progress: Callable[[], None], inject: str = ""
    ) -> None:
        self._job = job
        self._process = process
        self._shared = shared
        self._progress = progress
        self._cores = sorted(os.sched_getaffinity(0))
        self._used: list[Resources] = []
        self.where = "start"
        self.inject = inject if process == 0 else ""

    def run(self) -> list[Resources]:
        """All worlds; what was in use after each of them."""
        for number, world in enumerate(self._job.worlds):
            if self._process in world.members:
                self.where = f"world {number}"
                rank = world.members.index(self._process)
                chance = random.Random(f"{self._job.name}/{number}/{rank}")
                RankOfWorld(self, world, rank, chance).run()
                self._used.append(now())
        return self._used

    def begin(self, world: World, rank: int) -> None:
        """Tell the next `init` everything about the world."""
        for name in [name for name in os.environ if name.startswith("HOROVOD_") and name != "HOROVOD_LIBRARY"]:
            del os.environ[name]
        hosts = list(world.hosts)
        os.environ.update(self._shared)
        os.environ.update(HOROVOD_SIZE=str(len(world.members)), HOROVOD_DYNAMIC_PROCESS_SETS="1")
        os.environ.update(placement.place(hosts, rank) | world.knobs | world.own_knobs[rank])
        os.sched_setaffinity(0, {self._cores[core % len(self._cores)] for core in world.cores[rank]})

    def did_program(self) -> None:
        self._progress()


class RankOfWorld:
    """One rank of one world."""

    def __init__(self, worker: Worker, world: World, rank: int, chance: random.Random) -> None:
        self._worker = worker
        self._world = world
        self._rank = rank
        self._chance = chance
        self._sets: dict[tuple[int, ...], hvd.ProcessSet] = {}
        self._may_be_lost = False

    def run(self) -> None:
        self._worker.begin(self._world, self._rank)
        static = [hvd.ProcessSet(ranks) for ranks in self._world.static_sets]
        try:
            hvd.init(process_sets=static)
        except (hvd.HorovodInternalError, ValueError):
            if self._world.may_be_refused:
                return
            raise
        self._sets = dict(zip(self._world.static_sets, static, strict=True))
        place = self._worker.where
        try:
            for number, program in enumerate(self._world.programs):
                self._worker.where = f"{place} program {number}"
                if self._world.victims and number == self._world.victim_program:
                    self._lose_somebody()
                self._program(program)
                self._worker.did_program()
            self._worker.where = f"{place} ending"
            self._end()
        except Lost:
            self._all_fails_now()
        hvd.shutdown()

    # ---- ranks that are lost

    def _lose_somebody(self) -> None:
        self._may_be_lost = True
        kind = self._world.victims.get(self._rank)
        if kind is not None:
            pause = self._chance.choice((0.0, 1e-4, 1e-3, 5e-3)) * self._chance.random()
            threading.Thread(target=_vanish, args=(kind, pause), daemon=True).start()

    def _all_fails_now(self) -> None:
        for _ in range(2):
            try:
                hvd.allreduce(np.ones(3), name="after the end")
            except hvd.HorovodInternalError:
                continue
            raise AssertionError("an allreduce succeeded after the world had failed")

    def _end(self) -> None:
        """So that no rank shuts down while others have work to do; or just so."""
        if self._world.victims:
            if self._rank in self._world.victims:
                _vanish(self._world.victims[self._rank], 0)
            self._guard(hvd.barrier)
            raise AssertionError("a barrier succeeded without the ranks that are gone")
        if self._world.ending == "barrier":
            hvd.barrier()
        else:
            result = hvd.allreduce(np.full(3, 2.0), op=hvd.Sum, name="last")
            model.compare(
                Operation(0, "allreduce", "last", tuple(range(hvd.size())), True),
                [result],
                [np.full(3, 2.0 * hvd.size())],
            )
        if self._world.ending == "pending":
            self._leave_pending()
        if self._world.ending == "inside":
            self._leave_inside()

    def _leave_pending(self) -> None:
        """Operations that some ranks wait for and others leave behind; they succeed or fail, in time."""
        try:
            handles = [
                hvd.allreduce_async(np.full(count, 1.0), op=hvd.Sum, name=f"p{count}") for count in (1, 100, 30_000)
            ]
            if self._chance.random() < 0.5:
                for count, handle in zip((1, 100, 30_000), handles, strict=True):
                    operation = Operation(0, "allreduce", f"p{count}", tuple(range(hvd.size())), True)
                    model.compare(operation, [hvd.synchronize(handle)], [np.full(count, float(hvd.size()))])
        except hvd.HorovodInternalError:
            pass  # another rank has left

    def _leave_inside(self) -> None:
        """The world is shut down while a thread is in an operation, which succeeds or fails, in time."""
        rows = self._world.programs[0].phases[0].repeat * 5000
        wanted = [np.full((rows * hvd.size(), 3), 1.0)]
        operation = Operation(0, "allgather", "inside", tuple(range(hvd.size())), True)

        def gather() -> None:
            try:
                while True:
                    model.compare(operation, [hvd.allgather(np.ones((rows, 3)), name="inside")], wanted)
            except (hvd.HorovodInternalError, ValueError):
                pass

        def leave() -> None:
            _spin(self._chance.random() * 5e-3)
            hvd.shutdown()

        self._in_threads([leave, gather])

    # ---- programs

    def _program(self, program: Program) -> None:
        if self._worker.inject == "hang":
            signal.pause()
        if self._worker.inject == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        for phase in program.phases:
            for turn in range(phase.repeat):
                self._phase(phase, turn)

    def _phase(self, phase: Phase, turn: int) -> None:
        if phase.kind == "overlap":
            self._in_threads(self._overlapping(phase, turn))
        elif phase.kind == "lanes":
            self._in_threads([self._lane(lane, turn) for lane in phase.lanes])
        elif phase.kind == "join":
            self._join(phase, turn)
        else:
            self._in_threads([lambda: self._change_sets(phase), *self._overlapping(phase, turn)])

    def _change_sets(self, phase: Phase) -> None:
        self._jitter(self._chance)
        if phase.kind == "add":
            self._sets[phase.ranks] = self._guard(lambda: hvd.add_process_set(list(phase.ranks)))
            return
        if not self._guard(lambda: hvd.remove_process_set(self._sets[phase.ranks])):
            raise AssertionError(f"the process set {phase.ranks} was not removed")

    def _overlapping(self, phase: Phase, turn: int) -> list[Callable[[], None]]:
        """The operations in this rank's own order, divided between its own number of threads."""
        mine = [operation for operation in phase.lanes[0] if self._rank in operation.members]
        self._chance.shuffle(mine)
        threads = self._chance.choice((1, 1, 1, 2, 3))
        doomed = phase.ranks if phase.kind == "remove" else None
        return [
            self._share(mine[start::threads], turn, random.Random(self._chance.random()), doomed)
            for start in range(threads)
            if mine[start::threads]
        ]

    def _share(
        self, share: list[Operation], turn: int, chance: random.Random, doomed: tuple[int, ...] | None
    ) -> Callable[[], None]:
        def run() -> None:
            begun = []
            for operation in share:
                self._jitter(chance)
                try:
                    begun.append((operation, *calls.begin(operation, self._rank, turn, self._set_of(operation))))
                except (hvd.HorovodInternalError, ValueError) as error:
                    self._judge_failure(operation, error, operation.members == doomed)
            chance.shuffle(begun)
            for operation, handle, given in begun:
                if chance.random() < 0.1:
                    hvd.poll(handle)
                self._check(
                    operation,
                    turn,
                    functools.partial(calls.finish, operation, handle, given),
                    operation.members == doomed,
                )

        return run

    def _lane(self, lane: tuple[Operation, ...], turn: int) -> Callable[[], None]:
        chance = random.Random(self._chance.random())

        def run() -> None:
            for operation in lane:
                if self._rank in operation.members:
                    self._jitter(chance)
                    self._check(
                        operation,
                        turn,
                        functools.partial(calls.call, operation, self._rank, turn, self._set_of(operation)),
                    )

        return run

    def _join(self, phase: Phase, turn: int) -> None:
        done = phase.counts[self._rank]
        for number, operation in enumerate(phase.lanes[0][:done]):
            present = tuple(rank for rank, count in enumerate(phase.counts) if count > number)
            self._jitter(self._chance)
            self._check(
                operation, turn, functools.partial(calls.call, operation, self._rank, turn, None), present=present
            )
        last = self._guard(hvd.join)
        if phase.counts[last] != max(phase.counts):
            raise AssertionError(f"join says that rank {last} was the last one; operations of each: {phase.counts}")

    # ---- results

    def _set_of(self, operation: Operation) -> hvd.ProcessSet | None:
        return None if operation.is_world else self._sets[operation.members]

    def _check(
        self,
        operation: Operation,
        turn: int,
        call: Callable[[], list[Any]],
        may_fail: bool = False,
        present: tuple[int, ...] | None = None,
    ) -> None:
        try:
            results = call()
        except (hvd.HorovodInternalError, ValueError) as error:
            self._judge_failure(operation, error, may_fail)
            return
        if self._worker.inject == "value" and operation.verb == "allreduce" and results[0].size > 0:
            results[0].flat[-1] += 1
        try:
            if operation.wrong:
                raise model.Difference(f"no error, although rank {operation.odd} has another {operation.wrong}")
            calls.check(operation, self._rank, turn, self._world.hosts, results, present)
        except AssertionError as error:
            raise model.Difference(f"{operation}, turn {turn}: {error}") from None

    def _judge_failure(self, operation: Operation, error: Exception, may_fail: bool) -> None:
        if may_fail or (operation.wrong and isinstance(error, hvd.HorovodInternalError)):
            return
        if self._may_be_lost and isinstance(error, hvd.HorovodInternalError):
            raise Lost(str(error))
        raise AssertionError(f"{operation} failed: {type(error).__name__}: {error}") from error

    def _guard(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except hvd.HorovodInternalError as error:
            if self._may_be_lost:
                raise Lost(str(error)) from None
            raise

    # ---- time and threads

    def _jitter(self, chance: random.Random) -> None:
        if chance.random() < 0.08:
            _spin(chance.random() * chance.choice((1e-5, 1e-4, 1e-3)))

    def _in_threads(self, work: list[Callable[[], None]]) -> None:
        """All at once, the first on this thread; an error of any is raised, Lost only when there is no other."""
        errors: list[Exception] = []

        def run(each: Callable[[], None]) -> None:
            try:
                each()
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(each,)) for each in work[1:]]
        for thread in threads:
            thread.start()
        if work:
            run(work[0])
        for thread in threads:
            thread.join()
        for error in sorted(errors, key=lambda each: isinstance(each, Lost)):
            raise error


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def _vanish(kind: str, pause: float) -> None:
    _spin(pause)
    os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGSTOP)


def run_process(
    job: Job, process: int, shared: dict[str, str], progress: Callable[[], None], report: int, inject: str = ""
) -> int:
    """The life of a process of the job; writes what came of it to the descriptor `report`, as JSON."""
    worker = Worker(job, process, shared, progress, inject)
    told: dict[str, Any]
    try:
        told = {"used": [list(each) for each in worker.run()]}
    except BaseException as error:
        told = {"where": worker.where, "error": f"{type(error).__name__}: {error}"}
        if not isinstance(error, model.Difference):
            told["traceback"] = traceback.format_exc()
    with open(report, "w") as pipe:
        json.dump(told, pipe)
    return 1 if "error" in told else 0
