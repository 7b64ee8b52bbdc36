"""Elastic training: continue when hosts come and go. `JaxState` is the state, `run` the loop around training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from horovod._generic.objects import broadcast_object
from horovod.common.elastic import ObjectState, run_fn
from horovod.common.elastic.sampler import ElasticSampler
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.common.names import init, rank, shutdown
from horovod.jax import verbs
from horovod.jax.ending import wait_for_programs
from horovod.jax.errors import raising_horovod_errors
from horovod.jax.sharded_state import refuse_pieces
from horovod.jax.types import is_key

R = TypeVar("R")


def run(func: Callable[..., R]) -> Callable[..., R]:
    """Decorator of the training function, whose first argument is the state.

    When a collective fails, compiled or not, it is called again from the last commit, when hosts changed from where it
    is; in between, a new world is formed.
    """
    return run_fn(raising_horovod_errors()(func), _form_new_world)


def _form_new_world() -> None:
    shutdown()
    wait_for_programs()  # those that have not run fail now: their operations must not become some of the new world
    init()


@dataclass(frozen=True)
class _Place:
    """A placeholder for an array in a pickled pytree."""

    shape: tuple[int, ...]
    dtype: str
    key: str | None  # the kind of random key that the array is


class JaxState(ObjectState):
    """State of a training job: every argument becomes an attribute, such as `params`, `opt_state`, `key` or `epoch`.

    Values are pytrees. A commit keeps references to their arrays, which are immutable, and copies nothing. So steps
    must not donate arrays of the state. Objects with a `state_dict` (ElasticSampler) are saved with it.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._tracked = {name: value for name, value in kwargs.items() if hasattr(value, "load_state_dict")}
        self._tracked_saved: dict[str, Any] = {}
        for name, value in self._tracked.items():
            setattr(self, name, value)
        plain = {name: value for name, value in kwargs.items() if name not in self._tracked}
        super().__init__(broadcast_object, rank, **plain)
        self.save()

    def save(self) -> None:
        """Save the current values. Waits for arrays: failed ones must not become part of a commit."""
        values = {name: getattr(self, name) for name in self._saved_state}
        refuse_pieces(values, "JaxState")
        jax.block_until_ready([leaf for leaf in jax.tree.leaves(values) if isinstance(leaf, jax.Array)])
        self._saved_state = jax.tree.map(lambda leaf: leaf, values)  # new containers, the same arrays
        self._tracked_saved = {name: value.state_dict() for name, value in self._tracked.items()}

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt on all ranks if hosts have changed. Collective."""
        try:
            super().check_host_updates()
        except HostsUpdatedInterrupt:
            wait_for_programs()  # all ranks have started the same programs: let them finish before the world ends
            raise

    def restore(self) -> None:
        """Restore the last saved values."""
        for name, saved in self._tracked_saved.items():
            self._tracked[name].load_state_dict(saved)
        self._assign_copies()

    def sync(self) -> None:
        """Copy the values of the rank `sync_root`: arrays directly, the rest pickled. Collective."""
        values = {name: getattr(self, name) for name in self._saved_state}
        tracked = {name: value.state_dict() for name, value in self._tracked.items()}
        own, structure = jax.tree.flatten(values)
        skeleton = [_place_of(leaf) if isinstance(leaf, jax.Array) else leaf for leaf in own]
        skeleton, structure, tracked = self._values_of_root((skeleton, structure, tracked))
        is_root = rank() == self.sync_root
        places = [i for i, leaf in enumerate(skeleton) if isinstance(leaf, _Place)]
        sent = [_data_of(own[i]) if is_root else _zeros(skeleton[i]) for i in places]
        leaves = list(skeleton)
        if sent:
            received = verbs.broadcast(sent, self.sync_root, name="elastic.arrays")
            for i, array in zip(places, received, strict=True):
                leaves[i] = own[i] if is_root else _wrapped(array, skeleton[i])
        self._saved_state = jax.tree.unflatten(structure, leaves)
        self._tracked_saved = tracked
        self.restore()

    def durable_values(self) -> Any:
        """The saved values, pickled; arrays as those of NumPy."""
        leaves, structure = jax.tree.flatten(self._saved_state)
        places = [_place_of(leaf) if isinstance(leaf, jax.Array) else None for leaf in leaves]
        pairs = zip(leaves, places, strict=True)
        plain = [leaf if place is None else np.asarray(_data_of(leaf)) for leaf, place in pairs]
        return {"leaves": plain, "places": places, "structure": str(structure), "tracked": self._tracked_saved}

    def load_durable_values(self, values: Any) -> None:
        """Use the values of a file; ValueError if their structure differs from that of this state."""
        structure = jax.tree.structure(self._saved_state)
        if values["structure"] != str(structure):
            raise ValueError("the state in the file has another structure")
        leaves = [
            leaf if place is None else _wrapped(jnp.asarray(leaf), place)
            for leaf, place in zip(values["leaves"], values["places"], strict=True)
        ]
        self._saved_state = jax.tree.unflatten(structure, leaves)
        self._tracked_saved = values["tracked"]
        self.restore()

    def _assign_copies(self) -> None:
        for name, value in jax.tree.map(lambda leaf: leaf, self._saved_state).items():
            setattr(self, name, value)


def _place_of(array: jax.Array) -> _Place:
    data = _data_of(array)
    key = str(jax.random.key_impl(array)) if is_key(array) else None
    return _Place(tuple(data.shape), str(data.dtype), key)


def _data_of(array: jax.Array) -> jax.Array:
    return jax.random.key_data(array) if is_key(array) else array


def _zeros(place: _Place) -> jax.Array:
    return jnp.zeros(place.shape, jnp.dtype(place.dtype))


def _wrapped(array: jax.Array, place: _Place) -> jax.Array:
    return array if place.key is None else jax.random.wrap_key_data(array, impl=place.key)


__all__ = ["ElasticSampler", "JaxState", "run"]
