"""Elastic training with Keras on workers that come and go; docs/preemptible.md says how it is started.

The data are made here: points around ten centres, which a small network learns to tell apart. The lines marked
(elastic) are what makes it survive.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import horovod.tensorflow.keras as hvd

CLASSES, FEATURES, SAMPLES = 10, 32, 8000


def make_data() -> tuple[Any, Any]:
    """The same on all ranks."""
    generator = np.random.default_rng(1)
    centres = generator.normal(size=(CLASSES, FEATURES))
    labels = generator.integers(CLASSES, size=SAMPLES)
    return (centres[labels] + generator.normal(size=(SAMPLES, FEATURES))).astype(np.float32), labels


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=64, help="points per step and rank (default: %(default)s)")
    parser.add_argument("--batches-per-commit", type=int, default=10, help="what a failure costs at most")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of one rank (default: %(default)s)")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    points, labels = make_data()

    layers = keras.layers
    model = keras.Sequential([layers.Input((FEATURES,)), layers.Dense(64, activation="relu"), layers.Dense(CLASSES)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(options.lr * hvd.size()))
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    state: Any = hvd.elastic.KerasState(model, batch=100, epoch=0)  # (elastic)

    def on_state_reset() -> None:  # (elastic) the rate follows the number of ranks
        model.optimizer.learning_rate = options.lr * hvd.size()

    state.register_reset_callbacks([on_state_reset])

    @hvd.elastic.run  # (elastic) called again when a secondary has come or gone
    def train(state: Any) -> None:
        print(f"rank {hvd.rank()} of {hvd.size()} on {os.uname().nodename}, epoch {state.epoch}", flush=True)
        mine = np.random.default_rng(state.epoch).permutation(SAMPLES)[hvd.rank() :: hvd.size()]
        steps = SAMPLES // (options.batch_size * hvd.size())  # as many on all ranks
        model.fit(
            points[mine][: steps * options.batch_size],
            labels[mine][: steps * options.batch_size],
            batch_size=options.batch_size,
            epochs=options.epochs - state.epoch,
            callbacks=[
                hvd.elastic.UpdateBatchStateCallback(state),  # (elastic)
                hvd.elastic.UpdateEpochStateCallback(state),  # (elastic)
                hvd.elastic.CommitStateCallback(state, batches_per_commit=options.batches_per_commit),  # (elastic) last
            ],
            verbose=2 if hvd.rank() == 0 else 0,
        )

    train(state)
    if hvd.rank() == 0:
        _, accuracy = model.evaluate(points, labels, verbose=0)
        print(f"accuracy {accuracy:.2%} after {state.epoch} epochs, {hvd.size()} ranks at the end", flush=True)


if __name__ == "__main__":
    main()
