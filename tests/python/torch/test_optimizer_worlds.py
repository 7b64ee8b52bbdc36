"""What optimizers keep from step to step, when the world or the model changes between two of them."""

from __future__ import annotations

import pytest
import torch
from models import assert_same_on_all_ranks, backward, flat, gradients, make_model, mean_gradients, sgd

import horovod.torch as hvd
from horovod.torch.optimizer import DistributedOptimizer


def another_world() -> None:
    """As an elastic job does it, whose script has a State of its own that does not reload the optimizer."""
    if hvd.is_initialized():
        hvd.barrier()  # all have sent what they send in this one
    hvd.shutdown()
    hvd.init(process_sets="dynamic")


@pytest.mark.parametrize("when", ["in the first step", "later"])
@pytest.mark.parametrize("where", ["backward", "step"])
def test_the_world_changes_between_backward_and_step(when: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_TORCH_WAIT_IN_STEP", str(int(where == "step")))
    model = make_model()
    optimizer = sgd(model)
    if when == "later":
        backward(model)
        optimizer.step()
    for step in range(2):
        optimizer.zero_grad()
        backward(model, step)
        another_world()
        model.zero_grad()
        model.load_state_dict(make_model().state_dict())
        backward(model, step + 1)
        optimizer.synchronize()
        torch.testing.assert_close(gradients(model), mean_gradients(step + 1))
        with optimizer.skip_synchronize():
            optimizer.step()
        assert_same_on_all_ranks(model.parameters())


def test_the_world_ends_while_gradients_of_some_ranks_are_missing() -> None:
    """One rank is in backward, as the other one leaves: its handles mean nothing in the next world."""
    model = make_model()
    optimizer = sgd(model)
    for step in range(3):
        optimizer.zero_grad()
        model.load_state_dict(make_model().state_dict())
        if hvd.rank() == 0:
            hvd.shutdown()
        else:
            with pytest.raises(hvd.HorovodInternalError):
                backward(model, step)
            hvd.shutdown()
        another_world()
        model.zero_grad()
        backward(model, step)
        torch.testing.assert_close(gradients(model), mean_gradients(step))
        optimizer.step()
        assert_same_on_all_ranks(model.parameters())


def test_the_world_changes_under_adasum() -> None:
    model = make_model()
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum)
    for step in range(3):
        backward(model, step)
        another_world()
        handles = [hvd.allreduce_async(torch.ones(1), name=f"mine.{i}") for i in range(6)]  # with the same numbers
        model.zero_grad()
        backward(model, step)
        optimizer.step()
        assert all(hvd.synchronize(handle).item() == 1.0 for handle in handles)
        assert_same_on_all_ranks(model.parameters())


def test_a_process_set_is_registered_anew() -> None:
    model = make_model()
    everyone = hvd.add_process_set(range(1, hvd.size()))
    mine = hvd.add_process_set([0])
    optimizer = sgd(model, process_set=mine if hvd.rank() == 0 else everyone)
    if optimizer._reducer is not None:
        backward(model)
        optimizer.step()
    another_world()
    hvd.add_process_set(mine)  # now the other way round
    hvd.add_process_set(everyone)
    optimizer.zero_grad()
    model.load_state_dict(make_model().state_dict())
    backward(model, 1)
    ranks = range(1) if hvd.rank() == 0 else range(1, hvd.size())
    torch.testing.assert_close(gradients(model), mean_gradients(1, ranks))
    optimizer.step()
    hvd.remove_process_set(mine)
    hvd.remove_process_set(everyone)


# ---- the model changes


def test_gradients_that_have_moved() -> None:
    """Memory, type and shape are looked at in every step."""
    model = make_model()
    optimizer = sgd(model)
    for step, dtype in enumerate((torch.float32, torch.float64, torch.bfloat16, torch.float32)):
        model.to(dtype)
        model.load_state_dict(make_model().state_dict())
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()
            parameter.grad = torch.zeros(parameter.shape, dtype=dtype) if step % 2 else None
        model(torch.ones(1, 4, dtype=dtype) * hvd.rank()).square().sum().backward()
        assert model[0].weight.grad.dtype == dtype
        optimizer.step()
        assert_same_on_all_ranks(model.parameters())
    assert not torch.equal(flat(model.parameters()), flat(make_model().parameters()))


class Elsewhere(torch.Tensor):
    """A tensor whose elements are not where it says."""

    @staticmethod
    def of(tensor: torch.Tensor) -> Elsewhere:
        return torch.Tensor._make_wrapper_subclass(Elsewhere, tensor.shape, dtype=tensor.dtype)

    @classmethod
    def __torch_dispatch__(cls, func: object, types: object, args: object = (), kwargs: object = None) -> object:
        if func is torch.ops.aten.detach.default:
            return args[0]
        raise NotImplementedError(str(func))


@pytest.mark.parametrize("place", ["meta", "nowhere"])
def test_gradients_in_memory_that_is_not_the_hosts(place: str) -> None:
    model = make_model()
    optimizer = sgd(model)
    for _ in range(2):
        backward(model)
        optimizer.step()
        optimizer.zero_grad()
    (slot,) = [each for each in optimizer._reducer._slots if each.name == "2.weight"]
    if place == "meta":  # PyTorch moves parameters to a GPU in place, but not to this device
        slot.parameter = torch.nn.Parameter(slot.parameter.data.to("meta"))
        slot.parameter.grad = torch.empty_like(slot.parameter)
    else:
        slot.parameter.grad = Elsewhere.of(slot.parameter.data)
    with pytest.raises(ValueError, match=r"2\.weight|not supported"):
        optimizer.synchronize()
