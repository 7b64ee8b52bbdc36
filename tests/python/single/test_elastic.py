"""Elastic state and the loop around it, without a driver."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from horovod.common.elastic import HostUpdateResult, ObjectState, State, notification_manager, run_fn
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt


def make_state(**values: Any) -> Any:
    return ObjectState(bcast_object=copy.copy, get_rank=lambda: 0, **values)


class Recorder(State):
    """Notes what is done to it."""

    def __init__(self) -> None:
        super().__init__(bcast_object=lambda obj: obj, get_rank=lambda: 0)
        self.calls: list[str] = []

    def save(self) -> None:
        self.calls.append("save")

    def restore(self) -> None:
        self.calls.append("restore")

    def sync(self) -> None:
        self.calls.append("sync")

    def reset(self) -> None:
        self.calls.append("reset")


def test_what_a_state_must_implement() -> None:
    state = State(bcast_object=lambda obj: obj, get_rank=lambda: 0)
    for method in (state.save, state.restore, state.sync):
        with pytest.raises(NotImplementedError):
            method()
    state.reset()


def test_object_state_saves_and_restores() -> None:
    state = make_state(batch=1, epoch=2)
    state.batch, state.epoch = 10, 20
    state.save()
    state.batch = 11
    state.restore()
    assert (state.batch, state.epoch) == (10, 20)


def test_object_state_saves_references() -> None:
    state = make_state(items=[])
    state.save()
    state.items.append(1)
    state.restore()
    assert state.items == [1]


def test_sync_takes_the_saved_values_of_rank_0() -> None:
    sent: list[Any] = []

    def bcast(obj: Any) -> Any:
        sent.append(obj)
        return {"batch": 7}

    state: Any = ObjectState(bcast_object=bcast, get_rank=lambda: 1, batch=1)
    state.batch = 5
    state.sync()
    assert sent == [{"batch": 1}]
    assert state.batch == 7
    state.batch = 8
    state.restore()
    assert state.batch == 7


def test_sync_of_nothing_sends_nothing() -> None:
    def bcast(obj: Any) -> Any:
        raise AssertionError(obj)

    ObjectState(bcast_object=bcast, get_rank=lambda: 0).sync()


@pytest.mark.parametrize(
    ("updates", "skip_sync"),
    [
        ([HostUpdateResult.removed], True),
        ([HostUpdateResult.added], False),
        ([HostUpdateResult.removed, HostUpdateResult.added], False),
        ([HostUpdateResult.mixed], False),
        ([HostUpdateResult.removed, HostUpdateResult.removed], True),
    ],
)
def test_an_update_interrupts_once(updates: list[HostUpdateResult], skip_sync: bool) -> None:
    state = make_state()
    state.check_host_updates()
    for timestamp, update in enumerate(updates, start=1):
        state.on_hosts_updated(timestamp, int(update))
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert caught.value.skip_sync is skip_sync
    assert state._last_updated_timestamp == len(updates)
    state.check_host_updates()


def test_an_old_update_does_not_interrupt() -> None:
    state = make_state()
    state._last_updated_timestamp = 5
    state.on_hosts_updated(5, HostUpdateResult.added)
    state.check_host_updates()
    assert state._host_messages.empty()


def test_only_rank_0_decides() -> None:
    state = ObjectState(bcast_object=lambda _: (0, 0, HostUpdateResult.no_update), get_rank=lambda: 1)
    state.on_hosts_updated(1, HostUpdateResult.added)
    state.check_host_updates()
    told = ObjectState(bcast_object=lambda _: (0, 9, HostUpdateResult.removed), get_rank=lambda: 1)
    with pytest.raises(HostsUpdatedInterrupt):
        told.check_host_updates()
    assert told._last_updated_timestamp == 9


def test_commit_saves_before_it_interrupts() -> None:
    state = Recorder()
    state.on_hosts_updated(1, HostUpdateResult.added)
    with pytest.raises(HostsUpdatedInterrupt):
        state.commit()
    assert state.calls == ["save"]


def test_on_reset_forgets_messages_and_runs_the_callbacks_in_order() -> None:
    state = Recorder()
    state.register_reset_callbacks([lambda: state.calls.append("one")])
    state.register_reset_callbacks([lambda: state.calls.append("two"), lambda: state.calls.append("three")])
    state.on_hosts_updated(1, HostUpdateResult.added)
    state.on_reset()
    assert state.calls == ["reset", "one", "two", "three"]
    assert state._host_messages.empty()


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (None, ["sync", "train 0"]),
        (HorovodInternalError("lost"), ["sync", "train 0", "restore", "new world", "reset", "sync", "train 1"]),
        (HostsUpdatedInterrupt(False), ["sync", "train 0", "new world", "reset", "sync", "train 1"]),
        (HostsUpdatedInterrupt(True), ["sync", "train 0", "new world", "reset", "train 1"]),
    ],
)
def test_what_run_does_after_a_failure(error: Exception | None, calls: list[str]) -> None:
    state = Recorder()
    errors = [error]

    def train(state: Recorder, step: int, *, scale: int) -> int:
        state.calls.append(f"train {1 - len(errors)}")
        if errors and (failure := errors.pop()) is not None:
            raise failure
        return step * scale

    assert run_fn(train, lambda: state.calls.append("new world"))(state, 3, scale=2) == 6
    assert state.calls == calls


def test_run_recovers_when_sync_fails() -> None:
    class Unlucky(Recorder):
        def sync(self) -> None:
            super().sync()
            if self.calls.count("sync") == 1:
                raise HorovodInternalError("lost during sync")

    state = Unlucky()
    run_fn(lambda state: None, lambda: None)(state)
    assert state.calls == ["sync", "restore", "reset", "sync"]


def test_other_exceptions_end_the_run_and_the_listener() -> None:
    state = Recorder()

    def train(state: Recorder) -> None:
        notification_manager.handle_hosts_updated(1, HostUpdateResult.added)
        assert state._host_messages.qsize() == 1
        raise KeyError

    with pytest.raises(KeyError):
        run_fn(train, lambda: None)(state)
    notification_manager.handle_hosts_updated(2, HostUpdateResult.added)
    assert state._host_messages.qsize() == 1
    assert state.calls == ["sync"]


def test_what_is_said_about_the_next_world_is_not_forgotten() -> None:
    state = Recorder()
    said = []

    def train(state: Recorder) -> None:
        said.append(state._host_messages.qsize())
        if len(said) == 1:
            state.on_hosts_updated(1, HostUpdateResult.removed)
            raise HorovodInternalError("lost")

    run_fn(train, lambda: notification_manager.handle_hosts_updated(2, HostUpdateResult.added))(state)
    assert said == [0, 1]
    assert state._host_messages.get() == (2, HostUpdateResult.added)
