"""Elastic state and samplers in a world of several ranks."""

from __future__ import annotations

import copy
import itertools
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn, optim

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.torch.elastic import ElasticSampler, TorchState
from horovod.torch.elastic.state import StateHandler, get_handler_registry, set_handler_registry


def trained(rank: int, steps: int) -> tuple[nn.Module, optim.Optimizer]:
    torch.manual_seed(rank)
    model = nn.Linear(2, 2)
    optimizer = optim.Adam(model.parameters(), lr=0.1 + rank)
    step(model, optimizer, steps)
    return model, optimizer


def step(model: nn.Module, optimizer: optim.Optimizer, steps: int = 1) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).pow(2).sum().backward()
        optimizer.step()


def snapshot(model: nn.Module, optimizer: optim.Optimizer) -> tuple[Any, Any]:
    return copy.deepcopy(dict(model.state_dict())), copy.deepcopy(optimizer.state_dict())


def assert_same(left: Any, right: Any) -> None:
    torch.testing.assert_close(left, right, rtol=0, atol=0)


def test_save_and_restore() -> None:
    model, optimizer = trained(hvd.rank(), 1)
    state: Any = TorchState(model, optimizer, batch=1, epoch=2)
    assert state.model is model and state.optimizer is optimizer
    at_construction = snapshot(model, optimizer)
    step(model, optimizer)
    state.batch = 7
    state.restore()
    assert_same(snapshot(model, optimizer), at_construction)
    assert (state.batch, state.epoch) == (1, 2)

    step(model, optimizer)
    state.batch = 9
    saved = snapshot(model, optimizer)
    state.save()
    step(model, optimizer)
    state.batch = 10
    state.restore()
    assert_same(snapshot(model, optimizer), saved)
    assert state.batch == 9


def test_sync_takes_over_rank_0() -> None:
    model, optimizer = trained(hvd.rank(), hvd.rank() * 2)  # rank 0 has not begun
    sampler = ElasticSampler(range(20), shuffle=False)
    sampler.record_batch(0, hvd.rank() + 1)
    state: Any = TorchState(model, optimizer, sampler=sampler, batch=hvd.rank())
    own_weight = model.weight.detach().clone()
    state.sync()
    reference, _ = trained(0, 0)
    assert_same(dict(model.state_dict()), dict(reference.state_dict()))
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert all(float(each["step"]) == 0 for each in optimizer.state.values())
    assert state.batch == 0
    assert sampler.processed_num == hvd.size()
    assert len(sampler.remaining_indices) == 20 - hvd.size()
    state.restore()  # what was saved is this rank's own: sync does not save
    assert_same(model.weight.detach(), own_weight)


def test_assigning_another_model_keeps_that_one() -> None:
    model, optimizer = trained(0, 1)
    state: Any = TorchState(model=model, optimizer=optimizer)
    other = nn.Linear(3, 3)
    before = other.weight.detach().clone()
    state.model = other
    with torch.no_grad():
        other.weight.zero_()
    state.restore()
    assert state.model is other
    assert_same(other.weight.detach(), before)


def test_without_model_and_optimizer() -> None:
    state: Any = TorchState(batch=hvd.rank())
    assert not hasattr(state, "model")
    state.sync()
    assert state.batch == 0
    state.commit()


def test_the_sampler_is_divided_anew_after_a_reset() -> None:
    sampler = ElasticSampler(range(10), shuffle=False)
    state = TorchState(sampler=sampler)
    sampler.record_batch(0, 2)
    called = []
    state.register_reset_callbacks([lambda: called.append(len(sampler.remaining_indices))])
    state.on_reset()
    assert called == [10 - 2 * hvd.size()]


class Counter:
    def __init__(self) -> None:
        self.count = 0


class CounterHandler(StateHandler[Counter]):
    def save(self) -> None:
        self.saved = self.value.count

    def restore(self) -> None:
        self.value.count = self.saved

    def sync(self) -> None:
        self.value.count = hvd.broadcast_object(self.value.count, name="counter")


@pytest.fixture
def counters_are_known() -> Iterator[None]:
    registry = get_handler_registry()
    set_handler_registry([*registry, (Counter, CounterHandler)])
    yield
    set_handler_registry(registry)


@pytest.mark.usefixtures("counters_are_known")
def test_handlers_of_other_types() -> None:
    state: Any = TorchState(counter=Counter())
    state.counter.count = 3 + hvd.rank()
    state.save()
    state.counter.count = 5 + hvd.rank()
    state.restore()
    assert state.counter.count == 3 + hvd.rank()
    state.sync()
    assert state.counter.count == 3
    replaced = Counter()
    state.counter = replaced
    replaced.count = 1
    state.restore()
    assert state.counter is replaced and replaced.count == 0


