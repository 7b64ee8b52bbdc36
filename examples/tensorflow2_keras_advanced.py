"""The recipe for large batches with Keras: warm-up, learning rates that fall, averaged metrics, and checkpoints.

    horovodrun -np 2 python examples/tensorflow2_keras_advanced.py --checkpoint-dir /tmp/digits

Started again, a job goes on after its last checkpoint, with as many ranks as it then has. Trains with scikit-learn's
small digits, or with the four files of MNIST in --data-dir; nothing is downloaded.
"""

import argparse
from pathlib import Path
from typing import Any

import tensorflow as tf
from digits import load_digits

import horovod.tensorflow.keras as hvd


def make_model(rate: float) -> Any:
    """A compiled model with batch normalization, which needs a larger batch less."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Conv2D(32, 3, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),  # few steps: the statistics must follow soon
            layers.ReLU(),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    optimizer = tf.keras.optimizers.SGD(rate, momentum=0.9, global_clipnorm=5.0)
    optimizer = hvd.DistributedOptimizer(optimizer, compression=hvd.Compression.fp16)
    model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])
    return model


def last_checkpoint(folder: Path) -> int:
    """The number of epochs that are done, as rank 0 sees it: the others may not see its files."""
    done = [int(path.stem.removeprefix("checkpoint-")) for path in folder.glob("checkpoint-*.keras")]
    return int(hvd.broadcast(max(done, default=0), 0, name="resume_from_epoch"))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint-dir", type=Path, required=True, help="one file for every epoch")
    parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=8, help="default: %(default)s")
    parser.add_argument("--warmup-epochs", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate of one rank (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=42, help="default: %(default)s")
    parser.add_argument("--data-dir", type=Path, help="folder with the files of MNIST (default: scikit-learn's digits)")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    hvd.init()
    tf.keras.utils.set_random_seed(options.seed)
    (images, labels), (test_images, test_labels) = load_digits(options.data_dir)
    mine = slice(hvd.rank(), len(labels) - len(labels) % hvd.size(), hvd.size())
    test = slice(hvd.rank(), len(test_labels) - len(test_labels) % hvd.size(), hvd.size())

    options.checkpoint_dir.mkdir(parents=True, exist_ok=True)
    done = last_checkpoint(options.checkpoint_dir)
    rate = options.lr * hvd.size()
    if done and hvd.rank() == 0:  # the others get model and optimizer from this rank
        print(f"goes on after epoch {done}", flush=True)
        path = options.checkpoint_dir / f"checkpoint-{done}.keras"
        model = hvd.load_model(str(path), compression=hvd.Compression.fp16)
    else:
        model = make_model(rate)

    later = options.warmup_epochs
    callbacks = [
        # After the first batch, when all variables exist: it must come before what changes or reads them.
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        # Before checkpoints and logs, which are to see averages.
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=later, verbose=1),
        hvd.callbacks.LearningRateScheduleCallback(rate, 1.0, start_epoch=later, end_epoch=later + 2),
        hvd.callbacks.LearningRateScheduleCallback(rate, lambda epoch: 0.1, start_epoch=later + 2),
    ]
    if hvd.rank() == 0:
        callbacks.append(tf.keras.callbacks.ModelCheckpoint(str(options.checkpoint_dir / "checkpoint-{epoch}.keras")))
        callbacks.append(tf.keras.callbacks.CSVLogger(str(options.checkpoint_dir / "log.csv"), append=True))
    model.fit(
        images[mine],
        labels[mine],
        batch_size=options.batch_size,
        initial_epoch=done,
        epochs=options.epochs,
        validation_data=(test_images[test], test_labels[test]),
        callbacks=callbacks,
        verbose=2 if hvd.rank() == 0 else 0,
    )
    loss, accuracy = model.evaluate(test_images[test], test_labels[test], verbose=0)
    loss, accuracy = (float(each) for each in hvd.allreduce([loss, accuracy], name="test"))
    if hvd.rank() == 0:
        print(f"Test loss: {loss:.4f}, accuracy: {accuracy:.2%}", flush=True)


if __name__ == "__main__":
    main()
