"""What the callbacks do to models, learning rates and metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small
import tensorflow as tf
from small import KERAS_3, assert_same_on_all_ranks, keras, make_model, optimizers

import horovod.tensorflow.keras as hvd

callbacks = hvd.callbacks


class Rates(keras.callbacks.Callback):  # type: ignore[misc]
    """The learning rates during the batches."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.seen.append(float(self.model.optimizer.learning_rate))


def rates(callback: Any, epochs: int, steps: int = 4, optimizer: Any = None, dataset: Any = None) -> tuple[Any, Any]:
    model = make_model()
    model.compile(optimizer=optimizer or optimizers.SGD(0.5), loss="mse")
    seen = Rates()
    inputs, targets = small.data(steps, hvd.rank())
    history = model.fit(
        inputs if dataset is None else dataset,
        targets if dataset is None else None,
        batch_size=small.ROWS if dataset is None else None,
        epochs=epochs,
        verbose=0,
        callbacks=[callback, seen],
    )
    return seen.seen, history.history


@pytest.mark.parametrize("built", [True, False])
def test_broadcast_makes_all_ranks_equal(built: bool) -> None:
    if built:
        model = make_model(seed=hvd.rank())
    else:
        model = keras.Sequential([small.layers.Dense(5), small.layers.BatchNormalization(), small.layers.Dense(1)])
    optimizer = optimizers.Adam(0.1 * (1 + hvd.rank()))  # not distributed: ranks differ but for the broadcast
    model.compile(optimizer=optimizer, loss="mse")
    callback = callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(*small.data(1, hvd.rank()), batch_size=small.ROWS, epochs=1, verbose=0, callbacks=[callback])
    assert callback.broadcast_done
    assert_same_on_all_ranks(model.get_weights())
    assert_same_on_all_ranks([np.array(each.numpy()) for each in small_variables(optimizer)])
    model.fit(*small.data(1, hvd.rank()), batch_size=small.ROWS, epochs=1, verbose=0, callbacks=[callback])
    gathered = hvd.allgather(np.concatenate([each.ravel() for each in model.get_weights()])[None]).numpy()
    assert hvd.size() == 1 or not np.array_equal(gathered[0], gathered[1]), "it broadcasts once"


def small_variables(optimizer: Any) -> list[Any]:
    from horovod._keras.variables import variables_of

    return variables_of(optimizer)


def test_broadcast_leaves_local_variables() -> None:
    model = make_model(seed=hvd.rank())
    model.compile(optimizer=optimizers.SGD(0.0), loss="mse")
    kernel = model.layers[0].kernel
    before = kernel.numpy().copy()
    callback = callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[kernel])
    callback.register_local_var(model.layers[0].bias)
    model.fit(*small.data(1, hvd.rank()), batch_size=small.ROWS, verbose=0, callbacks=[callback])
    np.testing.assert_array_equal(kernel.numpy(), before)
    assert_same_on_all_ranks(model.get_weights()[2:])
    callbacks.BroadcastGlobalVariablesCallback(0, local_variables=tf.Variable(1.0))
    with pytest.raises(ValueError, match="local_variables"):
        callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[3])


def test_metrics_are_averages_on_all_ranks() -> None:
    callback = callbacks.MetricAverageCallback()
    logs = {"loss": float(hvd.rank()), "accuracy": np.float32(2 * hvd.rank()), "auc": tf.constant(1.0)}
    callback.on_epoch_end(0, logs)
    middle = (hvd.size() - 1) / 2
    assert logs == {"loss": middle, "accuracy": 2 * middle, "auc": 1.0}
    callback.on_epoch_end(1, {})
    callback.on_epoch_end(1, None)


def test_metrics_are_averaged_before_later_callbacks_see_them(tmp_path: Path) -> None:
    model = make_model()
    model.compile(optimizer=optimizers.SGD(0.01), loss="mse", metrics=["mae"])
    seen: list[dict[str, float]] = []
    spy = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(dict(logs)))
    model.fit(
        *small.data(2, hvd.rank()),
        batch_size=small.ROWS,
        epochs=2,
        verbose=0,
        validation_data=small.data(1, hvd.rank() + 50),
        callbacks=[callbacks.MetricAverageCallback(), spy],
    )
    assert {"loss", "mae", "val_loss", "val_mae"} <= set(seen[0])
    assert_same_on_all_ranks([np.array([epoch[name] for name in sorted(epoch)]) for epoch in seen])


