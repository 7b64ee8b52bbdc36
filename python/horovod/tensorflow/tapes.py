"""Gradient tapes whose `gradient` is that of all ranks."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import tensorflow as tf

from horovod._generic.reduce_ops import Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.as_written import as_written
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradients import Groups, Wire, check_predivide_factor, checked_groups
from horovod.tensorflow.variable_set import VariableSet

_PREFIX = "DistributedGradientTape"


class TapeMethods:
    """Mixed in before a tape's class. Slots: everything else belongs to the recorded tape, which two objects share."""

    __slots__ = ("_local_layers", "_local_sources", "_wire")

    _wire: Wire
    _local_sources: VariableSet
    _local_layers: Sequence[Any]  # their weights are local sources too, as soon as they have some

    def register_local_source(self, source: Any) -> None:
        """From now on the gradient of this variable is not reduced."""
        self._local_sources.add(source)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        *,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """Return the gradients of all ranks together, a list for a list of sources.

        `use_generic_names`: the names in the negotiation are grad_0, grad_1 and so on, not those of the variables.
        """
        computed = super().gradient(  # type: ignore[misc]
            target, sources, output_gradients, unconnected_gradients=unconnected_gradients
        )
        flat = tf.nest.flatten(sources)
        grads = [computed] if len(flat) == 1 and not tf.nest.is_nested(sources) else tf.nest.flatten(computed)
        reduced = self._reduce(grads, flat, use_generic_names)
        if isinstance(sources, list | tuple) and not any(map(tf.nest.is_nested, sources)):
            return reduced
        return tf.nest.pack_sequence_as(sources, reduced)

    @as_written
    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """Return (source, gradient) of the local sources, and of the others."""
        grads = self.gradient(target, sources, output_gradients, use_generic_names)
        local = self._local()
        pairs = list(zip(tf.nest.flatten(sources), tf.nest.flatten(grads), strict=True))
        return [pair for pair in pairs if pair[0] in local], [pair for pair in pairs if pair[0] not in local]

    def _local(self) -> VariableSet:
        return VariableSet(
            [*self._local_sources, *(v for layer in self._local_layers for v in layer.trainable_weights)]
        )

    def _reduce(self, grads: Iterable[Any], sources: Sequence[Any], use_generic_names: bool) -> list[Any]:
        names = [f"grad_{number}" for number in range(len(sources))] if use_generic_names else None
        return self._wire.reduce(grads, sources, self._local(), _PREFIX, names)


def DistributedGradientTape(  # noqa: N802
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Return a tape like `gradtape` whose `gradient` reduces what it has computed over all ranks.

    Its class has the name of the given one and is derived from it; both objects stand for the same recording.
    """
    check_predivide_factor(gradient_predivide_factor, op)
    wire = Wire(
        op,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        checked_groups(groups, num_groups),
        process_set,
        scale_local_gradients,
        device_dense,
        device_sparse,
    )
    return _twin(gradtape, wire)


def PartialDistributedGradientTape(  # noqa: N802
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Return a `DistributedGradientTape` that leaves the weights of `local_layers` to this rank.

    `local_layers`: a Keras layer or a collection of them. Their gradients are divided by the number of ranks unless
    `scale_local_gradients` is False.
    """
    layers = _layers(local_layers)
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    tape._local_layers = layers
    return tape


def _layers(given: Any) -> list[Any]:
    """The layers, known by their weights: they may be those of either Keras, which is not imported for this."""
    if given is None:
        return []
    layers = list(given) if isinstance(given, Collection) else [given]
    for layer in layers:
        if not hasattr(layer, "trainable_weights"):
            raise ValueError(f"local_layers must be a Keras layer or a collection of them, not {layer!r}")
    return layers


@functools.lru_cache(maxsize=16)
def _distributed(base: type) -> Any:
    """The class of distributed tapes of a kind. Kept, because scripts make a tape in every step."""
    return type(base.__name__, (TapeMethods, base), {"__module__": __name__, "__slots__": ()})


def _twin(gradtape: tf.GradientTape, wire: Wire) -> Any:
    methods = _distributed(gradtape.__class__)
    twin = methods.__new__(methods)
    twin.__dict__ = gradtape.__dict__  # not a copy: both share their records and whether they were used
    twin._wire = wire
    twin._local_sources = VariableSet()
    twin._local_layers = ()
    return twin
