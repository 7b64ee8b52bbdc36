"""Reducing a list of gradients: shared by the optimizers of TensorFlow and Keras and the gradient tapes.

In a graph a large gradient is a separate operation, which starts as soon as backpropagation has computed it; small
ones of neighbouring variables are sent together, because a node of the graph costs more time than they do. An eager
operation would block the ones after it; there all dense gradients are sent as one group.

Thread rule: pure functions of their arguments, apart from the communication.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from horovod._generic.reduce_ops import Average
from horovod.common.basics import HorovodBasics
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list
from horovod.tensorflow.as_written import as_written
from horovod.tensorflow.collectives import allreduce, grouped_allreduce
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.mpi_ops import size_op
from horovod.tensorflow.util import is_elastic
from horovod.tensorflow.variable_set import VariableSet, name_of, names_of, natural_order, storage

Groups = int | Sequence[Sequence[Any]] | None  # a number of groups, or the variables of each

# Without explicit groups: 300 gradients of 16 KiB and less made a tenth more steps in five operations than in 300.
SMALL_ELEMENTS = 16 << 10  # larger gradients are sent alone
BUNCH_ELEMENTS = 256 << 10
BUNCH_MEMBERS = 64


def checked_groups(groups: Groups, num_groups: int = 0) -> Groups:
    """The argument `groups`, or the deprecated `num_groups` in its place. ValueError if it cannot be used."""
    if num_groups != 0:
        warnings.warn("num_groups is deprecated; use groups", DeprecationWarning, stacklevel=3)
        groups = num_groups if groups is None else groups
    if groups is None:
        return None
    if isinstance(groups, int):
        if groups <= 0:
            raise ValueError(f"groups must be a positive number or lists of variables, not {groups}")
        return groups
    seen = VariableSet()
    for group in groups:
        if not isinstance(group, list | tuple):
            raise ValueError(f"groups must be a number or a list of lists of variables; it holds {group!r}")
        for member in group:
            if member in seen:
                raise ValueError(f"the variable {name_of(member)} is in two groups; it can be in one only")
            seen.add(member)
    return groups


def check_predivide_factor(factor: float, op: int) -> None:
    """ValueError unless gradients can be divided by this factor before they are reduced, and multiplied after."""
    if factor == 1.0:
        return
    if op != Average:
        raise ValueError("gradient_predivide_factor needs op=hvd.Average")
    if HorovodBasics().rocm_built():
        raise ValueError("gradient_predivide_factor does not work with ROCm; leave it at 1.0")


@dataclass(frozen=True)
class Wire:
    """How gradients are sent. The fields are the arguments of DistributedOptimizer and DistributedGradientTape."""

    op: int = Average
    compression: Any = Compression.none
    sparse_as_dense: bool = False
    predivide_factor: float = 1.0
    groups: Groups = None
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True
    device_dense: str = ""
    device_sparse: str = ""

    @as_written
    def reduce(
        self,
        grads: Iterable[Any],
        variables: Iterable[Any],
        local: VariableSet,
        prefix: str,
        names: Sequence[str] | None = None,
    ) -> list[Any]:
        """The gradients as all ranks of the process set have them together; see `reduce_gradients`."""
        grads, variables = list(grads), list(variables)
        if not takes_part(self.process_set):
            return grads
        dense: dict[int, Any] = {}
        sparse: dict[int, tf.IndexedSlices] = {}
        for place, (grad, variable) in enumerate(zip(grads, variables, strict=True)):
            if grad is None:
                continue
            if variable in local:
                grads[place] = scaled_local(grad, self.process_set) if self.scale_local_gradients else grad
            elif isinstance(grad, tf.IndexedSlices) and not self.sparse_as_dense:
                sparse[place] = grad
            else:
                dense[place] = tf.convert_to_tensor(grad)
        keep_scope = names is None
        labels = [f"{prefix}.{name}" for name in names_of(variables)] if names is None else names
        sending = _Sending(self, labels, not keep_scope)
        for place in sorted(sparse, key=lambda place: natural_order(labels[place])):
            grads[place] = sending.one(place, sparse[place])
        for bunch in self._bunches(dense, variables, labels):
            for place, grad in sending.many(bunch, [dense[place] for place in bunch]):
                grads[place] = grad
        return grads

    def _bunches(self, dense: dict[int, Any], variables: Sequence[Any], labels: Sequence[str]) -> list[list[int]]:
        """Groups of gradients to send together, of one type each. All ranks get the same, whatever their order is."""
        places = sorted(dense, key=lambda place: natural_order(labels[place]))
        if isinstance(self.groups, int):
            bunches = [list(part) for part in split_list(places, self.groups)]
        else:
            bunches = _by_variable(places, variables, self.groups or ())
            grouped = {place for bunch in bunches for place in bunch}
            rest = [place for place in places if place not in grouped]
            bunches += [rest] if tf.executing_eagerly() else _by_size(rest, variables)
        return [part for bunch in bunches for part in _by_dtype(bunch, dense)]


class _Sending:
    """One list of gradients on its way: the calls of the collectives, with their names and options."""

    def __init__(self, wire: Wire, labels: Sequence[str], ignore_name_scope: bool) -> None:
        self._wire = wire
        self._labels = labels
        self._always: dict[str, Any] = {
            "device_dense": wire.device_dense,
            "device_sparse": wire.device_sparse,
            "op": wire.op,
            "process_set": wire.process_set,
            "ignore_name_scope": ignore_name_scope,
        }
        # Average divides by the number of ranks either way; the factor only moves a part of it before the sum.
        factor = wire.predivide_factor
        self._dense: dict[str, Any] = {
            "compression": wire.compression,
            "prescale_factor": 1.0 / factor,
            "postscale_factor": factor,
        }

    def one(self, place: int, slices: tf.IndexedSlices) -> Any:
        """Sparse gradients are gathered, so there is no sum to divide, and nothing to compress."""
        return allreduce(slices, name=self._labels[place], **self._always)

    def many(self, places: Sequence[int], grads: Sequence[Any]) -> Iterable[tuple[int, Any]]:
        if len(places) == 1:
            return [(places[0], allreduce(grads[0], name=self._labels[places[0]], **self._always, **self._dense))]
        name = f"{self._labels[places[0]]}.and_{len(places) - 1}_more"
        return zip(places, grouped_allreduce(grads, name=name, **self._always, **self._dense), strict=True)


def takes_part(process_set: ProcessSet) -> bool:
    """Whether this process reduces anything. An elastic world of one may grow after the graph is made."""
    size = process_set.size()
    if size is None:
        raise ValueError(f"{process_set} is not registered; pass it to hvd.init or hvd.add_process_set first")
    return bool(process_set.included()) and (size > 1 or is_elastic())


def scaled_local(grad: Any, process_set: ProcessSet) -> Any:
    """The gradient of a local variable, divided by the number of ranks as the average of the others is."""
    size = size_op(process_set.process_set_id or 0) if is_elastic() else process_set.size() or 1
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(grad.values / tf.cast(size, grad.dtype), grad.indices, grad.dense_shape)
    return grad / tf.cast(size, grad.dtype)


def reduce_gradients(
    grads: Iterable[Any],
    variables: Iterable[Any],
    *,
    names: Sequence[str] | None = None,
    prefix: str = "DistributedGradients",
    op: int = Average,
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    predivide_factor: float = 1.0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_vars: Iterable[Any] = (),
    scale_local_gradients: bool = True,
    device_dense: str = "",
    device_sparse: str = "",
) -> list[Any]:
    """Return the gradients reduced over the process set, in the given order.

    Missing gradients stay None, those of `local_vars` are at most divided by the number of ranks, and outside of the
    set, or alone in it, all are returned as they are. In the negotiation gradients are called `prefix` and the name of
    their variable, within the name scope; `names` are used as they are.
    """
    wire = Wire(
        op,
        compression,
        sparse_as_dense,
        predivide_factor,
        groups,
        process_set,
        scale_local_gradients,
        device_dense,
        device_sparse,
    )
    return wire.reduce(grads, variables, VariableSet(local_vars), prefix, names)


def _by_variable(places: Sequence[int], variables: Sequence[Any], groups: Sequence[Sequence[Any]]) -> list[list[int]]:
    """The places of each group's variables, found by identity, or by name if the variable itself is not there."""
    by_identity = {id(storage(variables[place])): place for place in places}
    by_name: dict[str, list[int]] = defaultdict(list)
    for place in places:
        by_name[name_of(variables[place])].append(place)
    bunches, taken = [], set()
    for group in groups:
        bunch = []
        for member in group:
            same_name = by_name[name_of(member)]
            place = by_identity.get(id(storage(member)), same_name[0] if len(same_name) == 1 else -1)
            if place >= 0 and place not in taken:
                taken.add(place)
                bunch.append(place)
        bunches.append(bunch)
    return bunches


def _by_size(places: Sequence[int], variables: Sequence[Any]) -> list[list[int]]:
    """Neighbours that are small, together; the others, and those of unknown size, alone."""
    bunches: list[list[int]] = []
    open_bunch: list[int] = []
    elements = 0
    for place in places:
        size = tf.TensorShape(variables[place].shape).num_elements()
        if size is None or size > SMALL_ELEMENTS:
            bunches.append([place])
            continue
        if not open_bunch or elements + size > BUNCH_ELEMENTS or len(open_bunch) == BUNCH_MEMBERS:
            open_bunch, elements = [], 0
            bunches.append(open_bunch)
        open_bunch.append(place)
        elements += size
    return bunches


def _by_dtype(places: Sequence[int], grads: dict[int, Any]) -> list[list[int]]:
    """A grouped operation has one type."""
    parts: dict[Any, list[int]] = defaultdict(list)
    for place in places:
        parts[grads[place].dtype].append(place)
    return list(parts.values())
