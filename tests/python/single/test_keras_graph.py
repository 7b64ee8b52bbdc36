"""Keras 2 in graphs of TensorFlow 1, which only a process of its own can switch to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ranks import ROOT

PROGRAM = """
import numpy as np
import tensorflow as tf
tf.compat.v1.disable_eager_execution()
import horovod.tensorflow.keras as hvd
keras = tf.keras

hvd.init()
size, rank = hvd.size(), hvd.rank()

def model(seed=1):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])

def rows(of):
    inputs = np.random.default_rng(of).standard_normal((8, 3)).astype("float32")
    return inputs, inputs.sum(1, keepdims=True)

def trained(optimizer, data, epochs=4, batch=8, seed=1, **options):
    made = model(seed)
    made.compile(optimizer=optimizer, loss="mse", experimental_run_tf_function=False)
    made.fit(*data, batch_size=batch, epochs=epochs, shuffle=False, verbose=0, **options)
    return made

def close(left, right):
    for one, other in zip(left, right, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)

everyone = tuple(np.concatenate(each) for each in zip(*(rows(of) for of in range(size))))
SGD = keras.optimizers.legacy.SGD
together = trained(hvd.DistributedOptimizer(SGD(0.1, momentum=0.9)), rows(rank))
close(together.get_weights(), trained(SGD(0.1, momentum=0.9), everyone, batch=8 * size).get_weights())

value = hvd.allreduce(np.array([1.0, rank]), name="value", op=hvd.Sum)
assert isinstance(value, np.ndarray) and list(value) == [size, size * (size - 1) / 2]

passes = hvd.DistributedOptimizer(SGD(0.1), backward_passes_per_step=2, average_aggregated_gradients=True)
twice = trained(passes, rows(rank), epochs=4)
close(twice.get_weights(), trained(SGD(0.1), everyone, epochs=2, batch=8 * size).get_weights())

callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(0.1, warmup_epochs=2),
]
differing = trained(hvd.DistributedOptimizer(SGD(0.1, momentum=0.5)), rows(rank), seed=rank, callbacks=callbacks)
gathered = hvd.allgather(np.concatenate([each.ravel() for each in differing.get_weights()])[None], name="weights")
assert (gathered == gathered[0]).all()
print("done")
"""


def test_keras_2_in_graphs(horovodrun: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}/python",
        "TF_USE_LEGACY_KERAS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    command = [horovodrun, "-np", "2", sys.executable, str(program)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("done") == 2
