"""Elastic training with tf.keras and model.fit: continues when hosts are added or removed.

    horovodrun -np 2 --min-np 1 --max-np 4 --host-discovery-script ./hosts.sh \\
        python examples/elastic/tensorflow2_keras_mnist_elastic.py

Trains a small network on scikit-learn's handwritten digits; nothing is downloaded. Without the elastic options it runs
as any other job. The lines marked (elastic) are what makes it so.
"""

import argparse
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from tensorflow import keras

import horovod.tensorflow.keras as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=8, help="default: %(default)s")
    parser.add_argument("--batches-per-commit", type=int, default=5, help="what a failure costs at most")
    parser.add_argument("--lr", type=float, default=0.002, help="learning rate of one rank (default: %(default)s)")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    hvd.init()
    digits = load_digits()
    images, labels = (digits.images / 16).astype(np.float32).reshape(-1, 64), digits.target.astype(np.int64)

    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((64,)), layers.Dense(64, activation="relu"), layers.Dense(10, activation="softmax")]
    )
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(options.lr * hvd.size()))
    model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])
    state: Any = hvd.elastic.KerasState(model, batch=0, epoch=0)  # (elastic)

    def on_state_reset() -> None:  # (elastic) the rate follows the number of ranks
        model.optimizer.learning_rate = options.lr * hvd.size()

    state.register_reset_callbacks([on_state_reset])

    @hvd.elastic.run  # (elastic) called again when a rank is lost or a host has come
    def train(state: Any) -> None:
        steps = len(labels) // (options.batch_size * hvd.size())  # as many on all ranks
        order = np.random.default_rng(state.epoch).permutation(len(labels))
        mine = order[hvd.rank() :: hvd.size()][: steps * options.batch_size]
        model.fit(
            images[mine],
            labels[mine],
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
        _, accuracy = model.evaluate(images, labels, verbose=0)
        print(f"Accuracy: {accuracy:.2%} after {state.epoch} epochs", flush=True)


if __name__ == "__main__":
    main()
