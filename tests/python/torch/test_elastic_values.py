"""What a TorchState keeps, and how: commits reuse memory, restoring leaves the commit as it is, files hold it all."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn, optim

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.torch.elastic import ElasticSampler, TorchState
from horovod.torch.elastic.snapshot import snapshot
from horovod.torch.elastic.state import StateHandler, get_handler_registry, set_handler_registry


class Training:
    """Everything a training may hold."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        self.optimizer = hvd.DistributedOptimizer(
            optim.Adam(self.model.parameters(), lr=0.1), named_parameters=self.model.named_parameters()
        )
        self.schedule = optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=0.5)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        self.sampler = ElasticSampler(range(100))
        self.state: Any = TorchState(
            self.model,
            self.optimizer,
            schedule=self.schedule,
            scaler=self.scaler,
            sampler=self.sampler,
            epoch=0,
        )

    def step(self) -> None:
        self.optimizer.zero_grad()
        loss = self.model(torch.rand(4, 2)).pow(2).sum()
        self.scaler.scale(loss).backward()
        self.optimizer.step()
        self.schedule.step()
        self.scaler.update(self.scaler.get_scale() * 2)
        self.sampler.record_batch(0, 2)
        self.state.epoch += 1

    def now(self) -> Any:
        parts = (self.model, self.optimizer, self.schedule, self.scaler, self.sampler)
        return copy.deepcopy([dict(each.state_dict()) for each in parts]), self.state.epoch


def assert_same(left: Any, right: Any) -> None:
    torch.testing.assert_close(left, right, rtol=0, atol=0)


def test_restoring_goes_back_to_the_commit_again_and_again() -> None:
    training = Training()
    training.step()
    training.step()
    training.state.commit()
    committed = training.now()
    for _ in range(3):
        training.step()
        training.step()
        training.state.restore()
        assert_same(training.now(), committed)
    assert training.state.commit_seconds > 0


def test_a_commit_writes_into_the_memory_of_the_one_before() -> None:
    training = Training()
    training.step()
    training.state.save()
    handlers = training.state._handlers
    moments = [each["exp_avg"] for each in handlers["optimizer"]._saved["state"].values()]
    weights = list(handlers["model"]._saved.values())
    training.step()
    training.state.save()
    assert all(new is old for new, old in zip(handlers["model"]._saved.values(), weights, strict=True))
    again = [each["exp_avg"] for each in handlers["optimizer"]._saved["state"].values()]
    assert all(new is old for new, old in zip(again, moments, strict=True))
    assert_same(dict(handlers["model"]._saved), dict(training.model.state_dict()))


def test_a_snapshot_that_does_not_fit_is_made_anew() -> None:
    first = snapshot({"a": torch.ones(2), "b": [torch.ones(2, 3), 1], "c": (torch.ones(1),)})
    now = {"a": torch.zeros(3), "b": [torch.zeros(3, 2).T, 2], "c": (torch.zeros(1), 5)}
    second = snapshot(now, first)
    assert_same(second, now)
    assert_same(first["a"], torch.ones(2))
    assert second["b"][0].stride() == (1, 2)
    sparse = torch.eye(2).to_sparse()
    assert snapshot(sparse, snapshot(sparse)).layout == torch.sparse_coo


def test_a_job_goes_on_from_a_file(tmp_path: Path) -> None:
    path = Path(hvd.broadcast_object(str(tmp_path / "commit")))
    training = Training()
    training.state.save_to(path)
    for _ in range(3):
        training.step()
        training.state.commit()
    committed = training.now()
    training.step()
    training.state.finish_saving()
    hvd.barrier()

    later = Training()
    has_file = hvd.rank() == hvd.size() - 1  # the others take over from it
    assert later.state.resume_from(path if has_file else path.with_name("none")) == has_file

    @hvd.elastic.run
    def train(state: Any) -> Any:
        return later.now()

    resumed = train(later.state)
    assert_same(resumed, hvd.broadcast_object(committed, hvd.size() - 1))
    assert later.state.progress().commits == 3


