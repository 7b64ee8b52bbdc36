"""All ranks begin with the parameters and the optimizer state of one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn, optim

import horovod.torch as hvd

OPTIMIZERS = [
    each
    for each in vars(optim).values()
    if isinstance(each, type)
    and issubclass(each, optim.Optimizer)
    and each not in (optim.Optimizer, optim.LBFGS, optim.SparseAdam)
]


def model_of(rank: int) -> nn.Module:
    torch.manual_seed(rank)
    # Muon takes matrices only.
    return nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))


def make(optimizer: type[optim.Optimizer], model: nn.Module, **options: Any) -> optim.Optimizer:
    arguments: dict[str, Any] = {"lr": 0.05, **options}
    if optimizer in (optim.SGD, optim.RMSprop):
        arguments["momentum"] = 0.9
    if optimizer is not optim.Rprop:
        arguments["weight_decay"] = 0.1
    return optimizer(model.parameters(), **arguments)


def train(model: nn.Module, optimizer: optim.Optimizer, steps: int) -> None:
    generator = torch.Generator().manual_seed(7)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(5, 3, generator=generator)).pow(2).sum().backward()
        optimizer.step()


def assert_equal(left: Any, right: Any) -> None:
    """Equal in values and types, all the way down."""
    assert type(left) is type(right)
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype
        assert torch.equal(left, right)
    elif isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_equal(left[key], right[key])
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_equal(one, other)
    else:
        assert left == right


def test_parameters_in_all_forms() -> None:
    for form in (
        lambda model: model.state_dict(),
        lambda model: dict(model.named_parameters()),
        lambda model: list(model.named_parameters()),
        lambda model: list(model.parameters()),
        lambda model: [(None, each) for each in model.parameters()],
    ):
        model = model_of(hvd.rank())
        hvd.broadcast_parameters(form(model), root_rank=hvd.size() - 1)
        assert_equal(dict(model.state_dict()), dict(model_of(hvd.size() - 1).state_dict()))


def test_buffers_scalars_and_channels_last() -> None:
    torch.manual_seed(hvd.rank())
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)).to(memory_format=torch.channels_last)
    model[1].num_batches_tracked.fill_(hvd.rank() + 5)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    torch.manual_seed(0)
    expected = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))
    assert torch.equal(model[0].weight, expected[0].weight)
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert model[1].num_batches_tracked == 5


def test_other_forms_are_refused() -> None:
    for params in (model_of(0).named_parameters(), 3, {1, 2}):
        with pytest.raises(ValueError, match="state_dict"):
            hvd.broadcast_parameters(params, root_rank=0)
    with pytest.raises(ValueError, match="broadcast of extra"):
        hvd.broadcast_parameters({"extra": "text"}, root_rank=0)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda each: each.__name__)
def test_state_from_a_checkpoint_of_the_root(optimizer: type[optim.Optimizer]) -> None:
    """The root has trained, and lowered its learning rate; the others have just been started."""
    root = hvd.size() - 1
    model = model_of(0)
    trained = make(optimizer, model, lr=0.01)
    train(model, trained, 2)
    expected = copy.deepcopy(trained.state_dict())
    if hvd.rank() != root:
        trained = make(optimizer, model)
    hvd.broadcast_optimizer_state(trained, root_rank=root)
    result = trained.state_dict()
    assert_equal(result, expected)
    # ... and the state is what the next steps use.
    train(model, trained, 1)
    weights = hvd.allgather(model[0].weight.detach()[None])
    assert all(torch.equal(each, weights[0]) for each in weights)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda each: each.__name__)
def test_a_fresh_start_is_as_without_broadcasting(optimizer: type[optim.Optimizer]) -> None:
    plain, broadcast = model_of(0), model_of(0)
    train(plain, make(optimizer, plain), 3)
    fresh = make(optimizer, broadcast)
    hvd.broadcast_optimizer_state(fresh, root_rank=0)
    assert fresh.state
    assert_equal(dict(broadcast.state_dict()), dict(model_of(0).state_dict()))
    train(broadcast, fresh, 3)
    assert_equal(dict(broadcast.state_dict()), dict(plain.state_dict()))


def test_a_rank_that_has_trained_takes_over_the_beginning() -> None:
    model = model_of(0)
    adam = optim.Adam(model.parameters())
    if hvd.rank() != 0:
        train(model, adam, 3)
    hvd.broadcast_optimizer_state(adam, root_rank=0)
    assert [float(state["step"]) for state in adam.state.values()] == [0.0, 0.0]


@pytest.mark.parametrize("dampening", [0.0, 0.3])
def test_momentum_of_a_fresh_start(dampening: float) -> None:
    plain, broadcast = model_of(0), model_of(0)
    train(plain, optim.SGD(plain.parameters(), lr=0.1, momentum=0.9, dampening=dampening), 3)
    fresh = optim.SGD(broadcast.parameters(), lr=0.1, momentum=0.9, dampening=dampening)
    hvd.broadcast_optimizer_state(fresh, root_rank=0)
    train(broadcast, fresh, 3)
    assert_equal(dict(broadcast.state_dict()), dict(plain.state_dict()))


def test_options_keep_their_types() -> None:
    first = hvd.rank() == 0
    model = model_of(0)
    parameters: list[Any] = [
        {"params": [model[0].weight], "lr": 0.1 if first else 0.2},
        {"params": [model[2].weight], "betas": (0.5, 0.6) if first else (0.1, 0.2), "amsgrad": first},
    ]
    adam = optim.Adam(parameters, lr=torch.tensor(0.3 if first else 0.4), eps=1 if first else 2, foreach=False)
    held = adam.param_groups[1]["lr"]
    adam.param_groups[0]["mine"] = {"a": [1, 2.0]} if first else None
    hvd.broadcast_optimizer_state(adam, root_rank=0)
    first_group, second_group = adam.param_groups
    assert_equal(first_group["lr"], 0.1)
    assert_equal(second_group["betas"], (0.5, 0.6))
    assert_equal(second_group["amsgrad"], True)
    assert_equal(second_group["eps"], 1)
    assert_equal(first_group["mine"], {"a": [1, 2.0]})
    assert second_group["lr"] is held
    assert_equal(held, torch.tensor(0.3))
    assert "max_exp_avg_sq" in adam.state[model[2].weight]


def test_plain_sgd_has_options_only() -> None:
    model = model_of(0)
    sgd = optim.SGD(model.parameters(), lr=0.1 + hvd.rank())
    hvd.broadcast_optimizer_state(sgd, root_rank=0)
    assert sgd.param_groups[0]["lr"] == 0.1


def test_frozen_parameters_and_own_gradients() -> None:
    model = model_of(0)
    model[0].weight.requires_grad_(False)
    model[2].weight.grad = torch.ones(2, 4)
    adam = optim.Adam(model.parameters())
    hvd.broadcast_optimizer_state(adam, root_rank=0)
    assert model[0].weight.grad is None
    assert torch.equal(model[2].weight.grad, torch.ones(2, 4))
    assert list(adam.state) == [model[2].weight]


def test_a_gradient_is_there_after_the_state_was_created() -> None:
    model = model_of(0)
    hvd.broadcast_optimizer_state(optim.Adam(model.parameters()), root_rank=0)
    assert all(torch.equal(each.grad, torch.zeros_like(each)) for each in model.parameters())


def test_sparse_gradients() -> None:
    embedding = nn.Embedding(10, 3, sparse=True)
    adam = optim.SparseAdam(embedding.parameters(), lr=0.1 + hvd.rank())
    hvd.broadcast_optimizer_state(adam, root_rank=0)
    assert embedding.weight.grad.is_sparse
    assert adam.state[embedding.weight]["exp_avg"].shape == (10, 3)
    assert adam.param_groups[0]["lr"] == 0.1

    model = nn.Sequential(nn.Embedding(10, 3, sparse=True), nn.Linear(3, 1))
    sgd = optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    hvd.broadcast_optimizer_state(sgd, root_rank=0, model=model)
    assert model[0].weight.grad.is_sparse
    assert not model[1].weight.grad.is_sparse
    sgd.zero_grad()
    model(torch.tensor([1, 2, 2])).sum().backward()
    sgd.step()


def test_lbfgs_is_refused() -> None:
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(optim.LBFGS(model_of(0).parameters()), root_rank=0)


def test_the_state_of_a_wrapped_optimizer_is_created_without_a_collective() -> None:
    """Only the ranks that have no state yet create it."""
    model = model_of(0)
    adam = hvd.DistributedOptimizer(optim.Adam(model.parameters()), named_parameters=model.named_parameters())
    if hvd.rank() == 0:
        adam.load_state_dict(trained_state())
    hvd.broadcast_optimizer_state(adam, root_rank=0)
    assert_equal(adam.state_dict(), trained_state())


def trained_state() -> dict[str, Any]:
    model = model_of(0)
    adam = optim.Adam(model.parameters())
    train(model, adam, 2)
    return adam.state_dict()
