"""Batch normalisation over the batches of all ranks, for the Keras that TensorFlow uses: version 3 or 2."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod._generic.reduce_ops import Average
from horovod.tensorflow.mpi_ops import _allreduce, size
from horovod.tensorflow.util import _executing_eagerly, is_elastic

_Base: Any = tf.keras.layers.BatchNormalization
_OF_KERAS_2 = hasattr(_Base, "_fused_can_be_used")


class SyncBatchNormalization(_Base):  # type: ignore[misc]
    """Replaces `tf.keras.layers.BatchNormalization`: statistics are those of the batches of all ranks.

    The moments of a training batch are the averages over ranks of the mean and of the mean square, so batches should be
    of one size. Collective in training: all ranks run it the same number of times.
    """

    def __init__(self, fused: bool | None = False, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True: the moments have to leave the layer")
        if _OF_KERAS_2:
            kwargs["fused"] = False  # or it would be chosen where possible
        super().__init__(**kwargs)

    def _moments(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The mean and variance of the batches of all ranks.

        Each average has the gradient that the sum of all ranks' losses asks for. The squares are those of the distance
        to the common mean, which keeps digits that the difference of two large means would lose.
        """
        mean, variance = super()._moments(*args, **kwargs)
        if size() == 1 and not is_elastic():  # a graph that is made in an elastic world of one may see it grow
            return mean, variance
        common = _allreduce(mean, op=Average)
        return common, _allreduce(variance + tf.square(mean - common), op=Average)


def _call_and_register(self: Any, inputs: Any, training: Any = None, **kwargs: Any) -> Any:
    """Normalise the batch, and let sessions find what updates the moving averages."""
    outputs = _Base.call(self, inputs, training=training, **kwargs)
    if not _executing_eagerly() and not tf.compat.v1.get_default_graph().building_function:
        for update in self.updates:
            tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
    return outputs


if _OF_KERAS_2:
    SyncBatchNormalization.call = _call_and_register