@pytest.mark.usefixtures("numbered_anew")
def test_run_goes_on_from_the_last_commit() -> None:
    """In worlds that are actually formed again: without a driver they have the same ranks."""
    model, optimizer = trained(hvd.rank(), 0)
    state: Any = TorchState(model, optimizer, batch=0)
    failures = [HostsUpdatedInterrupt(skip_sync=False), HorovodInternalError("a peer was lost")]
    seen = []

    @hvd.elastic.run
    def train(state: Any, last: int) -> str:
        while state.batch < last:
            seen.append(state.batch)
            hvd.allreduce(torch.ones(2), name="step")
            step(state.model, state.optimizer)
            state.batch += 1
            if state.batch == 3:
                state.commit()
            if state.batch in (4, 6) and failures:
                raise failures.pop()
        return "done"

    os.environ.pop("HOROVOD_DYNAMIC_PROCESS_SETS", None)
    assert train(state, last=8) == "done"
    # After batch 4 back to 3; when hosts changed after batch 4 again, sync sends what was saved.
    assert seen == [0, 1, 2, 3, 3, 3, 4, 5, 6, 7]
    weights = hvd.allgather(model.weight.detach()[None])
    assert all(torch.equal(each, weights[0]) for each in weights)


# ---- optimizers


def test_a_worker_that_joins_makes_its_optimizer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others train meanwhile, and take part in no collective of its own."""
    if hvd.rank() == 0:
        for name, value in {"ELASTIC": "1", "WORKER_ID": "1", "GLOO_RENDEZVOUS_ADDR": "127.0.0.1"}.items():
            monkeypatch.setenv(f"HOROVOD_{name}", value)
        model = nn.Linear(2, 2)
        hvd.DistributedOptimizer(optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), groups=1)


@pytest.mark.usefixtures("numbered_anew")
def test_steps_of_adasum_end_with_their_world() -> None:
    """Their handles are numbers of other operations in the next one."""
    torch.manual_seed(hvd.rank())
    model = nn.Linear(2, 2)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=hvd.Adasum)
    model(torch.ones(1, 2)).sum().backward()
    hvd.barrier()  # no rank shuts down while another is inside backward
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    others = [hvd.allreduce_async(torch.ones(3), name=f"other.{number}") for number in range(5)]
    optimizer.zero_grad()
    before = model.weight.detach().clone()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(model.weight.detach(), before - 0.1)
    assert all(torch.equal(hvd.synchronize(each), torch.ones(3)) for each in others)


# ---- the sampler


def of_all_ranks(samples: list[int]) -> list[int]:
    return list(itertools.chain.from_iterable(hvd.allgather_object(samples)))


@pytest.mark.parametrize("count", [0, 1, 10, 11, 30])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_sample_is_seen_once(count: int, shuffle: bool) -> None:
    sampler = ElasticSampler(range(count), shuffle=shuffle, seed=3)
    own = list(sampler)
    assert len(own) == len(sampler) == -(-count // hvd.size())
    everyones = of_all_ranks(own)
    assert set(everyones) == set(range(count))
    assert len(everyones) == sampler.total_size
    assert list(sampler) == own
    order = list(range(count))
    if shuffle:
        random.Random(3).shuffle(order)
    assert sampler.indices == order
    assert own == (order * 3)[: sampler.total_size][hvd.rank() :: hvd.size()]


def test_what_was_processed_is_not_repeated() -> None:
    sampler = ElasticSampler(range(20), seed=1)
    first = list(sampler)[:4]
    sampler.record_batch(0, 2)
    sampler.record_batch(1, 2)
    state = sampler.state_dict()
    assert state == {"epoch": 0, "processed_num": 4 * hvd.size()}
    processed = set(of_all_ranks(first))
    later = ElasticSampler(range(20), seed=1)
    later.load_state_dict(state)
    assert later.processed_indices == processed
    assert set(of_all_ranks(list(later))) == set(range(20)) - processed
    later.set_epoch(1)
    assert (later.epoch, later.processed_num) == (1, 0)
    assert len(later) == -(-20 // hvd.size())
    assert later.indices != sampler.indices


def test_more_recorded_than_there_is() -> None:
    sampler = ElasticSampler(range(5))
    sampler.load_state_dict({"epoch": 2, "processed_num": 100})
    assert list(sampler) == [] and len(sampler) == 0


def test_with_a_data_loader() -> None:
    data = torch.arange(12)
    loader: Any = torch.utils.data.DataLoader(data, batch_size=2, sampler=ElasticSampler(data))
    seen = torch.cat(list(loader))
    assert sorted(set(of_all_ranks(seen.tolist()))) == list(range(12))
