"""SyncBatchNormalization: the moments are those of all ranks' batches, forward and backward."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd


def whole_batch() -> np.ndarray:
    values = np.random.default_rng(0).normal(1000.0, 2.0, (4 * hvd.size(), 3))
    return (values * [1.0, 2.0, 3.0]).astype(np.float32)


def normalised(layer: tf.keras.layers.Layer, batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The output, and the gradient of a loss that is the sum over all ranks of each one's loss."""
    given = tf.constant(batch)
    with tf.GradientTape() as tape:
        tape.watch(given)
        output = layer(given, training=True)
        loss = tf.reduce_sum(tf.square(output) * given)
    return output.numpy(), tape.gradient(loss, given).numpy()


def test_as_if_it_were_one_batch() -> None:
    batch = whole_batch()
    alone, together = tf.keras.layers.BatchNormalization(), hvd.SyncBatchNormalization()
    wanted, wanted_gradient = normalised(alone, batch)
    mine = slice(4 * hvd.rank(), 4 * hvd.rank() + 4)
    output, gradient = normalised(together, batch[mine])
    np.testing.assert_allclose(output, wanted[mine], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(gradient, wanted_gradient[mine], rtol=2e-2, atol=2e-1)
    np.testing.assert_allclose(together.moving_mean.numpy(), alone.moving_mean.numpy(), rtol=1e-5)
    np.testing.assert_allclose(together.moving_variance.numpy(), alone.moving_variance.numpy(), rtol=1e-2)


def test_in_a_function_and_not_in_training() -> None:
    layer = hvd.SyncBatchNormalization()
    batch = whole_batch()[4 * hvd.rank() : 4 * hvd.rank() + 4]
    eager = layer(batch, training=True)
    compiled = tf.function(lambda given: layer(given, training=True))(tf.constant(batch))
    np.testing.assert_allclose(eager, compiled, rtol=1e-4, atol=1e-4)
    if hvd.rank() == 0:  # no collective
        layer(batch, training=False)


def test_options() -> None:
    assert hvd.SyncBatchNormalization().name.startswith("sync_batch_normalization")
    assert isinstance(hvd.SyncBatchNormalization(), tf.keras.layers.BatchNormalization)
    for fused in (True, None):
        with pytest.raises(ValueError):
            hvd.SyncBatchNormalization(fused=fused)
    layer = hvd.SyncBatchNormalization(momentum=0.5)
    assert type(layer).from_config(layer.get_config()).momentum == 0.5
