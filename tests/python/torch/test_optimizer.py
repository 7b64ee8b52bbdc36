"""DistributedOptimizer: its arguments, and what it reduces."""

from __future__ import annotations

import pytest
import torch
from models import assert_same_on_all_ranks, backward, flat, gradients, make_model, mean_gradients, sgd

import horovod.torch as hvd
from horovod.torch.optimizer import DistributedOptimizer

ENTRIES = "zero", "one"


# ---- arguments


def test_arguments_are_checked() -> None:
    model = make_model()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    named = list(model.named_parameters())
    for options, words in (
        ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "gradient_predivide_factor"),
        ({"backward_passes_per_step": 0}, "backward_passes_per_step"),
        ({"groups": 0}, "groups"),
        ({"groups": [["weight"]]}, "groups"),
        ({"groups": [[named[0][1]], [named[0][1]]]}, "two groups"),
        ({"named_parameters": [p for _, p in named]}, "tuples"),
        ({"named_parameters": [("a", p) for _, p in named]}, "unique"),
        ({"named_parameters": named[1:]}, "does not name"),
    ):
        with pytest.raises(ValueError, match=words):
            DistributedOptimizer(plain, **options)
    with pytest.warns(DeprecationWarning, match="groups"):
        DistributedOptimizer(plain, num_groups=2)


def test_the_class_is_derived_from_the_given_one() -> None:
    model = make_model()
    plain = torch.optim.AdamW(model.parameters(), lr=0.25, weight_decay=0.5)
    optimizer = DistributedOptimizer(plain, model.named_parameters())
    assert type(optimizer).__name__ == "AdamW"
    assert type(optimizer).__module__ == "horovod.torch.optimizer"
    assert isinstance(optimizer, torch.optim.AdamW)
    assert optimizer.param_groups[0] is plain.param_groups[0]
    assert optimizer.defaults["lr"] == 0.25
    assert not optimizer.state
    assert optimizer._parameter_names[model[0].weight] == "0.weight"
    assert (optimizer.op, optimizer.backward_passes_per_step) == (hvd.Average, 1)


def test_names_without_the_users() -> None:
    model = make_model()
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.5}]
    optimizer = DistributedOptimizer(torch.optim.SGD(groups, lr=0.1))
    assert list(optimizer._parameter_names.values()) == [f"allreduce.noname.{i}.{j}" for i in (0, 1) for j in (0, 1)]


def test_an_optimizer_of_the_users_own_with_more_arguments() -> None:
    class Mine(torch.optim.SGD):
        def __init__(self, params: object, secret: object) -> None:
            super().__init__(params, lr=0.5)
            self.secret = secret

    model = make_model()
    optimizer = DistributedOptimizer(Mine(model.parameters(), "word"), model.named_parameters())
    assert optimizer.secret == "word"
    backward(model)
    optimizer.step()
    assert_same_on_all_ranks(model.parameters())


# ---- what is reduced


def test_gradients_are_averaged_in_place() -> None:
    model = make_model()
    optimizer = sgd(model)
    for step in range(4):
        optimizer.zero_grad()
        model.load_state_dict(make_model().state_dict())
        backward(model, step)
        before = [p.grad for p in model.parameters()]
        optimizer.synchronize()
        assert all(p.grad is grad for p, grad in zip(model.parameters(), before, strict=True))
        torch.testing.assert_close(gradients(model), mean_gradients(step))
        with optimizer.skip_synchronize():
            optimizer.step()
        assert_same_on_all_ranks(model.parameters())


@pytest.mark.parametrize(
    "options",
    [
        {"op": hvd.Sum},
        {"gradient_predivide_factor": 4.0},
        {"compression": hvd.Compression.fp16},
        {"groups": 2},
        {"groups": 100},
        {"groups": "two of them"},
        {"groups": 2, "compression": hvd.Compression.fp16},
    ],
    ids=str,
)
def test_ways_to_reduce(options: dict[str, object]) -> None:
    model = make_model()
    if options.get("groups") == "two of them":
        options = {"groups": [[model[0].weight, model[4].bias], [model[2].weight, model[2].bias]]}
    optimizer = sgd(model, **options)
    for step in range(3):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.synchronize()
        expected = mean_gradients(step) * (hvd.size() if options.get("op") == hvd.Sum else 1)
        close = {"rtol": 1e-2, "atol": 1e-2} if "compression" in options else {}
        torch.testing.assert_close(gradients(model), expected, **close)


