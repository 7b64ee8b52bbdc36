"""Elastic training with a custom loop: continues when hosts are added or removed.

    horovodrun -np 2 --min-np 1 --max-np 4 --host-discovery-script ./hosts.sh \\
        python examples/elastic/tensorflow2_mnist_elastic.py

Trains a small network on scikit-learn's handwritten digits; nothing is downloaded. Without the elastic options it runs
as any other job. The lines marked (elastic) are what makes it so.
"""

import argparse
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import horovod.tensorflow as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=200, help="default: %(default)s")
    parser.add_argument("--steps-per-commit", type=int, default=10, help="what a failure costs at most")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one rank (default: %(default)s)")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    hvd.init()
    digits = load_digits()
    images, labels = (digits.images / 16).astype(np.float32).reshape(-1, 64), digits.target.astype(np.int64)

    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((64,)), layers.Dense(64, activation="relu"), layers.Dense(10)])
    compute_loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.keras.optimizers.Adam(options.lr * hvd.size())
    # (elastic) A worker that joins has made no step, so nothing is sent and no batch is trained before `train`.
    state: Any = hvd.elastic.TensorFlowKerasState(model, optimizer, step=0)

    def training_step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = compute_loss(labels[batch], model(images[batch], training=True))
        tape = hvd.DistributedGradientTape(tape)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    @hvd.elastic.run  # (elastic) called again when a rank is lost or a host has come
    def train(state: Any) -> None:
        while state.step < options.steps:
            random = np.random.default_rng(state.step * 1000 + hvd.rank())
            loss = training_step(random.integers(0, len(labels), options.batch_size))
            if state.step % 50 == 0 and hvd.rank() == 0:
                print(f"Step #{state.step}\tLoss: {float(loss):.6f}\tranks: {hvd.size()}", flush=True)
            state.step += 1
            if state.step % options.steps_per_commit == 0:
                state.commit()  # (elastic)

    def on_state_reset() -> None:  # (elastic) the rate follows the number of ranks
        optimizer.learning_rate = options.lr * hvd.size()

    state.register_reset_callbacks([on_state_reset])
    train(state)
    if hvd.rank() == 0:
        guesses = tf.argmax(model(images, training=False), axis=1).numpy()
        print(f"Accuracy: {(guesses == labels).mean():.2%} after {state.step} steps", flush=True)


if __name__ == "__main__":
    main()
