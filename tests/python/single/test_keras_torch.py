"""Keras 3 on PyTorch, and on what Horovod does not know: other processes than those of the TensorFlow suites."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ranks import ROOT

PROGRAM = """
import sys
import keras, numpy as np
import horovod.keras as hvd

hvd.init()
assert "tensorflow" not in sys.modules, "Keras on PyTorch does without TensorFlow"
size, rank = hvd.size(), hvd.rank()

def model(seed=1):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])

def rows(of):
    inputs = np.random.default_rng(of).standard_normal((8, 3)).astype("float32")
    return inputs, inputs.sum(1, keepdims=True)

def trained(optimizer, data, epochs=3, batch=8, **options):
    made = model()
    made.compile(optimizer=optimizer, loss="mse")
    made.fit(*data, batch_size=batch, epochs=epochs, shuffle=False, verbose=0, **options)
    return made

everyone = tuple(np.concatenate(each) for each in zip(*(rows(of) for of in range(size))))
for make in (lambda: keras.optimizers.SGD(0.1, momentum=0.9), lambda: keras.optimizers.Adam(0.01)):
    together = trained(hvd.DistributedOptimizer(make()), rows(rank))
    alone = trained(make(), everyone, batch=8 * size)
    for one, other in zip(together.get_weights(), alone.get_weights()):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)

optimizer = hvd.PartialDistributedOptimizer(
    keras.optimizers.SGD(0.1), backward_passes_per_step=2, average_aggregated_gradients=True
)
twice = trained(optimizer, rows(rank), epochs=4)
assert int(optimizer.iterations) == 4 and optimizer._agg_helper.counter == 0
alone = trained(keras.optimizers.SGD(0.1), everyone, epochs=2, batch=8 * size)
for one, other in zip(twice.get_weights(), alone.get_weights()):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)

def everywhere_the_same(values):
    gathered = hvd.allgather(np.concatenate([each.ravel() for each in values])[None])
    return bool((gathered == gathered[0]).all())

differing = model(seed=rank)
differing.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
assert not everywhere_the_same(differing.get_weights())
history = differing.fit(*rows(rank), epochs=2, verbose=0, callbacks=callbacks)
assert everywhere_the_same(differing.get_weights())
assert everywhere_the_same([np.array(history.history["loss"])])

path = f"{sys.argv[1]}/{rank}.keras"
differing.save(path)
again = hvd.load_model(path)
assert type(again.optimizer).__module__ == "horovod._keras" and int(again.optimizer.iterations) == 2
assert type(keras.models.load_model(path).optimizer).__module__.startswith("keras.")

state = hvd.elastic.KerasState(again, epoch=rank)
before = again.get_weights()
again.fit(*rows(rank), verbose=0)
state.restore()
assert all(np.array_equal(*pair) for pair in zip(before, again.get_weights()))
state.sync()
assert state.epoch == 0

scaler = keras.optimizers.LossScaleOptimizer(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), initial_scale=4.0)
scaled = model()
scaled.compile(optimizer=scaler, loss="mse")
before = scaled.get_weights()
scaled.train_on_batch(rows(rank)[0] * (np.inf if rank else 1), rows(rank)[1])
assert all(np.array_equal(*pair) for pair in zip(before, scaled.get_weights())), "all skip a step that one cannot make"
print("done")
"""


def test_keras_on_pytorch(horovodrun: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/python", "KERAS_BACKEND": "torch"}
    command = [horovodrun, "-np", "2", sys.executable, str(program), str(tmp_path)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("done") == 2


def test_other_backends_get_a_clear_error() -> None:
    from horovod._keras.backend import module_for

    other: Any = SimpleNamespace(__version__="3.15.1", backend=SimpleNamespace(backend=lambda: "openvino"))
    with pytest.raises(RuntimeError, match="openvino: set KERAS_BACKEND=tensorflow, torch or jax"):
        module_for(other)
