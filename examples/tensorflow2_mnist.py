"""Data-parallel training of a small convolutional network on handwritten digits, with a training loop of one's own.

    python examples/tensorflow2_mnist.py                       # one process
    horovodrun -np 2 python examples/tensorflow2_mnist.py      # two: each takes half of the images

Trains with scikit-learn's small digits, or with the four files of MNIST in --data-dir; nothing is downloaded. The lines
marked (hvd) are all that makes it distributed.
"""

import argparse
from pathlib import Path
from typing import Any

import tensorflow as tf
from digits import load_digits

import horovod.tensorflow as hvd


def make_model() -> Any:
    """Two convolutions and two dense layers, for images of 8 x 8 pixels and more."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step and rank (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=200, help="of all ranks together (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one rank (default: %(default)s)")
    parser.add_argument("--use-adasum", action="store_true", help="combine gradients with Adasum")
    parser.add_argument("--data-dir", type=Path, help="folder with the files of MNIST (default: scikit-learn's digits)")
    parser.add_argument("--checkpoint-dir", type=Path, help="save model and optimizer there at the end")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    hvd.init()  # (hvd)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")  # (hvd) one GPU per rank

    (images, labels), (test_images, test_labels) = load_digits(options.data_dir)
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    data = data.shard(hvd.size(), hvd.rank())  # (hvd) this rank's images
    data = data.repeat().shuffle(2000, seed=hvd.rank()).batch(options.batch_size)

    model = make_model()
    compute_loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # (hvd) A step sees the images of all ranks, so it may be as much longer. Adasum finds the length itself.
    optimizer = tf.keras.optimizers.Adam(options.lr if options.use_adasum else options.lr * hvd.size())

    @tf.function
    def training_step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = compute_loss(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape, op=hvd.Adasum if options.use_adasum else hvd.Average)  # (hvd)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    for step, (batch_images, batch_labels) in enumerate(data.take(options.steps // hvd.size())):  # (hvd)
        loss = training_step(batch_images, batch_labels)
        if step == 0:  # (hvd) now all variables exist: continue with the same ones on all ranks
            hvd.broadcast_variables(model.variables, root_rank=0)
            variables = optimizer.variables
            hvd.broadcast_variables(variables() if callable(variables) else variables, root_rank=0)
        if step % 10 == 0 and hvd.rank() == 0:
            print(f"Step #{step}\tLoss: {float(loss):.6f}", flush=True)

    guesses = tf.argmax(model(test_images, training=False), axis=1).numpy()
    if hvd.rank() == 0:
        print(f"Test accuracy: {(guesses == test_labels).mean():.2%}", flush=True)
        if options.checkpoint_dir:  # (hvd) one rank saves, or they would overwrite each other's file
            tf.train.Checkpoint(model=model, optimizer=optimizer).save(options.checkpoint_dir / "ckpt")


if __name__ == "__main__":
    main()