def test_the_file_is_of_the_commit_though_training_goes_on() -> None:
    training = Training()
    training.step()
    training.state.save()
    lent = training.state.durable_values()
    committed = snapshot(lent["handlers"])
    training.step()
    training.state.save()
    training.step()
    training.state.save()
    assert_same(lent["handlers"], committed)


def test_a_file_of_another_script() -> None:
    values = TorchState(nn.Linear(1, 1), batch=1).durable_values()
    with pytest.raises(ValueError, match="no state of optimizer"):
        model = nn.Linear(1, 1)
        TorchState(model, optim.SGD(model.parameters(), lr=1)).load_durable_values(values)


class Odd:
    pass


class OddHandler(StateHandler[Odd]):
    def save(self) -> None:
        pass


def test_a_handler_that_cannot_be_written(tmp_path: Path) -> None:
    registry = get_handler_registry()
    set_handler_registry([(Odd, OddHandler), *registry])
    try:
        state = TorchState(odd=Odd())
    finally:
        set_handler_registry(registry)
    with pytest.raises(NotImplementedError, match="OddHandler"):
        state.save_to(tmp_path / "commit")


def test_lbfgs_travels_pickled() -> None:
    torch.manual_seed(hvd.rank())
    model = nn.Linear(2, 1)
    optimizer = optim.LBFGS(model.parameters(), max_iter=2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).pow(2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    TorchState(model, optimizer).sync()
    directions = hvd.allgather_object(optimizer.state_dict()["state"][0]["d"])
    assert all(torch.equal(each, directions[0]) for each in directions)


@pytest.mark.usefixtures("numbered_anew")
def test_a_sharded_optimizer_goes_on_from_a_file_that_one_rank_has(tmp_path: Path) -> None:
    """That rank reads it while the others are elsewhere."""
    path = Path(hvd.broadcast_object(str(tmp_path / "commit")))

    def make() -> tuple[nn.Module, Any]:
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        return model, TorchState(model, hvd.ShardedOptimizer(optim.Adam(model.parameters(), lr=0.1)), batch=0)

    def step(model: nn.Module, state: Any) -> None:
        model(torch.ones(1, 3)).pow(2).sum().backward()
        state.optimizer.step()
        state.optimizer.zero_grad()

    model, state = make()
    state.save_to(path)
    step(model, state)
    state.commit()
    step(model, state)
    expected = model.weight.detach().clone()
    state.finish_saving()
    hvd.barrier()
    later, resumed = make()
    if hvd.rank() == hvd.size() - 1:
        resumed.resume_from(path)

    @hvd.elastic.run
    def train(resumed: Any) -> None:
        step(later, resumed)

    train(resumed)
    torch.testing.assert_close(later.weight.detach(), expected)


@pytest.mark.usefixtures("numbered_anew")
def test_a_sharded_optimizer_is_divided_anew() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = hvd.ShardedOptimizer(optim.Adam(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
    state: Any = TorchState(model, optimizer, batch=0)
    weights = []

    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.batch < 4:
            optimizer.zero_grad()
            model(torch.ones(1, 3)).pow(2).sum().backward()
            optimizer.step()
            state.batch += 1
            state.commit()
            if state.batch == 2 and not weights:
                weights.append(model.weight.detach().clone())
                optimizer.zero_grad()
                model(torch.ones(1, 3)).pow(2).sum().backward()
                optimizer.step()
                raise HorovodInternalError("a peer was lost")
            if state.batch == 3 and len(weights) == 1:
                weights.append(model.weight.detach().clone())
                raise HostsUpdatedInterrupt(skip_sync=True)

    train(state)
    torch.manual_seed(0)
    plain = nn.Linear(3, 2)
    reference = optim.Adam(plain.parameters(), lr=0.1)
    for _ in range(4):
        reference.zero_grad()
        plain(torch.ones(1, 3)).pow(2).sum().backward()
        reference.step()
    torch.testing.assert_close(model.weight, plain.weight)
