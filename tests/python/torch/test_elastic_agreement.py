"""Joint decisions of the ranks of an elastic world. Worlds are actually formed again; without a driver ranks stay."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import horovod.torch as hvd
from horovod.common.elastic import HostUpdateResult, agreement
from horovod.common.elastic.agreement import Progress
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.torch.elastic import ElasticSampler, TorchState

last = -1  # the last rank


@pytest.fixture(autouse=True)
def last_rank(world: None) -> None:
    global last
    last = hvd.size() - 1


def interrupted(state: TorchState) -> HostsUpdatedInterrupt | None:
    try:
        state.check_host_updates()
    except HostsUpdatedInterrupt as interrupt:
        return interrupt
    return None


@pytest.mark.parametrize("told", ["first", "last", "all"])
def test_all_are_interrupted_whoever_was_told(told: str) -> None:
    state = TorchState(batch=0)
    if told == "all" or hvd.rank() == {"first": 0, "last": last}[told]:
        state.on_hosts_updated(12.5, HostUpdateResult.removed)
    interrupt = interrupted(state)
    assert interrupt is not None and interrupt.skip_sync
    assert state._last_updated_timestamp == 12.5
    state.on_hosts_updated(12.5, HostUpdateResult.removed)  # comes late to one that knows it from the others
    assert interrupted(state) is None


def test_what_ranks_were_told_adds_up() -> None:
    state = TorchState(batch=0)
    update = HostUpdateResult.added if hvd.rank() == last else HostUpdateResult.removed
    state.on_hosts_updated(100 + hvd.rank(), update)
    interrupt = interrupted(state)
    assert interrupt is not None and interrupt.skip_sync is (hvd.size() == 1 and update == HostUpdateResult.removed)


def test_an_interrupt_without_a_commit_keeps_the_present_state() -> None:
    model = torch.nn.Linear(1, 1)
    state: Any = TorchState(model, batch=0)
    state.batch = 5
    torch.nn.init.constant_(model.weight, 3)
    assert interrupted(state) is None
    assert state.progress().commits == 0
    state.on_hosts_updated(1, HostUpdateResult.added)
    assert interrupted(state) is not None
    assert state.progress().commits == 1
    state.batch = 6
    torch.nn.init.constant_(model.weight, 4)
    state.restore()
    assert (state.batch, model.weight.item()) == (5, 3)


def test_the_source_is_the_lowest_rank_that_is_furthest() -> None:
    source = agreement.choose_source(Progress(5 if hvd.rank() else 4, was_in_a_world=True), skip_sync=False)
    assert source.rank == min(1, last)
    assert source.progress.commits == (5 if hvd.size() > 1 else 4)
    assert source.sync_needed
    newcomer = agreement.choose_source(Progress(0, was_in_a_world=hvd.rank() == last), skip_sync=True)
    assert newcomer.rank == last
    assert newcomer.sync_needed == (hvd.size() > 1)
    equal = agreement.choose_source(Progress(3, was_in_a_world=True), skip_sync=True)
    assert (equal.rank, equal.sync_needed) == (0, False)
    assert agreement.choose_source(Progress(3), skip_sync=hvd.rank() == 0).sync_needed == (hvd.size() > 1)


@pytest.mark.usefixtures("numbered_anew")
def test_a_newcomer_as_rank_0_takes_over_from_the_others() -> None:
    if hvd.size() == 1:
        pytest.skip("needs a survivor")
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (1 + hvd.rank()))
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    sampler = ElasticSampler(range(40), shuffle=False)
    state: Any = TorchState(model, optimizer, schedule=schedule, sampler=sampler, batch=0)
    if hvd.rank() > 0:  # the survivors
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            schedule.step()
            sampler.record_batch(0, 1)
            state.batch += 1
        torch.nn.init.constant_(model.weight, 7)
        state.save()
        state.on_settled(Progress(3))

    @hvd.elastic.run
    def train(state: Any) -> None:
        assert state.batch == 3
        assert torch.equal(model.weight, torch.full((2, 2), 7.0))
        assert schedule.last_epoch == 3
        assert sampler.processed_num == 3 * hvd.size()
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.2 * 0.1)
        assert all(float(each["step"]) == 3 for each in optimizer.state.values())
        assert state.progress() == Progress(3, was_in_a_world=True)
        torch.nn.init.constant_(model.weight, 8)
        state.restore()  # what was taken over is saved
        assert torch.equal(model.weight, torch.full((2, 2), 7.0))

    train(state)


@pytest.mark.usefixtures("numbered_anew")
def test_one_that_may_skip_sync_waits_for_one_that_may_not() -> None:
    """The message that hosts left reached some; the others lost their peers while it was on the way."""
    state: Any = TorchState(torch.nn.Linear(1, 1), batch=0)
    failures: list[Exception] = [
        HostsUpdatedInterrupt(skip_sync=True) if hvd.rank() == last else HorovodInternalError("lost on the way")
    ]
    seen = []

    @hvd.elastic.run
    def train(state: Any) -> None:
        seen.append(state.batch)
        while state.batch < 4:
            hvd.allreduce(torch.ones(1), name="step")
            state.batch += 1
            if hvd.rank() == last or state.batch < 2:
                state._save_as_next()
            if state.batch == 2 and failures:
                raise failures.pop()

    train(state)
    assert seen == [0, 2]  # from the commit of the rank that had it


@pytest.mark.usefixtures("numbered_anew")
def test_losing_the_world_while_syncing_goes_round_again() -> None:
    rounds = []

    class Unlucky(TorchState):
        def sync(self) -> None:
            super().sync()
            rounds.append(hvd.size())
            if len(rounds) < 3:
                raise HorovodInternalError("lost during sync")

    state: Any = Unlucky(torch.nn.Linear(1, 1), batch=hvd.rank())
    assert hvd.elastic.run(lambda state: state.batch)(state) == 0
    assert len(rounds) == 3
