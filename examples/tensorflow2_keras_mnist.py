"""Data-parallel training of a small convolutional network on handwritten digits, with model.fit.

    python examples/tensorflow2_keras_mnist.py                       # one process
    horovodrun -np 2 python examples/tensorflow2_keras_mnist.py      # two: each takes half of the images

Trains with scikit-learn's small digits, or with the four files of MNIST in --data-dir; nothing is downloaded. The lines
marked (hvd) are all that makes it distributed. Works with Keras 3 and, with TF_USE_LEGACY_KERAS=1, with Keras 2.
"""

import argparse
from pathlib import Path

import tensorflow as tf
from digits import load_digits

import horovod.tensorflow.keras as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step and rank (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=8, help="default: %(default)s")
    parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one rank (default: %(default)s)")
    parser.add_argument("--data-dir", type=Path, help="folder with the files of MNIST (default: scikit-learn's digits)")
    parser.add_argument("--checkpoint-dir", type=Path, help="save the model there after every epoch")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    hvd.init()  # (hvd)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")  # (hvd) one GPU per rank

    (images, labels), test = load_digits(options.data_dir)
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    data = data.shard(hvd.size(), hvd.rank())  # (hvd) this rank's images
    data = data.repeat().shuffle(2000).batch(options.batch_size)

    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    rate = options.lr * hvd.size()  # (hvd) a step sees the images of all ranks, so it may be as much longer
    optimizer = tf.keras.optimizers.Adam(rate)
    optimizer = hvd.DistributedOptimizer(optimizer)  # (hvd)
    model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])

    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # (hvd) all ranks continue with the same weights
        hvd.callbacks.MetricAverageCallback(),  # (hvd) metrics of all ranks
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=3, verbose=1),  # (hvd)
    ]
    if options.checkpoint_dir and hvd.rank() == 0:  # (hvd) one rank saves
        callbacks.append(tf.keras.callbacks.ModelCheckpoint(str(options.checkpoint_dir / "checkpoint-{epoch}.keras")))

    steps = max(len(images) // (options.batch_size * hvd.size()), 1)  # (hvd) an epoch is one pass over all images
    verbose = 2 if hvd.rank() == 0 else 0  # (hvd) one rank reports
    model.fit(data, steps_per_epoch=steps, epochs=options.epochs, callbacks=callbacks, verbose=verbose, shuffle=False)
    _, accuracy = model.evaluate(*test, verbose=0)
    if hvd.rank() == 0:
        print(f"Test accuracy: {accuracy:.2%}", flush=True)


if __name__ == "__main__":
    main()
