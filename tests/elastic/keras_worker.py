"""The training of worker.py with Keras and model.fit: KerasState and its callbacks keep the account.

The model has one weight per sample, inputs are rows of the unit matrix, and the loss is minus the output: a step of SGD
with learning rate 1 adds to each weight how often its sample is in the batch. Rows of zeros fill up what is left over.
"""

from __future__ import annotations

import os
import sys
import zlib
from typing import Any

import numpy as np
import tensorflow as tf
from points import STOP, begin, point, tell
from tensorflow import keras

import horovod.tensorflow.keras as hvd

SAMPLES = int(os.environ.get("ELASTIC_TEST_SAMPLES", "61"))
BATCH = 3


class Training(hvd.elastic.KerasState):
    """Faults may be placed in its commits and syncs."""

    epoch: int
    processed: int

    def save(self) -> None:
        point("commit", hvd.rank())
        super().save()

    def sync(self) -> None:
        point("sync", hvd.rank())
        super().sync()


class Account(keras.callbacks.Callback):
    """Counts the samples of each step, and reports the first one in a world."""

    def __init__(self, state: Training) -> None:
        super().__init__()
        self._state = state
        self.is_new_world = True

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        point("negotiation", hvd.rank())

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._state.processed += BATCH * hvd.size()
        if self.is_new_world:
            host = os.environ.get("HOROVOD_HOSTNAME", "")
            tell("going", rank=hvd.rank(), size=hvd.size(), epoch=self._state.epoch, host=host)
            self.is_new_world = False


def rows_left(state: Training) -> np.ndarray[Any, Any]:
    """This rank's share of what the epoch has left, as many rows on every rank."""
    left = np.random.default_rng(state.epoch).permutation(SAMPLES)[state.processed :]
    mine = left[hvd.rank() :: hvd.size()]
    rows = np.zeros((-(-len(left) // hvd.size()), SAMPLES), np.float32)
    rows[np.arange(len(mine)), mine] = 1
    return rows


def check(state: Training) -> None:
    weights = state.model.get_weights()[0][:, 0]
    wrong = np.flatnonzero(weights != state.epoch + 1)
    if len(wrong):
        tell("wrong", rank=hvd.rank(), samples=wrong.tolist(), epoch=state.epoch)
        print(f"samples {wrong.tolist()} were used {weights[wrong]} times by epoch {state.epoch}", file=sys.stderr)
        os._exit(3)


@hvd.elastic.run
def train(state: Training) -> None:
    account = Account(state)
    stop = False
    while not stop:
        if state.processed < SAMPLES:
            rows = rows_left(state)
            commit = hvd.elastic.CommitStateCallback(state, batches_per_commit=1)
            state.model.fit(
                rows, np.zeros(len(rows)), batch_size=BATCH, shuffle=False, verbose=0, callbacks=[account, commit]
            )
        check(state)
        state.epoch, state.processed = state.epoch + 1, 0
        stop = bool(hvd.allreduce(float(STOP.exists()), name="stop", op=hvd.Sum))
        state.commit()


def main() -> None:
    begin()
    point("init")
    hvd.init()
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.layers.Input((SAMPLES,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")]
    )
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0, momentum=0.0), op=hvd.Sum)
    model.compile(optimizer, loss=lambda _, output: -tf.reduce_sum(output))
    state = Training(model, epoch=0, processed=0)
    train(state)
    point("exit", hvd.rank())
    digest = zlib.crc32(model.get_weights()[0].tobytes())
    tell("done", rank=hvd.rank(), size=hvd.size(), epoch=state.epoch, digest=digest, commit=state.commit_seconds)


if __name__ == "__main__":
    main()
