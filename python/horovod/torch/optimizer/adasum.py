"""The methods that turn an optimizer's class into one that combines the *steps* of all ranks by Adasum.

As soon as a parameter's gradient is ready, the optimizer steps for that parameter alone; the difference that the step
makes is sent, and the parameter itself stays until `step()` adds the combined difference.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from horovod._generic.handles import handles
from horovod._generic.reduce_ops import Adasum
from horovod.common.process_sets import ProcessSet
from horovod.torch import mpi_ops
from horovod.torch.optimizer.names import Names, parameters_of


class _Parameter:
    """A parameter, and the difference on its way."""

    __slots__ = ("context", "handle", "left", "name", "small", "tensor")

    def __init__(self, tensor: torch.Tensor, name: str, left: int) -> None:
        self.tensor = tensor
        self.name = name
        self.left = left  # backward passes until it steps
        self.handle = 0  # of the reduction under way; 0: none
        self.small = tensor  # the tensor to send
        self.context: Any = None  # of the compression


class AdasumMethods(torch.optim.Optimizer):
    """Mixed in before an optimizer's class; see horovod.torch.optimizer.DistributedOptimizer."""

    _parameter_names: Names
    backward_passes_per_step: int
    op: int
    process_set: ProcessSet

    def _begin(self, names: Names, compression: Any, passes: int, process_set: ProcessSet) -> None:
        """In place of a constructor, which is that of the optimizer's class."""
        self._parameter_names = names
        self._compression = compression
        self.op = Adasum
        self.process_set = process_set
        self.backward_passes_per_step = passes
        self._on_their_way: list[_Parameter] = []
        hooks: list[torch.utils.hooks.RemovableHandle] = []
        for tensor in parameters_of(self):
            if not tensor.requires_grad:
                continue
            tensor.grad = torch.zeros_like(tensor, requires_grad=False)
            parameter = _Parameter(tensor, names[tensor], passes)
            self._on_their_way.append(parameter)
            hook = tensor.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                _make_hook(weakref.ref(self), parameter)
            )
            hooks.append(hook)
        weakref.finalize(self, _remove, hooks).atexit = False
        handles.when_restarted(self._leave_world)

    def _leave_world(self) -> None:
        """A new world has been formed: operations of the old one have ended, and its handles are invalid."""
        for parameter in self._on_their_way:
            parameter.left = self.backward_passes_per_step
            parameter.handle = 0
            parameter.small = parameter.tensor

    def _send(self, parameter: _Parameter) -> None:
        """Step for this parameter alone, and start the reduction of what that changes."""
        tensor = parameter.tensor
        if tensor.grad is None:
            tensor.grad = torch.zeros_like(tensor, requires_grad=False)
        with torch.no_grad():
            before = tensor.detach().clone()
            all_params = [group["params"] for group in self.param_groups]
            for group in self.param_groups:
                group["params"] = [each for each in group["params"] if each is tensor]
            try:
                super().step()
            finally:
                for group, params in zip(self.param_groups, all_params, strict=True):
                    group["params"] = params
            delta = tensor.detach() - before
            tensor.copy_(before)
            small, parameter.context = self._compression.compress(delta)
            parameter.small = small.contiguous()
        parameter.handle = mpi_ops.allreduce_async_(
            parameter.small, None, parameter.name, Adasum, process_set=self.process_set
        )

    def _allreduce_grad_async(self, p: torch.Tensor) -> tuple[int, Any]:
        """Start to reduce the step of a parameter, as backward does, and return its handle and what decompression
        needs. `step()` waits for it."""
        (parameter,) = [each for each in self._on_their_way if each.tensor is p]
        self._send(parameter)
        return parameter.handle, parameter.context

    def synchronize(self) -> None:
        """Nothing: steps are sent, not gradients."""

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """AssertionError: a step cannot be had without the other ranks'."""
        raise AssertionError("skip_synchronize does not work with op=hvd.Adasum: gradients are not reduced there")
        yield

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Step after that many backward passes from now on."""
        if passes <= 0:
            raise ValueError(f"backward_passes_per_step must be positive, not {passes}")
        self.backward_passes_per_step = passes
        for parameter in self._on_their_way:
            parameter.left = passes

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Add the combined steps of all ranks to the parameters."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for parameter in self._on_their_way:
            if parameter.handle == 0:
                self._send(parameter)
        self._wait(apply=True)
        return loss

    def _wait(self, apply: bool) -> None:
        problem: Exception | None = None
        for parameter in self._on_their_way:
            parameter.left = self.backward_passes_per_step
            handle, parameter.handle = parameter.handle, 0
            try:
                reduced = mpi_ops.synchronize(handle) if handle != 0 else None
            except Exception as failure:
                problem = problem or failure
                continue
            if apply and reduced is not None:
                with torch.no_grad():
                    parameter.tensor.add_(self._compression.decompress(reduced, parameter.context))
            parameter.small = parameter.tensor
        if problem is not None and apply:
            raise problem

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget or zero the gradients. AssertionError while steps are in flight."""
        if any(parameter.handle != 0 for parameter in self._on_their_way):
            raise AssertionError("optimizer.zero_grad() was called after loss.backward() but before optimizer.step()")
        super().zero_grad(set_to_none)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state; what is in flight is waited for and forgotten."""
        self._wait(apply=False)
        super().load_state_dict(state_dict)


# The class of the optimizer runs the hooks of a step already; torch would let this one run them once more.
AdasumMethods.step.hooked = True  # type: ignore[attr-defined]


def _make_hook(
    optimizer: weakref.ReferenceType[AdasumMethods], parameter: _Parameter
) -> Callable[[torch.Tensor], None]:
    def hook(_tensor: torch.Tensor) -> None:
        owner = optimizer()
        if owner is None:
            return
        parameter.left -= 1
        if parameter.left < 0:
            raise AssertionError(
                f"the gradient of {parameter.name} was computed more often than backward_passes_per_step="
                f"{owner.backward_passes_per_step} allows before optimizer.step(); raise it to accumulate gradients"
            )
        if parameter.left == 0:
            owner._send(parameter)

    return hook


def _remove(hooks: list[torch.utils.hooks.RemovableHandle]) -> None:
    for hook in hooks:
        hook.remove()
