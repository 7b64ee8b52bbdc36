"""The methods that turn an optimizer's class into one that reduces gradients over all ranks before it steps."""

from __future__ import annotations

import copy
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from horovod.common.process_sets import ProcessSet
from horovod.torch import mpi_ops
from horovod.torch.grad_scaler import unscaling_code
from horovod.torch.optimizer.names import Names, parameters_of
from horovod.torch.optimizer.reducer import Reducer
from horovod.torch.optimizer.sending import Wire

# Where a GradScaler looks at an optimizer's gradients.
_UNSCALING = unscaling_code()


class DistributedMethods(torch.optim.Optimizer):
    """Mixed in before an optimizer's class; see horovod.torch.optimizer.DistributedOptimizer."""

    _parameter_names: Names
    _wire: Wire
    _reducer: Reducer | None  # None: nothing to reduce
    backward_passes_per_step: int
    gradient_predivide_factor: float
    op: int
    process_set: ProcessSet
    sparse_as_dense: bool

    def _begin(
        self, names: Names, wire: Wire, passes: int, predivide: float, groups: Sequence[Sequence[str]], active: bool
    ) -> None:
        """In place of a constructor, which is that of the optimizer's class."""
        self._parameter_names = names
        self._wire = wire
        self._groups = groups
        self.op = wire.op
        self.process_set = wire.process_set
        self.sparse_as_dense = wire.sparse_as_dense
        self.gradient_predivide_factor = predivide
        self.backward_passes_per_step = passes
        self._should_synchronize = True
        self._synchronized = False  # the gradients are reduced, and no step has used them
        self._synchronized_for_scaler = False
        self._reducer = None
        if active:
            self._reducer = Reducer(wire, passes, groups)
            self._reducer.add((names[parameter], parameter) for parameter in parameters_of(self))
            weakref.finalize(self, self._reducer.detach).atexit = False

    # ---- reducing

    def synchronize(self) -> None:
        """Wait until the gradients of all ranks are reduced; then `p.grad` holds the result.

        Usually that is so when backward returns, and nothing is left to do. Where some rank did not use all parameters,
        or HOROVOD_TORCH_WAIT_IN_STEP is set, call it to change gradients before the step. That one then goes in
        `with optimizer.skip_synchronize(): optimizer.step()`.
        """
        if self._reducer is not None:
            if not self._reducer.take():
                self._reducer.finish()
            self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Inside, `step()` takes the gradients as they are."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, backward only accumulates gradients on this rank; the first one outside reduces their sum.

        Such passes do not count for `backward_passes_per_step`.
        """
        reducer = self._reducer
        if reducer is None:
            yield
            return
        before, reducer.paused = reducer.paused, True
        try:
            yield
        finally:
            reducer.paused = before

    def _allreduce_grad_async(self, p: torch.Tensor) -> tuple[int | Callable[[], Any], Any]:
        """Start to reduce the gradient of a parameter, and return a handle and what decompression needs.

        Backward does this itself. It exists for libraries that recognise a wrapped optimizer by it, or start a
        reduction of their own. Of a sparse gradient, or one that the compression reduces itself, the handle is a
        function: call it to wait for the result.
        """
        if p.grad is None:
            p.grad = torch.zeros_like(p, requires_grad=False)
        name, wire = self._parameter_names[p], self._wire
        grad = p.grad
        if grad.layout != torch.strided:
            if not wire.sparse_as_dense:
                return mpi_ops.sparse_allreduce_async(grad, name, wire.op, wire.process_set), None
            grad = grad.to_dense()
        factors = wire.prescale_factor, wire.postscale_factor
        start = getattr(wire.compression, "reduce_async", None)
        if start is not None:
            return start(grad, name, wire.op, wire.process_set, *factors), None
        with torch.no_grad():
            small, context = wire.compression.compress(grad)
        return mpi_ops.allreduce_async_(small.contiguous(), None, name, wire.op, *factors, wire.process_set), context

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Reduce after that many backward passes from now on."""
        if passes <= 0:
            raise ValueError(f"backward_passes_per_step must be positive, not {passes}")
        self.backward_passes_per_step = passes
        if self._reducer is not None:
            self._reducer.set_passes(passes)

    def _take(self) -> None:
        """A step now uses the reduced gradients."""
        if self._reducer is not None:
            self._reducer.take()
        self._synchronized = self._synchronized_for_scaler = False

    # ---- the optimizer's own methods

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Reduce the gradients over all ranks, unless that is skipped, and step.

        With a closure they are reduced after each call of it.
        """
        if self._reducer is None or not self._should_synchronize:
            self._take()
            result = super().step(closure)
            if closure is not None:
                self._take()
            return result
        if closure is not None:
            wanted = closure

            def closure() -> Any:
                loss = wanted()
                self.synchronize()
                return loss

        elif not self._synchronized_for_scaler or self._reducer.has_news or self._reducer.is_final:
            if self._synchronized and not self._reducer.has_news and not self._reducer.is_final:
                warnings.warn(
                    "optimizer.step() was called after optimizer.synchronize(), so gradients are reduced twice; use "
                    "`with optimizer.skip_synchronize(): optimizer.step()` after a synchronize() of your own",
                    stacklevel=2,
                )
            self.synchronize()
        result = super().step(closure)
        self._synchronized = self._synchronized_for_scaler = False
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget or zero the gradients. AssertionError while reductions are in flight.

        After a backward that raised it is the way to try again.
        """
        if self._reducer is not None:
            self._reducer.forgive_failed_backward()
            if self._reducer.in_flight and not self._reducer.is_retried:
                raise AssertionError(
                    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                    "optimizer.synchronize(): the gradients are being reduced"
                )
            self._reducer.count_anew()
            self._synchronized = self._synchronized_for_scaler = False
        super().zero_grad(set_to_none)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state, and begin a step: reductions under way are waited for and forgotten."""
        if self._reducer is not None:
            self._reducer.abandon()
        self._synchronized = self._synchronized_for_scaler = False
        super().load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters; they are named by their place. The same on all ranks."""
        super().add_param_group(param_group)
        if "_parameter_names" not in self.__dict__:
            return  # in the constructor of the optimizer's class
        group = len(self.param_groups) - 1
        new: list[tuple[str, torch.Tensor]] = []
        for index, parameter in enumerate(self.param_groups[group]["params"]):
            name = self._parameter_names.setdefault(parameter, f"allreduce.noname.{group}.{index}")
            new.append((name, parameter))
        if self._reducer is not None:
            self._reducer.add(new)

    def __deepcopy__(self, memo: dict[int, Any]) -> DistributedMethods:
        """A copy that reduces the gradients of the copied parameters, under the same names."""
        cls = type(self)
        twin = cls.__new__(cls)
        memo[id(self)] = twin
        left_out = {"_reducer", "_parameter_names", "_wire", "process_set"}
        for key, value in self.__dict__.items():
            if key not in left_out:
                twin.__dict__[key] = copy.deepcopy(value, memo)
        names = {copy.deepcopy(parameter, memo): name for parameter, name in self._parameter_names.items()}
        twin._begin(
            names,
            self._wire,
            self.backward_passes_per_step,
            self.gradient_predivide_factor,
            self._groups,
            self._reducer is not None,
        )
        return twin

    # A GradScaler divides gradients by the scale, and looks whether they are finite, wherever it finds them: they must
    # be reduced by then, so that all ranks decide alike.
    def _get_param_groups(self) -> list[dict[str, Any]]:
        reducer = self.__dict__.get("_reducer")
        if reducer is not None and sys._getframe(1).f_code is _UNSCALING:
            self._synchronize_for_scaler(reducer)
        groups: list[dict[str, Any]] | None = self.__dict__.get("param_groups")
        if groups is None:  # a wrapper of this class, as Lightning makes them, which then asks the optimizer in it
            raise AttributeError("param_groups")
        return groups

    def _synchronize_for_scaler(self, reducer: Reducer) -> None:
        if self._should_synchronize and not reducer.is_final and (reducer.has_news or not self._synchronized):
            self.synchronize()
            self._synchronized_for_scaler = True

    def _set_param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.__dict__["param_groups"] = groups

    param_groups = property(_get_param_groups, _set_param_groups)


# The class of the optimizer runs the hooks of a step already; torch would let this one run them once more.
DistributedMethods.step.hooked = True  # type: ignore[attr-defined]
