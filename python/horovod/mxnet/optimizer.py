"""DistributedOptimizer: an optimizer of MXNet, for Module, that reduces gradients before it applies them."""

from __future__ import annotations

from typing import Any

from mxnet.optimizer import Optimizer

from horovod._generic.compression import NoneCompressor
from horovod._generic.handles import handles
from horovod._generic.process_sets import ProcessSet, global_process_set
from horovod.mxnet.reducing import Gradient, Reducer

_OWN = ("_optimizer", "_reducer", "_scale")  # all other attributes are those of the wrapped optimizer


class DistributedOptimizer(Optimizer):  # type: ignore[misc]
    """Wraps an optimizer: `update` first averages the gradients over all ranks of the set.

    The gradients themselves become sums; a factor of `rescale_grad` turns them into averages, and
    follows the size of the world. For Gluon use DistributedTrainer.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        self._optimizer = optimizer
        self._reducer = Reducer(process_set, gradient_predivide_factor, num_groups, NoneCompressor)
        self._scale = 1.0
        self._rescale()
        handles.when_restarted(self._rescale)

    def _rescale(self) -> None:
        scale = self._reducer.scale
        self._optimizer.rescale_grad *= scale / self._scale
        self._scale = scale

    def _reduce(self, index: Any, gradient: Any) -> None:
        if isinstance(index, (tuple, list)):
            order = range(len(index))
            self._reducer.reduce(list(map(Gradient, index, order, gradient)))
        else:
            self._reducer.reduce([Gradient(index, index if isinstance(index, int) else 0, gradient)])

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Reduce the gradients, then update the weights."""
        self._reduce(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Reduce the gradients, in their own type, then update the weights."""
        self._reduce(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def create_state(self, index: Any, weight: Any) -> Any:
        """See the wrapped optimizer."""
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """See the wrapped optimizer."""
        return self._optimizer.create_state_multi_precision(index, weight)

    def set_learning_rate(self, lr: float) -> None:
        """See the wrapped optimizer."""
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        """See the wrapped optimizer."""
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        """See the wrapped optimizer."""
        self._optimizer.set_wd_mult(args_wd_mult)

    def __getattr__(self, item: str) -> Any:
        if item in _OWN:  # not set yet, or being unpickled
            raise AttributeError(item)
        return getattr(self._optimizer, item)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        else:
            setattr(self._optimizer, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        # Saved states contain the plain optimizer, for worlds of any size.
        plain = self._optimizer
        return _as_plain, (type(plain), plain.__getstate__() | {"rescale_grad": plain.rescale_grad / self._scale})


def _as_plain(kind: Any, attributes: dict[str, Any]) -> Optimizer:
    optimizer = kind.__new__(kind)
    optimizer.__setstate__(attributes)
    return optimizer
