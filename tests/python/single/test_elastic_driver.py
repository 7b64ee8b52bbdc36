"""The elastic driver as Python hosts use it: a whole job without processes, and mistakes that are named."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from horovod._native.driver import (
    Action,
    AssignPlace,
    Driver,
    Fail,
    Finish,
    LeaveWorker,
    NotifyWorker,
    Say,
    StartWorker,
    StopWorker,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Host:
    """What Ray or Spark will do: keeps workers, does actions, and lets time pass when nothing happens."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock()
        self.driver = Driver(**settings, seed=1, clock=self.clock)
        self.starting: list[int] = []
        self.notified: list[int] = []
        self.places: dict[int, AssignPlace] = {}  # of the workers that train
        self.generations: list[list[int]] = []  # the workers by rank
        self.said: list[str] = []
        self.exit_code: int | None = None

    def act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case StartWorker(worker=worker):
                    self.starting.append(worker)
                case NotifyWorker(worker=worker):
                    self.notified.append(worker)
                case AssignPlace(worker=worker, rank=rank):
                    if rank == 0:
                        self.generations.append([])
                    self.generations[-1].append(worker)
                    self.places[worker] = action
                case Say(text=text):
                    self.said.append(text)
                case Finish(exit_code=code):
                    self.exit_code = code
                case StopWorker() | LeaveWorker() | Fail():
                    raise AssertionError(action)

    def ask(self, worker: int) -> None:
        self.places.pop(worker, None)
        self.act(self.driver.worker_ready(worker))

    def step(self) -> None:
        """One thing that is bound to happen; if there is none, time passes."""
        if self.starting:
            self.ask(self.starting.pop(0))
        elif self.notified:
            self.ask(self.notified.pop(0))
        else:
            seconds = self.driver.next_timer()
            assert seconds is not None, self.driver.waiting_for
            self.clock.now += seconds
            self.act(self.driver.timer())

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(100):
            if condition():
                return
            self.step()
        raise AssertionError(self.said)


def test_a_whole_job_start_death_reform_growth_and_finish() -> None:
    host = Host(min_np=2, max_np=4, np=3)
    assert "3 slots" in host.driver.waiting_for
    host.act(host.driver.hosts_discovered({"a": 2, "b": 1}))
    host.until(lambda: len(host.places) == 3)
    assert host.generations == [[1, 2, 3]]
    assert host.places[2] == AssignPlace(2, 1, "a", 1, 3, 1, 2, 0, 1)
    assert host.driver.waiting_for == ""

    del host.places[2]
    host.act(host.driver.worker_exited(2, -9))
    assert any("was killed by signal 9" in text for text in host.said)
    host.ask(1)
    assert "to ask for the next place" in host.driver.waiting_for
    host.ask(3)
    assert host.generations[1:] == [[1, 3]]

    host.act(host.driver.hosts_discovered({"a": 2, "b": 2}))
    host.until(lambda: len(host.places) == 4)
    assert [place.worker for place in host.places.values() if place.rank == 0] == [1], "a survivor"
    assert {place.generation for place in host.places.values()} == {len(host.generations)}

    for worker in list(host.places):
        assert not host.driver.finished
        host.act(host.driver.worker_exited(worker, 0))
    assert host.driver.finished
    assert host.exit_code == 0
    assert host.driver.timer() == []


def kinds(actions: list[Action]) -> list[Action]:
    return [action for action in actions if not isinstance(action, Say)]


def test_every_other_event_has_its_actions() -> None:
    driver = Driver(1, np=3, clock=lambda: 0.0)
    assert kinds(driver.hosts_discovered({"a": 1, "b": 1, "c": 1})) == [
        StartWorker(1, "a", 0),
        StartWorker(2, "b", 0),
        StartWorker(3, "c", 0),
    ]
    for worker in (1, 2, 3):
        actions = kinds(driver.worker_ready(worker))
    assert len(actions) == 3
    notices = kinds(driver.worker_leaving(2, "spot instance"))
    assert [(each.worker, each.change) for each in notices if isinstance(each, NotifyWorker)] == [
        (1, 1),
        (2, 1),
        (3, 1),
    ]
    left = kinds(driver.worker_ready(2, lost_rank=2))
    assert [type(each) for each in left] == [LeaveWorker]
    assert kinds(driver.host_lost("c", "unplugged")) == []
    assert kinds(driver.stop("by hand", 7)) == [Fail("by hand"), StopWorker(1), StopWorker(2)]
    assert kinds(driver.worker_exited(1, -15)) == []
    assert kinds(driver.worker_exited(2, 0)) == [Finish(7)]
    assert driver.next_timer() is None


def test_a_worker_that_cannot_be_started() -> None:
    driver = Driver(1, clock=lambda: 0.0)
    driver.hosts_discovered({"a": 1, "b": 1})
    warnings = [each for each in driver.start_failed(2, "no image") if isinstance(each, Say) and each.level == 3]
    assert "worker 2 (host b) could not be started: no image" in warnings[0].text


@pytest.mark.parametrize("limit", [0, 1])
def test_a_reset_limit_of_zero_is_a_limit(limit: int) -> None:
    driver = Driver(1, np=2, reset_limit=limit, clock=lambda: 0.0)
    driver.hosts_discovered({"a": 2})
    driver.worker_ready(1)
    driver.worker_ready(2)
    driver.worker_exited(2, 1)
    failed = [action for action in driver.worker_ready(1) if isinstance(action, Fail)]
    assert [action.text.startswith("the reset limit of 0 is reached") for action in failed] == [True] * (1 - limit)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_np": 0}, "at least 1, not 0"),
        ({"min_np": 3, "max_np": 2}, "could never start"),
        ({"min_np": 3, "np": 2}, "below its minimum"),
        ({"min_np": 2**31}, "min_np is out of range"),
        ({"min_np": 1, "max_np": 0}, "max_np must be more than 0, not 0"),
        ({"min_np": 1, "elastic_timeout": 0}, "elastic_timeout must be more than 0"),
        ({"min_np": 1, "start_timeout": -1}, "start_timeout must be more than 0"),
        ({"min_np": 1, "cooldown_range": (5, 2)}, "at most the second"),
        ({"min_np": 1, "reset_limit": -1}, "reset_limit must not be negative"),
        ({"min_np": 1, "clock": lambda: -5.0}, "not -5"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Driver(**settings)


def test_bad_events_are_named_and_change_nothing() -> None:
    driver = Driver(1)
    for call, message in [
        (lambda: driver.worker_ready(1), "there is no worker 1"),
        (lambda: driver.hosts_discovered({"a": -1}), "host a cannot have -1 slots"),
        (lambda: driver.hosts_discovered({"": 1}), "has no name"),
        (lambda: driver.hosts_discovered({"a": 2**40}), "slots of a is out of range"),
        (lambda: driver.host_lost("", "x"), "has no name"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    assert StartWorker(1, "a", 0) in driver.hosts_discovered({"a": 1})


def test_threads_get_each_the_actions_of_their_own_event() -> None:
    driver = Driver(1, np=64)
    started = [each.worker for each in driver.hosts_discovered({"a": 64}) if isinstance(each, StartWorker)]
    answers: list[list[Action]] = []

    def ask(workers: list[int]) -> None:
        answers.extend(kinds(driver.worker_ready(worker)) for worker in workers)

    threads = [threading.Thread(target=ask, args=(started[i::8],)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(each) for each in answers) == [0] * 63 + [64], "the last that asked brings all the places"
