"""DistributedOptimizer in what training scripts do around it: mixed precision, clipping, checkpointing, retries."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from models import assert_same_on_all_ranks, batch, flat, make_model
from torch.utils.checkpoint import checkpoint

import horovod.torch as hvd
from horovod.torch.optimizer import DistributedOptimizer


def wrapped(
    model: torch.nn.Module, plain: torch.optim.Optimizer | None = None, **options: object
) -> torch.optim.Optimizer:
    return DistributedOptimizer(
        plain or torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), **options
    )


def loss_of(model: torch.nn.Module, step: int = 0, rank: int | None = None) -> torch.Tensor:
    return model(batch(step, hvd.rank() if rank is None else rank)).square().sum()


def alone(model: torch.nn.Module, step: int) -> list[torch.Tensor]:
    """The average of the gradients of all ranks, computed here with a copy of the model."""
    twin = copy.deepcopy(model)
    twin.zero_grad()
    (sum(loss_of(twin, step, rank) for rank in range(hvd.size())) / hvd.size()).backward()
    return [p.grad for p in twin.parameters()]


def assert_gradients(model: torch.nn.Module, expected: list[torch.Tensor]) -> None:
    for parameter, grad in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, grad)


# ---- every optimizer

ELEMENTWISE = ["Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"]


@pytest.mark.parametrize("name", [*ELEMENTWISE, "Adafactor", "Muon", "LBFGS"])
def test_every_optimizer(name: str) -> None:
    model = make_model()
    used = [p for p in model.parameters() if p.ndim == 2] if name == "Muon" else list(model.parameters())
    named = [(n, p) for n, p in model.named_parameters() if name != "Muon" or p.ndim == 2]
    optimizer = DistributedOptimizer(getattr(torch.optim, name)(used, lr=0.01), named)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    twin = make_model()
    plain = getattr(torch.optim, name)([p for p in twin.parameters() if name != "Muon" or p.ndim == 2], lr=0.01)
    for step in range(3):

        def closure(step: int = step) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            return hvd.allreduce(loss.detach(), name="loss")  # LBFGS uses it to decide how to continue

        def plain_closure(step: int = step) -> torch.Tensor:
            plain.zero_grad()
            loss = sum(loss_of(twin, step, rank) for rank in range(hvd.size())) / hvd.size()
            loss.backward()
            return loss.detach()

        if name == "LBFGS":
            optimizer.step(closure)
            plain.step(plain_closure)
        else:
            closure()
            optimizer.step()
            plain_closure()
            plain.step()
        scheduler.step()
        for group in plain.param_groups:
            group["lr"] *= 0.5
    assert_same_on_all_ranks(model.parameters())
    torch.testing.assert_close(flat(model.parameters()), flat(twin.parameters()), rtol=1e-4, atol=1e-5)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01 / 8)


@pytest.mark.parametrize("way", ["foreach", "fused"])
def test_foreach_and_fused(way: str) -> None:
    model = make_model()
    optimizer = wrapped(model, torch.optim.AdamW(model.parameters(), lr=0.01, **{way: True}))
    twin = make_model()
    plain = torch.optim.AdamW(twin.parameters(), lr=0.01)
    for step in range(3):
        optimizer.zero_grad(set_to_none=step == 1)
        loss_of(model, step).backward()
        optimizer.step()
        for parameter, grad in zip(twin.parameters(), alone(twin, step), strict=True):
            parameter.grad = grad
        plain.step()
    torch.testing.assert_close(flat(model.parameters()), flat(twin.parameters()))


# ---- mixed precision and clipping


@pytest.mark.parametrize("fused", [False, True])
def test_grad_scaler_needs_no_care(fused: bool) -> None:
    model = make_model()
    optimizer = wrapped(model, torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused))
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=100)
    for step in range(4):
        optimizer.zero_grad()
        expected = alone(model, step)
        loss = loss_of(model, step)
        if step == 2 and hvd.rank() == 0:
            loss = loss * float("inf")
        before = flat(model.parameters())
        scaler.scale(loss).backward()
        if step == 3:
            scaler.unscale_(optimizer)
            assert_gradients(model, expected)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        scaler.step(optimizer)
        scaler.update()
        assert_same_on_all_ranks(model.parameters())
        skipped = step == 2  # by all ranks, although one had the infinity
        assert torch.equal(before, flat(model.parameters())) == skipped
    assert scaler.get_scale() == 32.0


def test_grad_scaler_as_the_documentation_says() -> None:
    model = make_model()
    optimizer = wrapped(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(3):
        optimizer.zero_grad()
        expected = alone(model, step)
        scaler.scale(loss_of(model, step)).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        assert_gradients(model, expected)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        assert_same_on_all_ranks(model.parameters())


def test_autocast_to_bfloat16() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        model = make_model().to(dtype)
        optimizer = wrapped(model)
        for step in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(batch(step, hvd.rank()).to(dtype)).float().square().sum()
            loss.backward()
            assert model[0].weight.grad.dtype == dtype
            optimizer.step()
            assert_same_on_all_ranks(model.parameters())
    model.to(torch.float32)  # in the middle of training
    for step in range(2):
        optimizer.zero_grad()
        expected = alone(model, step)
        loss_of(model, step).backward()
        optimizer.synchronize()
        assert_gradients(model, expected)


def test_clipping_between_synchronize_and_step() -> None:
    model = make_model()
    optimizer = wrapped(model)
    for step in range(3):
        optimizer.zero_grad()
        expected = alone(model, step)
        loss_of(model, step).backward()
        optimizer.synchronize()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        torch.testing.assert_close(norm, torch.linalg.vector_norm(flat(expected)))
        with optimizer.skip_synchronize():
            optimizer.step()
        assert_same_on_all_ranks(model.parameters())


@pytest.mark.usefixtures("waits_in_step")
def test_clipping_too_early_is_an_error_that_says_what_to_do() -> None:
    model = make_model()
    optimizer = wrapped(model)
    loss_of(model).backward()
    optimizer.step()
    optimizer.zero_grad()
    loss_of(model).backward()
    model[2].bias.grad.mul_(0.5)  # one of several in a bucket
    with pytest.raises(RuntimeError, match=r"gradient of 2\.bias was changed .*skip_synchronize"):
        optimizer.step()
    optimizer.zero_grad()
    expected = alone(model, 0)
    loss_of(model).backward()
    optimizer.synchronize()
    assert_gradients(model, expected)


# ---- models


class Shared(torch.nn.Module):
    """Uses one layer twice, under two names."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.first = torch.nn.Linear(4, 4)
        self.again = self.first
        self.last = torch.nn.Linear(4, 2)
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.reentrant is None:
            return self.last(torch.tanh(self.again(torch.tanh(self.first(x)))))
        x.requires_grad_()
        x = checkpoint(lambda y: torch.tanh(self.first(y)), x, use_reentrant=self.reentrant)
        x = checkpoint(lambda y: torch.tanh(self.again(y)), x, use_reentrant=self.reentrant)
        return checkpoint(self.last, x, use_reentrant=self.reentrant)


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("reentrant", [None, False, True])
def test_a_layer_used_twice_and_checkpointed(reentrant: bool | None, passes: int) -> None:
    model = Shared(reentrant)
    optimizer = wrapped(model, backward_passes_per_step=passes)
    for step in range(4):
        optimizer.zero_grad()
        expected = [torch.zeros_like(p) for p in model.parameters()]
        for number in range(passes):
            for total, grad in zip(expected, alone(model, 10 * number + step), strict=True):
                total += grad
        for number in range(passes):
            loss_of(model, 10 * number + step).backward()
        assert_gradients(model, expected)
        optimizer.step()


