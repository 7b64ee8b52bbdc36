"""Data-parallel training of a small convolutional network on handwritten digits, with the package keras.

    python examples/keras_mnist.py                                          # one process
    horovodrun -np 2 python examples/keras_mnist.py                         # two: each takes half of the images
    KERAS_BACKEND=torch horovodrun -np 2 python examples/keras_mnist.py     # Keras 3 on PyTorch

Trains with scikit-learn's small digits, or with the four files of MNIST in --data-dir; nothing is downloaded. The lines
marked (hvd) are all that makes it distributed.
"""

import argparse
from pathlib import Path

import keras
from digits import load_digits

import horovod.keras as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step and rank (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=8, help="default: %(default)s")
    parser.add_argument("--lr", type=float, default=1.0, help="learning rate of one rank (default: %(default)s)")
    parser.add_argument("--data-dir", type=Path, help="folder with the files of MNIST (default: scikit-learn's digits)")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    hvd.init()  # (hvd)
    (images, labels), test = load_digits(options.data_dir)
    images, labels = images[hvd.rank() :: hvd.size()], labels[hvd.rank() :: hvd.size()]  # (hvd) this rank's part

    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input(images.shape[1:]),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dropout(0.25),
            layers.Dense(10, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.Adadelta(options.lr * hvd.size())  # (hvd) more images per step, longer steps
    optimizer = hvd.DistributedOptimizer(optimizer)  # (hvd)
    model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # (hvd) all ranks continue with the same weights
        hvd.callbacks.MetricAverageCallback(),  # (hvd) metrics of all ranks
    ]
    steps = len(labels) // options.batch_size  # (hvd) as many on all ranks, though one may have an image more
    model.fit(
        images[: steps * options.batch_size],
        labels[: steps * options.batch_size],
        batch_size=options.batch_size,
        epochs=options.epochs,
        callbacks=callbacks,
        verbose=2 if hvd.rank() == 0 else 0,  # (hvd) one rank reports
    )
    _, accuracy = model.evaluate(*test, verbose=0)
    if hvd.rank() == 0:
        print(f"Test accuracy: {accuracy:.2%}", flush=True)


if __name__ == "__main__":
    main()