def test_passes_are_summed() -> None:
    model = make_model()
    optimizer = sgd(model, backward_passes_per_step=2)
    for _ in range(3):
        optimizer.zero_grad()
        backward(model, 0)
        assert not optimizer._reducer.in_flight
        backward(model, 1)
        optimizer.synchronize()
        torch.testing.assert_close(gradients(model), mean_gradients(0) + mean_gradients(1))
    optimizer.zero_grad()
    backward(model, 2)  # one of two: it is reduced all the same
    optimizer.synchronize()
    torch.testing.assert_close(gradients(model), mean_gradients(2))
    optimizer.set_backward_passes_per_step(1)
    for step in (3, 4):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.synchronize()
        torch.testing.assert_close(gradients(model), mean_gradients(step))


@pytest.mark.parametrize("in_step", [False, True])
def test_too_many_passes(in_step: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_TORCH_WAIT_IN_STEP", str(int(in_step)))
    for warm in (0, 2):
        model = make_model()
        optimizer = sgd(model)
        for _ in range(warm):
            backward(model)
            optimizer.step()
            optimizer.zero_grad()
        backward(model)
        with pytest.raises(AssertionError, match="backward_passes_per_step"):
            backward(model)
        if not in_step:
            with pytest.raises(RuntimeError, match="changed"):
                optimizer.step()
        optimizer.zero_grad()
        backward(model)
        if in_step:  # else nothing was on its way that this could spoil
            with pytest.raises(RuntimeError, match="changed while it was being reduced"):
                optimizer.step()
            optimizer.zero_grad()
            backward(model)
        optimizer.step()
        assert_same_on_all_ranks(model.parameters())


def test_no_sync_accumulates() -> None:
    model = make_model()
    optimizer = sgd(model)
    for _ in range(3):
        optimizer.zero_grad()
        with optimizer.no_sync():
            backward(model, 0)
            backward(model, 1)
        assert not optimizer._reducer.in_flight
        backward(model, 2)
        optimizer.synchronize()
        torch.testing.assert_close(gradients(model), mean_gradients(0) + mean_gradients(1) + mean_gradients(2))


def test_parameters_that_some_ranks_do_not_use() -> None:
    torch.manual_seed(3)
    model = torch.nn.ModuleDict({name: torch.nn.Linear(4, 2) for name in (*ENTRIES, "never")})
    optimizer = sgd(model)
    for step in range(4):
        optimizer.zero_grad()
        used = ENTRIES[(hvd.rank() + step) % 2]
        model[used](torch.ones(1, 4)).sum().backward()
        optimizer.synchronize()
        for number, name in enumerate(ENTRIES):
            share = sum((rank + step) % 2 == number for rank in range(hvd.size())) / hvd.size()
            torch.testing.assert_close(model[name].weight.grad, torch.full((2, 4), share))
        assert torch.equal(model["never"].weight.grad, torch.zeros(2, 4))
        with optimizer.skip_synchronize():
            optimizer.step()
    assert_same_on_all_ranks(model.parameters())


def test_several_losses_before_a_step() -> None:
    model = torch.nn.ModuleDict({name: torch.nn.Linear(4, 2) for name in ENTRIES})
    optimizer = sgd(model)
    for _ in range(3):
        optimizer.zero_grad()
        for number, name in enumerate(ENTRIES):
            (model[name](torch.ones(1, 4)).sum() * (hvd.rank() + number)).backward()
        optimizer.synchronize()
        for number, name in enumerate(ENTRIES):
            expected = (hvd.size() - 1) / 2 + number
            torch.testing.assert_close(model[name].weight.grad, torch.full((2, 4), expected))


@pytest.mark.parametrize("as_dense", [False, True])
def test_sparse_gradients(as_dense: bool) -> None:
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Embedding(10, 3, sparse=True), torch.nn.Linear(3, 1))
    optimizer = sgd(model, sparse_as_dense=as_dense)
    for step in range(3):
        optimizer.zero_grad()
        if step < 2 or hvd.rank() > 0:  # at last rank 0 has no gradient, and must know that the others' are sparse
            model(torch.tensor([hvd.rank(), hvd.rank() + 1])).sum().backward()
        optimizer.synchronize()
        grad = model[0].weight.grad
        assert grad.is_sparse
        one = model[1].weight.detach().flatten() / hvd.size()
        expected = torch.zeros(10, 3)
        for rank in range(0 if step < 2 else 1, hvd.size()):
            expected[rank] += one
            expected[rank + 1] += one
        torch.testing.assert_close(grad.to_dense(), expected)
        with optimizer.skip_synchronize():
            optimizer.step()
    assert_same_on_all_ranks(model.parameters())