def test_a_compiled_model() -> None:
    model = make_model()
    optimizer = wrapped(model)
    compiled = torch.compile(model, backend="aot_eager")
    for step in range(3):
        optimizer.zero_grad()
        expected = alone(model, step)
        loss_of(compiled, step).backward()
        assert_gradients(model, expected)
        optimizer.step()


def test_a_copy_of_model_and_optimizer() -> None:
    model = make_model()
    optimizer = wrapped(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    twin, twin_optimizer = copy.deepcopy((model, optimizer))
    assert twin_optimizer.state_dict()["state"].keys() == optimizer.state_dict()["state"].keys()
    for step in range(2, 5):
        for each, its_optimizer in ((model, optimizer), (twin, twin_optimizer)):
            its_optimizer.zero_grad()
            loss_of(each, step).backward()
            its_optimizer.step()
            assert_same_on_all_ranks(each.parameters())
    assert torch.equal(flat(model.parameters()), flat(twin.parameters()))


# ---- failures


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        raise ArithmeticError("on purpose")


def failing_backward(model: torch.nn.Sequential, step: int, after: int) -> None:
    x = batch(step, hvd.rank())
    for number, layer in enumerate(model):
        x = layer(Fails.apply(x) if number == after else x)
    with pytest.raises(ArithmeticError):
        x.square().sum().backward()


@pytest.mark.parametrize("who", ["all", "one", "each elsewhere"])
def test_a_backward_that_fails_can_be_repeated(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horovod.torch.optimizer.slots.FIRST_BUCKET_BYTES", 1)  # so that something is under way
    monkeypatch.setattr("horovod.torch.optimizer.slots.BUCKET_BYTES", 1)
    model = make_model()
    optimizer = wrapped(model)
    for step in range(6):
        optimizer.zero_grad()
        if step % 2 == 0 and (who != "one" or hvd.rank() == 0):
            failing_backward(model, step, after=1 + hvd.rank() if who == "each elsewhere" else 2)
            optimizer.zero_grad(set_to_none=step == 2)
        expected = alone(model, step)
        loss_of(model, step).backward()
        optimizer.synchronize()
        assert_gradients(model, expected)  # the failed one had the same input
        with optimizer.skip_synchronize():
            optimizer.step()
        assert_same_on_all_ranks(model.parameters())


def test_a_step_after_a_failed_backward() -> None:
    model = make_model()
    optimizer = wrapped(model)
    for step in range(4):
        optimizer.zero_grad()
        if step == 2:
            failing_backward(model, step, after=2)
        else:
            loss_of(model, step).backward()
        optimizer.step()
        assert_same_on_all_ranks(model.parameters())


# ---- overlap


def test_reductions_end_before_backward_does() -> None:
    """Seen from inside: when backward reaches its last layer, gradients of the first ones have been reduced."""
    seen: list[str] = []

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            reducer = optimizer._reducer
            if reducer._learning is not None:
                seen.append("nothing")
                return grad
            while not reducer._requests.batch.is_done(0):
                pass  # only the engine's thread can end this, or the time limit of the test
            seen.append("the first")
            return grad

    torch.manual_seed(1)
    layers = [torch.nn.Linear(600, 600) for _ in range(3)]
    model = torch.nn.ModuleList(layers)
    optimizer = wrapped(model)
    for _ in range(3):
        optimizer.zero_grad()
        x = torch.full((1, 600), float(hvd.rank()))
        last = layers[2](layers[1](Look.apply(layers[0](x))))
        last.sum().backward()
        optimizer.step()
    assert seen == ["nothing", "the first", "the first"]
    assert_same_on_all_ranks(model.parameters())


@pytest.mark.usefixtures("waits_in_step")
def test_reductions_end_though_nobody_waits_for_them() -> None:
    """Between backward and step a rank may do something else for long; others must not wait for it meanwhile."""
    model = make_model()
    optimizer = wrapped(model)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        batch_of_requests = optimizer._reducer._requests.batch
        while not all(batch_of_requests.is_done(index) for index, _ in enumerate(model.parameters())):
            pass  # only the engine's thread can end this, or the time limit of the test
        optimizer.step()
    assert_same_on_all_ranks(model.parameters())


def test_the_timeline_shows_the_names(tmp_path: Path) -> None:
    model = make_model()
    optimizer = wrapped(model)
    path = tmp_path / "timeline.json"
    hvd.start_timeline(str(path))
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    hvd.stop_timeline()
    if hvd.rank() == 0:
        text = path.read_text()
        assert json.loads(text)
        assert all(f"allreduce.{name}" in text for name, _ in model.named_parameters())
