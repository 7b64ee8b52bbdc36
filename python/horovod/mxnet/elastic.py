"""Elastic training with MXNet: continue when hosts come and go. `MXNetState` is the state, `run` the loop."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any, TypeVar

import mxnet as mx
from mxnet.base import MXNetError
from mxnet.gluon import Block, Trainer
from mxnet.gluon.parameter import ParameterDict
from mxnet.module import BaseModule
from mxnet.ndarray import NDArray
from mxnet.optimizer import Updater

from horovod.common.elastic import ObjectState, run_fn
from horovod.mxnet.functions import broadcast_object
from horovod.mxnet.mpi_ops import broadcast_, init, rank, shutdown

R = TypeVar("R")


def run(func: Callable[..., R]) -> Callable[..., R]:
    """Decorator of the training function, whose first argument is the state.

    When a collective fails it is called again from the last commit, when hosts changed from where it is; in between,
    a new world is formed. All other errors, also those of MXNet's own operations, end the training.
    """
    return run_fn(func, _form_new_world)


def _form_new_world() -> None:
    _leave_world()
    init()


def _leave_world() -> None:
    """End the world, and clear the arrays that its failed operations should have written.

    An array keeps the error of an operation until it is raised, and operations that use the array do not run until
    then.
    """
    shutdown()
    with contextlib.suppress(MXNetError):
        mx.nd.waitall()


class MXNetState(ObjectState):
    """A network, what trains it, and plain objects as keyword arguments.

    `model` is a Block, a dict of its parameters, or a Module; `trainer` a Trainer, or an Updater. A Module that has an
    optimizer needs no `trainer`. All parameters must be initialised: pass one batch through the network before.
    """

    def __init__(self, model: Any = None, trainer: Any = None, **kwargs: Any) -> None:
        self.model = model
        self.trainer = trainer
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **kwargs)
        _arrays_of(model)  # raises errors early
        self.save()

    def save(self) -> None:
        """Copy the parameters, the states of the optimizer and the other objects."""
        arrays = {name: _settled_copy(arrays[0]) for name, arrays in _arrays_of(self.model).items()}
        updaters = [_Snapshot(updater) for updater in _updaters_of(self.model, self.trainer)]
        self._saved_arrays, self._saved_updaters = arrays, updaters  # all, or nothing if a collective has failed
        super().save()

    def restore(self) -> None:
        """Restore the last saved values. Leaves the world, which has failed."""
        _leave_world()
        self._assign_arrays()
        for updater, saved in zip(_updaters_of(self.model, self.trainer), self._saved_updaters, strict=True):
            saved.assign(updater)
        super().restore()

    def sync(self) -> None:
        """Copy the current values of the rank `sync_root`; the other objects as last saved."""
        for name, arrays in _arrays_of(self.model).items():
            broadcast_(arrays[0], self.sync_root, f"elastic.{name}")
            for other in arrays[1:]:
                arrays[0].copyto(other)
        updaters = _updaters_of(self.model, self.trainer)
        own = [_Snapshot(updater).portable() for updater in updaters] if rank() == self.sync_root else None
        root = broadcast_object(own, self.sync_root, "elastic.updaters")
        for updater, values in zip(updaters, root, strict=True):
            _Snapshot.of_portable(values).assign(updater)
        super().sync()
        self.save()

    def durable_values(self) -> Any:
        """The last saved values, as NumPy arrays."""
        arrays = {name: array.asnumpy() for name, array in self._saved_arrays.items()}
        updaters = [saved.portable() for saved in self._saved_updaters]
        return {**super().durable_values(), "arrays": arrays, "updaters": updaters}

    def load_durable_values(self, values: Any) -> None:
        """Use the result of `durable_values`."""
        self._saved_arrays = {name: _array(value) for name, value in values["arrays"].items()}
        self._saved_updaters = [_Snapshot.of_portable(each) for each in values["updaters"]]
        self._assign_arrays()
        for updater, saved in zip(_updaters_of(self.model, self.trainer), self._saved_updaters, strict=True):
            saved.assign(updater)
        super().load_durable_values(values)

    def _assign_arrays(self) -> None:
        for name, arrays in _arrays_of(self.model).items():
            for array in arrays:
                self._saved_arrays[name].copyto(array)


class _Snapshot:
    """The states of an updater (momenta and the like) and the counts of its optimizer."""

    def __init__(self, updater: Updater) -> None:
        self.states = {index: _map_arrays(_settled_copy, state) for index, state in updater.states.items()}
        optimizer = updater.optimizer
        self.counts = copy.deepcopy((optimizer._all_index_update_counts, optimizer.num_update))

    def assign(self, updater: Updater) -> None:
        """Restore the updater to this state."""
        updater.states = {index: _map_arrays(NDArray.copy, state) for index, state in self.states.items()}
        updater.states_synced = dict.fromkeys(updater.states, True)
        optimizer = updater.optimizer
        optimizer._all_index_update_counts, optimizer.num_update = copy.deepcopy(self.counts)
        optimizer._set_current_context(0)

    def portable(self) -> tuple[Any, Any]:
        """The state as objects that can be sent."""
        return {index: _map_arrays(NDArray.asnumpy, state) for index, state in self.states.items()}, self.counts

    @classmethod
    def of_portable(cls, values: tuple[Any, Any]) -> _Snapshot:
        """The inverse of `portable`."""
        snapshot = cls.__new__(cls)
        states, snapshot.counts = values
        snapshot.states = {index: _map_arrays(_array, state) for index, state in states.items()}
        return snapshot


def _map_arrays(function: Callable[[Any], Any], state: Any) -> Any:
    if isinstance(state, (tuple, list)):
        return type(state)(_map_arrays(function, each) for each in state)
    return function(state) if hasattr(state, "dtype") else state


def _settled_copy(array: NDArray) -> NDArray:
    """A copy whose values are complete. Raises if the operation that computes them failed."""
    copied = array.copy()
    copied.wait_to_read()
    return copied


def _array(value: Any) -> NDArray:
    return mx.nd.array(value, dtype=value.dtype)


def _arrays_of(model: Any) -> dict[str, list[NDArray]]:
    """The parameters by name, each on all its devices."""
    if model is None:
        return {}
    if isinstance(model, BaseModule):
        group = model._exec_group
        names = [*group.param_names, *group.aux_names]
        return dict(zip(names, [*group.param_arrays, *group.aux_arrays], strict=True))
    parameters = model.collect_params() if isinstance(model, Block) else model
    if not isinstance(parameters, (dict, ParameterDict)):
        raise ValueError(f"model must be a Block, a Module or a dict of parameters, not {type(model).__name__}")
    deferred = [name for name, each in parameters.items() if getattr(each, "_deferred_init", ())]
    if deferred:
        raise ValueError(f"parameters are not initialised: {', '.join(deferred)}; pass one batch through the network")
    return {name: [each] if isinstance(each, NDArray) else each.list_data() for name, each in parameters.items()}


def _updaters_of(model: Any, trainer: Any) -> list[Updater]:
    if isinstance(trainer, Trainer):
        return list(trainer._updaters)
    if isinstance(trainer, Updater):
        return [trainer]
    updater = getattr(model, "_updater", None) if isinstance(model, BaseModule) else None
    return [] if updater is None else [updater]


__all__ = ["MXNetState", "run"]
