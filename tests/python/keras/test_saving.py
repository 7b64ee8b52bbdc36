"""Checkpoints: files name the plain optimizer, and `hvd.load_model` brings it back distributed, with its state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small
import tensorflow as tf
from small import KERAS_3, assert_close, assert_same_on_all_ranks, fit, keras, make_model, optimizers

import horovod.keras
import horovod.tensorflow.keras as hvd
from horovod._keras.distributed import is_distributed
from horovod._keras.variables import is_keras_3, variables_of

# Not the folder of a SavedModel: Keras 2 itself brings no state of an optimizer back from it.
FORMATS = [".keras"] if KERAS_3 else [".keras", ".h5"]


def values(optimizer: Any) -> list[np.ndarray]:
    return [np.array(each.numpy()) for each in variables_of(optimizer)]


@pytest.mark.parametrize("suffix", FORMATS)
def test_load_model_brings_everything_back(tmp_path: Path, suffix: str) -> None:
    path = str(tmp_path / f"model{suffix}")
    model = make_model()
    fit(model, hvd.DistributedOptimizer(optimizers.Adam(0.02)))
    model.save(path)

    again = hvd.load_model(path)
    assert type(again.optimizer).__module__ == "horovod._keras" and type(again.optimizer).__name__ == "Adam"
    assert float(again.optimizer.learning_rate) == pytest.approx(0.02)
    assert_close(again.get_weights(), model.get_weights())
    assert_close(values(again.optimizer), values(model.optimizer))

    plain = keras.models.load_model(path)
    assert not is_distributed(plain.optimizer)
    assert type(plain.optimizer) is optimizers.Adam
    assert_close(values(plain.optimizer), values(model.optimizer))

    for each in (model, again):
        each.fit(*small.data(2, hvd.rank()), batch_size=small.ROWS, shuffle=False, verbose=0)
    assert_close(again.get_weights(), model.get_weights())
    assert_same_on_all_ranks(again.get_weights())


def test_a_model_saved_without_horovod(tmp_path: Path) -> None:
    path = str(tmp_path / "model.keras")
    model = make_model()
    fit(model, optimizers.RMSprop(0.125))
    model.save(path)
    again = hvd.load_model(path)
    assert is_distributed(again.optimizer)
    assert float(again.optimizer.learning_rate) == 0.125
    assert int(again.optimizer.iterations) == 8


class Slow(optimizers.SGD):  # type: ignore[misc]
    """An optimizer that Keras does not know."""


@pytest.mark.parametrize("as_objects", [False, True])
def test_own_optimizers(tmp_path: Path, as_objects: bool) -> None:
    path = str(tmp_path / "model.keras")
    model = make_model()
    fit(model, hvd.DistributedOptimizer(Slow(0.125)))
    model.save(path)
    named: dict[str, Any] = {"custom_objects": {"Slow": Slow}} if as_objects else {"custom_optimizers": [Slow]}
    again = hvd.load_model(path, **named)
    assert is_distributed(again.optimizer) and isinstance(again.optimizer, Slow)
    assert float(again.optimizer.learning_rate) == 0.125


@pytest.mark.skipif(KERAS_3, reason="Keras 3 has no legacy optimizers")
def test_legacy_optimizers(tmp_path: Path) -> None:
    path = str(tmp_path / "model.h5")
    model = make_model()
    fit(model, hvd.DistributedOptimizer(optimizers.legacy.Adam(0.02)))
    model.save(path)
    again = hvd.load_model(path, legacy_opts=True)
    assert is_distributed(again.optimizer) and isinstance(again.optimizer, optimizers.legacy.Adam)
    assert_close(values(again.optimizer), values(model.optimizer))


@pytest.mark.skipif(not KERAS_3 and is_keras_3(horovod.keras.keras), reason="the package keras is Keras 3 here")
def test_load_model_of_horovod_keras(tmp_path: Path) -> None:
    path = str(tmp_path / "model.keras")
    model = make_model()
    fit(model, horovod.keras.DistributedOptimizer(optimizers.Adam(0.02)))
    model.save(path)
    assert is_distributed(horovod.keras.load_model(path).optimizer)


def test_weights_go_between_plain_and_distributed(tmp_path: Path) -> None:
    path = str(tmp_path / "model.weights.h5")
    model, plain = make_model(), make_model(seed=2)
    fit(model, hvd.DistributedOptimizer(optimizers.SGD(0.1)), epochs=1)
    model.save_weights(path)
    plain.load_weights(path)
    assert_close(plain.get_weights(), model.get_weights())


def test_checkpoints_go_between_plain_and_distributed(tmp_path: Path) -> None:
    model, plain = make_model(), make_model(seed=2)
    fit(model, hvd.DistributedOptimizer(optimizers.Adam(0.02)), epochs=1)
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "ckpt"))
    optimizer = optimizers.Adam(0.5)
    optimizer.build(plain.trainable_variables)
    tf.train.Checkpoint(model=plain, optimizer=optimizer).restore(path).expect_partial()
    assert_close(plain.get_weights(), model.get_weights())
    assert_close(values(optimizer), values(model.optimizer))
