"""ShardedOptimizer gives the results of the plain optimizer, with a part of its state on every rank."""

from __future__ import annotations

import copy

import pytest
import torch
from every_rank import change_places
from models import assert_same_on_all_ranks, batch, flat, make_model

import horovod.torch as hvd
from horovod.torch.optimizer import DistributedOptimizer, ShardedOptimizer, shards

ELEMENTWISE = ["Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"]


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "BUCKET_BYTES", 256)


def make(name: str, model: torch.nn.Sequential) -> torch.optim.Optimizer:
    options = {"SGD": {"momentum": 0.9}, "Adam": {"amsgrad": True}}.get(name, {})
    groups = [{"params": model[0].parameters(), "weight_decay": 0.01}, {"params": model[2:].parameters()}]
    return getattr(torch.optim, name)(groups, lr=0.01, **options)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        model(batch(step, hvd.rank())).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_same_bits_and_state_as_the_plain_optimizer(name: str) -> None:
    model, twin = make_model(), make_model()
    optimizer = ShardedOptimizer(make(name, model), model.named_parameters())
    plain = DistributedOptimizer(make(name, twin), twin.named_parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    plain_scheduler = torch.optim.lr_scheduler.StepLR(plain, 2, 0.5)
    for step in range(5):
        train(model, optimizer, range(step, step + 1))
        train(twin, plain, range(step, step + 1))
        scheduler.step()
        plain_scheduler.step()
        assert torch.equal(flat(model.parameters()), flat(twin.parameters()))
    state, expected = optimizer.state_dict(), plain.state_dict()
    assert state["param_groups"] == expected["param_groups"]
    assert state["state"].keys() == expected["state"].keys()
    for number, entries in expected["state"].items():
        assert state["state"][number].keys() == entries.keys()
        for key, value in entries.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(state["state"][number][key], value), key
            else:
                assert state["state"][number][key] == value
    torch.optim.Optimizer.load_state_dict(make(name, make_model()), state)


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_a_state_moves_between_worlds(name: str) -> None:
    """From the plain optimizer to the divided one, and from a set of ranks to all."""
    model = make_model()
    plain = DistributedOptimizer(make(name, model), model.named_parameters())
    train(model, plain, range(3))
    saved, weights = copy.deepcopy((plain.state_dict(), model.state_dict()))
    train(model, plain, range(3, 6))
    expected = flat(model.parameters())

    twin = make_model()
    twin.load_state_dict(weights)
    optimizer = ShardedOptimizer(make(name, twin))
    optimizer.load_state_dict(saved)
    train(twin, optimizer, range(3, 6))
    assert torch.equal(flat(twin.parameters()), expected)

    twin.load_state_dict(weights)  # by the model, not through the optimizer: it is the parameters that count
    optimizer.load_state_dict(saved)
    train(twin, optimizer, range(3, 6))
    assert torch.equal(flat(twin.parameters()), expected)


class Trainings:
    """A divided optimizer and the plain one, side by side, with gradients that do not depend on the rank."""

    def __init__(self, process_set: hvd.ProcessSet = hvd.global_process_set) -> None:
        self.models = make_model(), make_model()
        self.optimizer = ShardedOptimizer(make("Adam", self.models[0]), process_set=process_set)
        self.plain = make("Adam", self.models[1])

    def train(self, steps: range) -> None:
        for step in steps:
            for model, optimizer in zip(self.models, (self.optimizer, self.plain), strict=True):
                optimizer.zero_grad()
                model(batch(step, 0)).square().sum().backward()
                optimizer.step()

    def check(self) -> None:
        mine, expected = (flat(model.parameters()) for model in self.models)
        torch.testing.assert_close(mine, expected)


@pytest.mark.usefixtures("places_are_given_back")
def test_pieces_move_with_the_ranks() -> None:
    """No rank reloads the state. Also twice in a row, without a step in between, and where all stay."""
    both = Trainings()
    both.train(range(2))
    change_places()
    both.train(range(2, 4))
    both.check()
    saved = copy.deepcopy(both.plain.state_dict())
    change_places()
    change_places()
    whole = both.optimizer.state_dict()
    torch.testing.assert_close(whole["state"], saved["state"])
    both.train(range(4, 6))
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    both.train(range(6, 8))
    both.check()


@pytest.mark.usefixtures("places_are_given_back")
def test_a_state_that_was_loaded_in_the_world_before() -> None:
    both = Trainings()
    both.train(range(2))
    saved, weights = copy.deepcopy((both.plain.state_dict(), both.models[1].state_dict()))
    both.train(range(2, 3))
    for model, optimizer in zip(both.models, (both.optimizer, both.plain), strict=True):
        model.load_state_dict(weights)
        optimizer.load_state_dict(copy.deepcopy(saved))
    change_places()
    both.train(range(2, 4))
    both.check()


@pytest.mark.usefixtures("places_are_given_back")
def test_a_newcomer_takes_over_and_a_lost_piece_is_named() -> None:
    both = Trainings()
    both.train(range(2))
    change_places()
    if hvd.rank() == 0:
        both.optimizer = ShardedOptimizer(make("Adam", both.models[0]))  # what a new process has
    both.models[0].zero_grad()
    with pytest.raises(RuntimeError, match="pieces of its state are lost"):
        both.optimizer.step()
    both.optimizer.load_state_dict(both.plain.state_dict())
    both.train(range(2, 4))
    both.check()


@pytest.mark.usefixtures("places_are_given_back")
def test_a_step_that_failed_halfway(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Trainings()
    both.train(range(2))

    def fail() -> None:
        raise hvd.HorovodInternalError("a peer was lost")

    if hvd.rank() == 1:
        monkeypatch.setattr(both.optimizer, "_gather", fail)
        with pytest.raises(hvd.HorovodInternalError):
            both.optimizer.step()
        monkeypatch.undo()
        hvd.shutdown()
    else:
        with pytest.raises(hvd.HorovodInternalError):
            both.optimizer.step()
        hvd.shutdown()
    hvd.init(process_sets="dynamic")
    with pytest.raises(RuntimeError, match="failed halfway on rank"):
        both.optimizer.step()


@pytest.mark.usefixtures("places_are_given_back")
def test_a_process_set_in_another_world() -> None:
    members = hvd.add_process_set(range(1, hvd.size()))
    both = Trainings(members)
    both.train(range(2))
    change_places()
    with pytest.raises(ValueError, match="add it again"):
        both.optimizer.step()
    hvd.add_process_set(members)
    both.optimizer.load_state_dict(both.plain.state_dict())
    both.train(range(2, 4))
    both.check()
    hvd.remove_process_set(members)


def test_a_state_that_some_ranks_loaded() -> None:
    both = Trainings()
    saved = Trainings()
    saved.train(range(1))
    if hvd.rank() == 0:
        both.optimizer.load_state_dict(saved.plain.state_dict())
    with pytest.raises(RuntimeError, match="only rank 0 of"):
        both.optimizer.step()


def test_the_root_has_no_state_yet() -> None:
    """Then no rank has one: a rank that loaded it drops it."""
    both, other = Trainings(), Trainings()
    other.train(range(1))
    if hvd.rank() == 1:
        both.optimizer.load_state_dict(other.plain.state_dict())
    hvd.broadcast_optimizer_state(both.optimizer, root_rank=0)
    both.train(range(2))
    both.check()


def test_a_rank_alone_asks_for_the_state_that_it_loaded() -> None:
    """As one does that resumes from a file while the others wait for it elsewhere."""
    both, other = Trainings(), Trainings()
    other.train(range(1))
    if hvd.rank() == 1:
        both.optimizer.load_state_dict(other.plain.state_dict())
        torch.testing.assert_close(both.optimizer.state_dict(), other.plain.state_dict())


def test_each_rank_has_its_part_of_the_state() -> None:
    model = make_model(width=32)
    optimizer = ShardedOptimizer(torch.optim.Adam(model.parameters()))
    train(model, optimizer, range(1))
    held = sum(
        value.numel() for state in optimizer._inner.state.values() for value in state.values() if value.ndim == 1
    )
    whole = 2 * flat(model.parameters()).numel()
    padding = 2 * len(optimizer._buckets)
    assert held <= whole / hvd.size() + padding


def test_unused_and_frozen_parameters() -> None:
    model = make_model()
    model[2].requires_grad_(False)
    frozen = model[2].weight.detach().clone()
    optimizer = ShardedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(3):
        optimizer.zero_grad(set_to_none=step == 1)
        if hvd.rank() == 0:
            model(batch(step, 0)).square().sum().backward()
        optimizer.step()
    assert_same_on_all_ranks(model.parameters())
    assert torch.equal(model[2].weight, frozen)
    assert not torch.equal(model[0].weight, make_model()[0].weight)


@pytest.mark.usefixtures("numbered_anew")
def test_members_of_a_process_set() -> None:
    members = hvd.add_process_set(range(1, hvd.size()))
    model = make_model()
    optimizer = ShardedOptimizer(torch.optim.Adam(model.parameters()), process_set=members)
    train(model, optimizer, range(2))
    if members.included():
        assert_same_on_all_ranks(model.parameters(), members)
    assert len(optimizer.state_dict()["state"]) == 6
    everybodys = hvd.allgather(flat(model.parameters()).unsqueeze(0), "everybodys weights")
    assert not torch.equal(everybodys[0], everybodys[1])
    hvd.remove_process_set(members)


def test_a_state_that_only_the_root_has_loaded_is_broadcast() -> None:
    model = make_model()
    plain = DistributedOptimizer(make("AdamW", model), model.named_parameters())
    hvd.broadcast_optimizer_state(ShardedOptimizer(make("AdamW", make_model())), root_rank=0)  # nothing loaded: options
    train(model, plain, range(2))
    plain.param_groups[1]["lr"] = 0.02
    saved, twin = copy.deepcopy(plain.state_dict()), copy.deepcopy(model)
    train(model, plain, range(2, 4))

    optimizer = ShardedOptimizer(make("AdamW", twin))
    if hvd.rank() == 1:
        optimizer.load_state_dict(saved)
    hvd.broadcast_optimizer_state(optimizer, root_rank=1)
    assert optimizer.param_groups[1]["lr"] == 0.02
    train(twin, optimizer, range(2, 4))
    assert torch.equal(flat(twin.parameters()), flat(model.parameters()))


def test_clipping() -> None:
    model, twin = make_model(), make_model()
    optimizer = ShardedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    plain = DistributedOptimizer(torch.optim.SGD(twin.parameters(), lr=0.1), twin.named_parameters())
    for step in range(3):
        for each, its_optimizer in ((model, optimizer), (twin, plain)):
            its_optimizer.zero_grad()
            each(batch(step, hvd.rank())).square().sum().backward()
        norm = optimizer.clip_grad_norm_(0.5)
        optimizer.step()
        plain.synchronize()
        torch.testing.assert_close(norm, torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.5))
        with plain.skip_synchronize():
            plain.step()
        torch.testing.assert_close(flat(model.parameters()), flat(twin.parameters()))


def test_grad_scaler_skips_on_all_ranks_or_none() -> None:
    model = make_model()
    optimizer = ShardedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=100)
    for step in range(3):
        optimizer.zero_grad()
        loss = model(batch(step, hvd.rank())).square().sum()
        before = flat(model.parameters())
        scaler.scale(loss * float("inf") if step == 1 and hvd.rank() == 0 else loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, flat(model.parameters())) == (step == 1)
        assert_same_on_all_ranks(model.parameters())
    assert scaler.get_scale() == 4.0


def test_what_cannot_be_divided_is_refused() -> None:
    model = make_model()
    weights = [p for p in model.parameters() if p.ndim == 2]
    for plain in (
        torch.optim.LBFGS(model.parameters()),
        torch.optim.Adafactor(model.parameters()),
        torch.optim.Muon(weights),
        torch.optim.SparseAdam(model.parameters()),
    ):
        with pytest.raises(ValueError, match="every element"):
            ShardedOptimizer(plain)

    class Mine(torch.optim.SGD):
        pass

    with pytest.raises(ValueError, match="elementwise=True"):
        ShardedOptimizer(Mine(model.parameters(), lr=0.1))
    ShardedOptimizer(Mine(model.parameters(), lr=0.1), elementwise=True)
    with pytest.raises(ValueError, match="Average"):
        ShardedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Max)
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = ShardedOptimizer(torch.optim.SGD(embedding.parameters(), lr=0.1))
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="sparse"):
        optimizer.step()
