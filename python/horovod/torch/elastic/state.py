"""The state of training with PyTorch: handlers for objects with a state_dict, the rest as plain objects."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn, optim

from horovod.common.elastic import ObjectState
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.snapshot import map_tensors, snapshot
from horovod.torch.functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from horovod.torch.mpi_ops import rank
from horovod.torch.optimizer import ShardedOptimizer

V = TypeVar("V")


class StateHandler(Generic[V]):
    """Keeps a value that is changed in place, and a snapshot of it. Subclasses know one type of value."""

    root_rank = 0  # `sync` copies the value of this rank; set by the state

    def __init__(self, value: V) -> None:
        self.value = value

    def save(self) -> None:
        """Take a snapshot."""
        raise NotImplementedError

    def restore(self) -> None:
        """Put the value back to the snapshot."""
        raise NotImplementedError

    def sync(self) -> None:
        """Make the value that of `root_rank`. Collective; the snapshot stays."""
        raise NotImplementedError

    def set_value(self, value: V) -> None:
        """Keep another value from now on."""
        self.value = value
        self.save()

    def lend_saved(self) -> Any:
        """The snapshot, to be pickled later: from now on it must not change. Needed for `save_to` only."""
        raise NotImplementedError(f"{type(self).__name__} has no lend_saved, so its value cannot be saved to a file")

    def load_saved(self, saved: Any) -> None:
        """Take over a snapshot that `lend_saved` gave, and put the value back to it."""
        raise NotImplementedError


@runtime_checkable
class HasStateDict(Protocol):
    """Schedulers, GradScalers and other objects with `state_dict` and `load_state_dict`."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: Any) -> Any: ...


D = TypeVar("D", bound=HasStateDict)


class StateDictHandler(StateHandler[D]):
    """Values whose snapshot is a copy of their state_dict. They are sent pickled, unless a subclass overrides that."""

    def __init__(self, value: D) -> None:
        super().__init__(value)
        self._saved: Any = None
        self._is_lent = False
        self.save()

    def save(self) -> None:
        self._saved = snapshot(self.value.state_dict(), None if self._is_lent else self._saved)
        self._is_lent = False

    def restore(self) -> None:
        # Many keep the very objects that they load, and would change the snapshot with their next step.
        self.value.load_state_dict(snapshot(self._saved))

    def sync(self) -> None:
        name = f"elastic.{type(self.value).__name__}"
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), self.root_rank, name))

    def lend_saved(self) -> Any:
        self._is_lent = True
        return map_tensors(self._saved, Tensor.cpu)

    def load_saved(self, saved: Any) -> None:
        self._saved = saved
        self._is_lent = False
        self.restore()
        self.save()  # tensors are where those of the value are


class ModelStateHandler(StateDictHandler[nn.Module]):
    """Models: parameters and buffers."""

    def restore(self) -> None:
        self.value.load_state_dict(self._saved)  # which copies

    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), self.root_rank)


class OptimizerStateHandler(StateDictHandler[optim.Optimizer]):
    """Optimizers: state and options."""

    def sync(self) -> None:
        if isinstance(self.value, optim.LBFGS):  # its state has no place for each parameter
            super().sync()
        else:
            broadcast_optimizer_state(self.value, self.root_rank)


class SamplerStateHandler(StateDictHandler[ElasticSampler]):
    """Samplers: their progress."""


Registry = list[tuple[type[Any], type[StateHandler[Any]]]]

_registry: Registry = [
    (nn.Module, ModelStateHandler),
    (optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    (HasStateDict, StateDictHandler),
]


def get_handler_registry() -> Registry:
    """Return which handler keeps which type of value; the first that fits is taken."""
    return _registry


def set_handler_registry(registry: Registry) -> None:
    """Replace the registry, for states that are made from now on."""
    global _registry
    _registry = registry


def _handler_for(value: Any) -> StateHandler[Any] | None:
    for value_type, handler in _registry:
        if isinstance(value, value_type):
            return handler(value)
    return None


class TorchState(ObjectState):
    """State of a training: every argument becomes an attribute.

    What has a `state_dict` (models, optimizers, schedulers, GradScalers, samplers) is saved by copying it, other values
    by reference. Assigning another model, or the like, to its attribute keeps that one from now on.
    """

    _handlers: dict[str, StateHandler[Any]]

    def __init__(self, model: nn.Module | None = None, optimizer: optim.Optimizer | None = None, **kwargs: Any) -> None:
        given = {"model": model, "optimizer": optimizer} | kwargs
        values = {name: value for name, value in given.items() if value is not None or name in kwargs}
        found = {name: _handler_for(value) for name, value in values.items()}
        handlers = {name: handler for name, handler in found.items() if handler is not None}
        object.__setattr__(self, "_handlers", handlers)
        for name, handler in handlers.items():
            object.__setattr__(self, name, handler.value)
        plain = {name: value for name, value in values.items() if name not in handlers}
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **plain)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in self._handlers:
            self._handlers[name].set_value(value)

    def save(self) -> None:
        # Steps that may fail come first, so that a snapshot is consistent: a ShardedOptimizer collects its state.
        for handler in sorted(self._handlers.values(), key=lambda each: not isinstance(each.value, ShardedOptimizer)):
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        for handler in self._handlers.values():
            handler.root_rank = self.sync_root
            handler.sync()
        super().sync()

    def durable_values(self) -> Any:
        """The snapshots; the handlers write into other memory until the file is written."""
        lent = {name: handler.lend_saved() for name, handler in self._handlers.items()}
        return {**super().durable_values(), "handlers": lent}

    def load_durable_values(self, values: Any) -> None:
        missing = sorted(self._handlers.keys() - values["handlers"].keys())
        if missing:
            raise ValueError(f"the file has no state of {', '.join(missing)}: it was written by another script")
        for name, handler in self._handlers.items():
            handler.load_saved(values["handlers"][name])
        super().load_durable_values(values)

    def reset(self) -> None:
        """Divide the data, and the state of a ShardedOptimizer, over the ranks of the new world."""
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()
            elif isinstance(handler.value, ShardedOptimizer):
                handler.restore()  # the commit has all of it; each rank of the old world had but a piece


__all__ = [
    "HasStateDict",
    "ModelStateHandler",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "StateDictHandler",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "set_handler_registry",
]