def test_schedule_by_epochs() -> None:
    callback = callbacks.LearningRateScheduleCallback(0.5, lambda epoch: 0.5**epoch, start_epoch=1, end_epoch=3)
    seen, history = rates(callback, epochs=4, steps=2)
    assert seen == [0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.125, 0.125]
    assert history["lr"] == [0.5, 0.25, 0.125, 0.125]


def test_a_constant_multiplies_every_epoch() -> None:
    seen, _ = rates(callbacks.LearningRateScheduleCallback(0.5, 0.5, start_epoch=1), epochs=4, steps=1)
    assert seen == [0.5, 0.5, 0.25, 0.125]


def test_schedule_by_batches() -> None:
    callback = callbacks.LearningRateScheduleCallback(1.0, lambda epoch: 1 + epoch, staircase=False)
    seen, _ = rates(callback, epochs=2)
    assert seen == pytest.approx([1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75])


def test_warm_up_ends_with_the_full_rate(capsys: pytest.CaptureFixture[str]) -> None:
    size = hvd.size()
    callback = callbacks.LearningRateWarmupCallback(initial_lr=0.5, warmup_epochs=2, verbose=1)
    seen, history = rates(callback, epochs=3)
    ends = [(batch + 1) / 4 for batch in range(8)]  # in epochs
    expected = [0.5 * (end * (size - 1) / 2 + 1) / size for end in ends] + [0.5] * 4
    assert seen == pytest.approx(expected)
    assert history["lr"][1] == pytest.approx(0.5)
    assert ("Epoch 2: finished gradual learning rate warmup to 0.5." in capsys.readouterr().out) == (hvd.rank() == 0)


def test_schedule_needs_a_rate_and_the_number_of_batches() -> None:
    with pytest.raises(ValueError, match="initial_lr"):
        callbacks.LearningRateScheduleCallback(None, 0.5)
    batches = [small.data(1, 0) for _ in range(2)]
    shapes = (tf.TensorSpec((small.ROWS, 3)), tf.TensorSpec((small.ROWS, 1)))
    unknown = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=shapes)
    with pytest.raises(ValueError, match="steps_per_epoch"):
        rates(callbacks.LearningRateWarmupCallback(0.5), epochs=1, dataset=unknown)
    callback = callbacks.LearningRateWarmupCallback(0.5, warmup_epochs=1, steps_per_epoch=2)
    assert rates(callback, epochs=1, dataset=unknown)[0][1] == pytest.approx(0.5)


def test_momentum_follows_the_rate() -> None:
    """What a step adds to a variable is momentum times the step before, scaled to the new rate."""
    makers = [lambda: optimizers.SGD(1.0, momentum=0.5)]
    if not KERAS_3:
        makers.append(lambda: optimizers.legacy.SGD(1.0, momentum=0.5))
    for make in makers:
        optimizer = make()
        values = run_two_rates(optimizer, momentum_correction=True)
        # gradient 1: steps -1; then rate 0.1: -(0.1 + 0.5 * 0.1 * 1)
        assert values == pytest.approx([-1.0, -1.15], abs=1e-6)
        assert run_two_rates(make(), momentum_correction=False) == pytest.approx([-1.0, -1.6], abs=1e-6)
        assert float(optimizer.momentum) == 0.5, "it is restored"


def run_two_rates(optimizer: Any, momentum_correction: bool) -> list[float]:
    dense = small.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([small.layers.Input((1,)), dense])
    model.compile(optimizer=optimizer, loss=lambda targets, outputs: outputs)
    schedule = callbacks.LearningRateScheduleCallback(
        1.0, lambda epoch: 0.1**epoch, momentum_correction=momentum_correction
    )
    values: list[float] = []
    spy = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: values.append(float(model.get_weights()[0].item()))
    )
    ones = np.ones((1, 1), np.float32)
    model.fit(ones, ones, epochs=2, verbose=0, callbacks=[schedule, spy])
    return values


def test_best_model(tmp_path: Path) -> None:
    callback = callbacks.BestModelCheckpoint(monitor="loss")
    assert callback.filepath is None and callback.save_best_only
    callback.filepath = str(tmp_path / "best.keras")
    model = make_model()
    model.compile(optimizer=hvd.DistributedOptimizer(optimizers.SGD(0.01)), loss="mse")
    model.fit(*small.data(2, hvd.rank()), epochs=2, verbose=0, callbacks=[callback])
    assert hvd.load_model(callback.filepath).count_params() == model.count_params()
    assert callbacks.BestModelCheckpoint(save_weights_only=True).save_weights_only
