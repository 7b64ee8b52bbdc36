"""DistributedOptimizer: its methods, and Adasum."""

from __future__ import annotations

import os
import warnings

import pytest
import torch
from models import assert_same_on_all_ranks, backward, batch, gradients, make_model, sgd

import horovod.torch as hvd
from horovod.torch.optimizer import DistributedOptimizer

# ---- methods


def test_a_step_after_synchronize_warns_once_and_reduces_again() -> None:
    model = make_model()
    optimizer = sgd(model, op=hvd.Sum)
    for _ in range(2):
        optimizer.zero_grad()
        backward(model)
        optimizer.synchronize()
        once = gradients(model)
        with pytest.warns(UserWarning, match=r"optimizer\.skip_synchronize\(\)") as caught:
            optimizer.step()
        assert len(caught) == 1
        torch.testing.assert_close(gradients(model), hvd.size() * once)
    optimizer.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backward(model)
        optimizer.step()


@pytest.mark.usefixtures("waits_in_step")
def test_zero_grad_while_gradients_are_reduced() -> None:
    model = make_model()
    optimizer = sgd(model)
    backward(model)
    with pytest.raises(AssertionError, match="zero_grad"):
        optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad()
    assert model[0].weight.grad is None
    backward(model)
    with pytest.raises(AssertionError, match="zero_grad"):
        optimizer.zero_grad()
    optimizer.synchronize()
    optimizer.zero_grad(set_to_none=False)
    assert torch.equal(gradients(model), torch.zeros_like(gradients(model)))


def test_a_closure_is_followed_by_a_reduction() -> None:
    model = make_model()
    optimizer = sgd(model)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(batch(0, hvd.rank())).square().sum()
        loss.backward()
        return loss

    for _ in range(3):
        expected = make_model()
        expected.load_state_dict(model.state_dict())
        loss = optimizer.step(closure)
        assert loss.item() > 0
        assert_same_on_all_ranks(model.parameters())


@pytest.mark.usefixtures("waits_in_step")
def test_load_state_dict_begins_a_step() -> None:
    model = make_model()
    optimizer = DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters()
    )
    for step in range(2):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
    saved = optimizer.state_dict()
    optimizer.zero_grad()
    backward(model)
    assert optimizer._reducer.in_flight
    optimizer.load_state_dict(saved)
    assert not optimizer._reducer.in_flight
    optimizer.zero_grad()
    backward(model)
    optimizer.step()
    assert_same_on_all_ranks(model.parameters())
    plain = torch.optim.SGD(make_model().parameters(), lr=1.0)
    plain.load_state_dict(saved)
    assert plain.param_groups[0]["lr"] == 0.1


def test_hooks_of_a_step_run_once() -> None:
    model = make_model()
    optimizer = sgd(model)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("pre"))
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    backward(model)
    optimizer.step()
    assert calls == ["pre", "post"]


def test_an_optimizer_that_is_gone_leaves_nothing_behind() -> None:
    model = make_model()
    for step in range(3):  # each would reduce under the same names
        optimizer = sgd(model)
        for _ in range(2):
            optimizer.zero_grad()
            backward(model, step)
            optimizer.step()
        del optimizer
    assert_same_on_all_ranks(model.parameters())


def test_an_elastic_world_of_one_reduces() -> None:
    alone = hvd.add_process_set([hvd.size() - 1])
    os.environ["HOROVOD_ELASTIC"] = "1"
    try:
        model = make_model()
        optimizer = sgd(model, process_set=alone)
        assert (optimizer._reducer is not None) == (hvd.rank() == hvd.size() - 1)
        backward(model)
        optimizer.step()
    finally:
        del os.environ["HOROVOD_ELASTIC"]
        hvd.remove_process_set(alone)


# ---- names that look private, and which libraries use


def test_the_reduction_of_one_gradient() -> None:
    for options in ({}, {"compression": hvd.Compression.fp16}, {"op": hvd.Sum}):
        model = make_model()
        optimizer = sgd(model, **options)
        assert isinstance(optimizer, hvd.optimizer._DistributedOptimizer)
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, float(hvd.rank()))
        for parameter in model.parameters():
            handle, context = optimizer._allreduce_grad_async(parameter)
            reduced = optimizer._wire.compression.decompress(hvd.synchronize(handle), context)
            total = hvd.size() * (hvd.size() - 1) / 2
            expected = total if "op" in options else total / hvd.size()
            assert torch.equal(reduced, torch.full_like(parameter, expected))
            assert (reduced is parameter.grad) == ("compression" not in options)


def test_the_functions_of_the_library() -> None:
    assert hvd.mpi_ops._basics.rank() == hvd.rank()
    assert hvd.mpi_ops._basics.size() == hvd.size()


# ---- Adasum


def test_adasum_combines_steps() -> None:
    model = make_model()
    optimizer = DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=hvd.Adasum
    )
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in model.parameters())
    for step in range(3):
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.zero_grad()
        backward(model, step)
        assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
        deltas = [-0.1 * p.grad for p in model.parameters()]
        optimizer.step()
        for number, (p, b, delta) in enumerate(zip(model.parameters(), before, deltas, strict=True)):
            combined = hvd.allreduce(delta, name=f"expected.{number}", op=hvd.Adasum)
            torch.testing.assert_close(p.detach(), b + combined)
        assert_same_on_all_ranks(model.parameters())
    optimizer.zero_grad()
    backward(model)
    optimizer.load_state_dict(optimizer.state_dict())
    assert isinstance(optimizer, hvd.optimizer._DistributedAdasumOptimizer)
    handle, _ = optimizer._allreduce_grad_async(model[0].weight)
    assert handle == optimizer._on_their_way[0].handle
    optimizer.step()
    assert_same_on_all_ranks(model.parameters())
    optimizer.synchronize()
    with pytest.raises(AssertionError), optimizer.skip_synchronize():
        pass
    with pytest.raises(NotImplementedError):
        some = hvd.ProcessSet([0])
        DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum, process_set=some)


def test_adasum_with_passes_state_and_compression() -> None:
    model = make_model()
    plain = torch.optim.Adam(model.parameters(), lr=0.1)
    optimizer = DistributedOptimizer(plain, op=hvd.Adasum, backward_passes_per_step=2, compression=hvd.Compression.fp16)
    assert optimizer._parameter_names[model[0].weight] == "allreduce.noname.0"
    for step in range(3):
        backward(model, step)
        backward(model, step + 10)
        with pytest.raises(AssertionError, match="zero_grad"):
            optimizer.zero_grad()
        optimizer.step()
        optimizer.zero_grad()
        assert_same_on_all_ranks(model.parameters())
    assert all(state["step"] == 3 for state in optimizer.state.values())
    backward(model)
    backward(model)
    with pytest.raises(AssertionError, match="backward_passes_per_step"):
        backward(model)
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