def test_a_compressor_that_reduces_by_itself() -> None:
    seen = []

    class Doubling:
        def reduce_async(self, tensor, name, op, process_set, prescale, postscale):
            seen.append((name, op, prescale, postscale))
            handle = hvd.allreduce_async(tensor, None, name, op, process_set=process_set)
            return lambda: 2 * hvd.synchronize(handle)

    model = make_model()
    optimizer = sgd(model, compression=Doubling(), gradient_predivide_factor=2.0)
    for step in range(2):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.synchronize()
        torch.testing.assert_close(gradients(model), 2 * mean_gradients(step))
    assert sorted(seen[:6]) == sorted((name, hvd.Average, 0.5, 2.0) for name, _ in model.named_parameters())


def test_gradients_with_gaps() -> None:
    torch.manual_seed(1)
    model = torch.nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last)
    optimizer = sgd(model)
    for _ in range(3):
        optimizer.zero_grad()
        inputs = torch.full((1, 3, 4, 4), float(hvd.rank())).to(memory_format=torch.channels_last)
        model(inputs).sum().backward()
        model.weight.grad = model.weight.grad.to(memory_format=torch.channels_last)
        optimizer.synchronize()
        assert not model.weight.grad.is_contiguous()
        torch.testing.assert_close(model.weight.grad, torch.full_like(model.weight, 4 * (hvd.size() - 1) / 2))


def test_members_of_a_process_set() -> None:
    members = hvd.add_process_set(range(1, hvd.size()))
    model = make_model()
    optimizer = sgd(model, process_set=members, groups=2)
    for step in range(2):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
    if members.included():
        assert_same_on_all_ranks(model.parameters(), members)
    mine = flat(model.parameters())
    everybodys = hvd.allgather(mine.unsqueeze(0), "everybodys weights")
    assert all(torch.equal(each, everybodys[1]) for each in everybodys[1:])
    assert not torch.equal(everybodys[0], everybodys[1])
    optimizer.synchronize()
    hvd.remove_process_set(members)


def test_requires_grad_may_change() -> None:
    model = make_model()
    model[0].requires_grad_(False)
    optimizer = sgd(model)
    for step in range(6):
        model[0].requires_grad_(step >= 2)
        model[2].requires_grad_(step < 4)
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
        assert_same_on_all_ranks(model.parameters())
        assert (model[0].weight.grad is None) == (step < 2)
    assert not torch.equal(model[0].weight, make_model()[0].weight)


def test_parameters_added_later() -> None:
    model = make_model()
    optimizer = DistributedOptimizer(torch.optim.SGD(model[0].parameters(), lr=0.1), model[0].named_parameters())
    backward(model)
    optimizer.step()
    optimizer.zero_grad()
    optimizer.add_param_group({"params": list(model[2].parameters()) + list(model[4].parameters())})
    for step in range(3):
        model.zero_grad()
        backward(model, step)
        optimizer.step()
        assert_same_on_all_ranks(model.parameters())
