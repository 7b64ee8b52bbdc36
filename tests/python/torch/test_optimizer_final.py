"""DistributedOptimizer: gradients are final when backward returns, whatever the script does before its step."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from models import assert_same_on_all_ranks, backward, batch, flat, gradients, make_model, mean_gradients, sgd
from torch.utils.checkpoint import checkpoint

import horovod.torch as hvd
from horovod.torch.optimizer import DistributedOptimizer


def clip_norm(model: torch.nn.Module) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def clip_value(model: torch.nn.Module) -> None:
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)


def clamp_data(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad.data.clamp_(-0.01, 0.01)


def divide(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = parameter.grad / (1 + parameter.grad.abs().max())


@pytest.mark.parametrize("change", [clip_norm, clip_value, clamp_data, divide])
def test_what_scripts_do_to_gradients_before_the_step(change: Callable[[torch.nn.Module], None]) -> None:
    model, twin = make_model(), make_model()
    optimizer, plain = sgd(model, lr=1.0), torch.optim.SGD(twin.parameters(), lr=1.0)
    for step in range(3):
        optimizer.zero_grad()
        plain.zero_grad()
        backward(model, step)
        loss = sum(twin(batch(step, rank)).square().sum() for rank in range(hvd.size())) / hvd.size()
        loss.backward()
        torch.testing.assert_close(gradients(model), gradients(twin))
        change(model)
        change(twin)
        optimizer.step()
        plain.step()
        torch.testing.assert_close(flat(model.parameters()), flat(twin.parameters()))
        assert_same_on_all_ranks(model.parameters())


@pytest.mark.parametrize(
    "options",
    [
        {"op": hvd.Sum},
        {"gradient_predivide_factor": 4.0},
        {"compression": hvd.Compression.fp16},
        {"compression": hvd.Compression.int8()},
        {"groups": 2},
        {"backward_passes_per_step": 2},
    ],
    ids=str,
)
def test_ways_to_reduce(options: dict[str, object]) -> None:
    model = make_model()
    optimizer = sgd(model, **options)
    for step in range(3):
        optimizer.zero_grad()
        model.load_state_dict(make_model().state_dict())
        backward(model, step)
        expected = mean_gradients(step) * (hvd.size() if options.get("op") == hvd.Sum else 1)
        if "backward_passes_per_step" in options:
            backward(model, step + 10)
            expected += mean_gradients(step + 10)
        close = {"rtol": 1e-2, "atol": 1e-2} if "compression" in options else {}
        torch.testing.assert_close(gradients(model), expected, **close)
        optimizer.step()


def test_synchronize_and_skip_synchronize_stay_valid() -> None:
    model = make_model()
    optimizer = sgd(model, op=hvd.Sum)  # a second reduction would show
    for step in range(3):
        optimizer.zero_grad()
        model.load_state_dict(make_model().state_dict())
        backward(model, step)
        once = gradients(model)
        optimizer.synchronize()
        assert torch.equal(gradients(model), once)
        with optimizer.skip_synchronize():
            optimizer.step()
        optimizer.zero_grad()
        backward(model, step)
        with optimizer.skip_synchronize():
            optimizer.step()
        assert_same_on_all_ranks(model.parameters())


def test_gradients_nobody_wants_can_be_zeroed() -> None:
    model = make_model()
    optimizer = sgd(model)
    for step in range(3):
        backward(model, step)
        optimizer.zero_grad()
        backward(model, step + 1)
        torch.testing.assert_close(gradients(model), mean_gradients(step + 1))
        optimizer.zero_grad()


def test_other_collectives_between_backward_and_step_of_ranks_that_use_different_parameters() -> None:
    """A rank that has all gradients must not wait, in backward, for one that sends the rest in its step."""
    torch.manual_seed(3)
    model = torch.nn.ModuleDict({name: torch.nn.Linear(4, 2) for name in ("all", "some", "never")})
    optimizer = sgd(model, lr=1.0)
    for step in range(4):
        optimizer.zero_grad()
        out = model["all"](torch.full((1, 4), float(hvd.rank() + 1)))
        if hvd.rank() == step % 2:
            out = out + model["some"](torch.ones(1, 4))
        out.sum().backward()
        torch.testing.assert_close(model["all"].weight.grad, torch.full((2, 4), (hvd.size() + 1) / 2))
        hvd.allreduce(out.detach(), name="a metric")
        before = model["all"].weight.detach().clone()
        model["all"].weight.grad.data.clamp_(-0.5, 0.5)  # is final, as all ranks have computed it
        optimizer.step()
        torch.testing.assert_close(before - model["all"].weight.detach(), torch.full((2, 4), 0.5))
        torch.testing.assert_close(model["some"].weight.grad, torch.full((2, 4), 1 / hvd.size()))
        assert_same_on_all_ranks(model.parameters())


@pytest.mark.parametrize("named", [True, False])
def test_a_change_of_a_gradient_that_another_rank_has_not_computed(named: bool) -> None:
    model = torch.nn.ModuleDict({name: torch.nn.Linear(4, 2) for name in ("all", "some")})
    names = model.named_parameters() if named else None
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), names)
    words = r"some\.\w+" if named else r"allreduce\.noname\.0\.\d \(a parameter of shape \(2, ?4?\)\)"
    for _ in range(2):
        optimizer.zero_grad()
        out = model["all"](torch.ones(1, 4))
        if hvd.rank() == 0:
            out = out + model["some"](torch.ones(1, 4))
        out.sum().backward()
        if hvd.rank() == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            with pytest.raises(RuntimeError, match=f"gradient of {words} was changed"):
                optimizer.step()
        else:
            optimizer.step()


def test_losses_in_another_order_on_every_rank() -> None:
    model = torch.nn.ModuleDict({name: torch.nn.Linear(4, 2) for name in ("zero", "one")})
    optimizer = sgd(model)
    names = ["zero", "one"] if hvd.rank() % 2 else ["one", "zero"]
    for _ in range(3):
        optimizer.zero_grad()
        for name in names:
            (model[name](torch.ones(1, 4)).sum() * hvd.rank()).backward()
            hvd.allreduce(torch.ones(1), name=f"between {names.index(name)}")
        for name in names:  # after the last of them
            torch.testing.assert_close(model[name].weight.grad, torch.full((2, 4), (hvd.size() - 1) / 2))
        optimizer.step()
    assert_same_on_all_ranks(model.parameters())


def test_ranks_that_do_not_wait_in_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_TORCH_WAIT_IN_STEP", str(hvd.rank() % 2))
    model = make_model()
    optimizer = sgd(model)
    for step in range(3):
        optimizer.zero_grad()
        model.load_state_dict(make_model().state_dict())
        if step < 2 or hvd.rank() > 0:
            backward(model, step)
        if hvd.rank() % 2 == 0 and step < 2:
            torch.testing.assert_close(gradients(model), mean_gradients(step))
        optimizer.step()
        assert_same_on_all_ranks(model.parameters())


def test_two_optimizers_and_backwards_that_reach_them_in_another_order() -> None:
    one, two = make_model(1), make_model(2)
    optimizers = [
        DistributedOptimizer(
            torch.optim.SGD(each.parameters(), lr=0.1),
            [(f"{number}.{name}", parameter) for name, parameter in each.named_parameters()],
        )
        for number, each in enumerate((one, two))
    ]
    for step in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        for number, each in enumerate((one, two), 1):
            each.load_state_dict(make_model(number).state_dict())
        losses = [each(batch(step, hvd.rank())).square().sum() for each in (one, two)]
        (losses[0] + losses[1] if hvd.rank() % 2 else losses[1] + losses[0]).backward()
        for number, each in enumerate((one, two), 1):
            torch.testing.assert_close(gradients(each), mean_gradients(step, seed=number))
        for optimizer in reversed(optimizers):
            optimizer.step()


@pytest.mark.parametrize("passes", [1, 2])
def test_a_model_of_one_layer_that_checkpoints_run_twice(passes: int) -> None:
    """After one of two passes its gradients have been computed twice: that must not count as two passes."""
    torch.manual_seed(1)
    model, twin = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    twin.load_state_dict(model.state_dict())
    optimizer = sgd(model, lr=0.0, backward_passes_per_step=passes)

    def output(layer: torch.nn.Module, rank: int) -> torch.Tensor:
        inputs = torch.full((1, 4), float(rank + 1), requires_grad=True)
        between = checkpoint(layer, inputs, use_reentrant=True)
        return checkpoint(lambda x: checkpoint(layer, torch.tanh(x), use_reentrant=True), between, use_reentrant=True)

    for rank in range(hvd.size()):
        (passes * output(twin, rank).sum() / hvd.size()).backward()
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(passes):
            output(model, hvd.rank()).sum().backward()
        torch.testing.assert_close(gradients(model), gradients(twin))
        optimizer.step()


def test_backward_in_another_thread_and_hooks_of_the_users() -> None:
    model = make_model()
    seen: list[torch.Tensor] = []
    optimizer = sgd(model)
    model[4].bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    for step in range(3):
        optimizer.zero_grad()
        model.load_state_dict(make_model().state_dict())
        thread = threading.Thread(target=backward, args=(model, step))
        thread.start()
        thread.join()
        torch.testing.assert_close(gradients(model), mean_gradients(step))
        optimizer.step()
    assert len(seen) == 3


def test_gradients_that_are_not_accumulated_do_not_count() -> None:
    model = make_model()
    optimizer = sgd(model)
    for step in range(3):
        optimizer.zero_grad()
        model.load_state_dict(make_model().state_dict())
        loss = model(batch(step, hvd.rank())).square().sum()
        torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        loss.backward()
        torch.testing.assert_close(gradients(model), mean_gradients(step))
        optimizer.step()


def test_a_rank_without_data_joins() -> None:
    model = make_model()
    optimizer = sgd(model)
    for step in range(1 + hvd.rank()):
        optimizer.zero_grad()
        backward(model, step)
        clip_norm(model)
        optimizer.step()
    hvd.join()


def test_sparse_gradients_are_final() -> None:
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Embedding(10, 3, sparse=True), torch.nn.Linear(3, 1))
    optimizer = sgd(model)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.tensor([hvd.rank()])).sum().backward()
        expected = torch.zeros(10, 3)
        expected[: hvd.size()] = model[1].weight.detach().flatten() / hvd.size()
        torch.testing.assert_close(model[0].weight.grad.to_dense(), expected)
        optimizer.step()
    assert_same_on_all_ranks(model.parameters())
