"""Training with a distributed optimizer gives what one process gets with the batches of all ranks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import small
import tensorflow as tf
from small import KERAS_3, assert_close, assert_same_on_all_ranks, fit, keras, make_model, optimizers, trained_alone

import horovod.keras
import horovod.tensorflow.keras as hvd

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: optimizers.Adam(0.01),
    "clipped": lambda: optimizers.SGD(0.5, global_clipnorm=0.1),
    "averaged": lambda: optimizers.SGD(0.05, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3),
}
if not KERAS_3:
    OPTIMIZERS["legacy sgd"] = lambda: optimizers.legacy.SGD(0.05, momentum=0.9)
    OPTIMIZERS["legacy adam"] = lambda: optimizers.legacy.Adam(0.01)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
def test_as_one_process_with_the_full_batch(make: Callable[[], Any]) -> None:
    model = make_model()
    fit(model, hvd.DistributedOptimizer(make()))
    assert_close(model.get_weights(), trained_alone(make))
    assert_same_on_all_ranks(model.get_weights())


@pytest.mark.parametrize("compiled", [{"run_eagerly": True}, {"steps_per_execution": 2}], ids=["eager", "two steps"])
def test_however_steps_are_run(compiled: dict[str, Any]) -> None:
    model = make_model()
    fit(model, hvd.DistributedOptimizer(OPTIMIZERS["sgd"]()), **compiled)
    assert_close(model.get_weights(), trained_alone(OPTIMIZERS["sgd"]))


def test_the_sample_of_the_tutorials_runs_unchanged() -> None:
    opt = tf.optimizers.Adam(0.001 * hvd.size())
    opt = hvd.DistributedOptimizer(opt)
    model = keras.Sequential([small.layers.Dense(4, activation="relu"), small.layers.Dense(3, activation="softmax")])
    model.compile(
        loss="sparse_categorical_crossentropy",
        optimizer=opt,
        metrics=["accuracy"],
        experimental_run_tf_function=False,
    )
    keras.utils.set_random_seed(hvd.rank())
    dataset = tf.data.Dataset.from_tensor_slices((np.random.rand(16, 6).astype("float32"), np.arange(16) % 3)).batch(4)
    history = model.fit(
        dataset.repeat(),
        steps_per_epoch=4,
        epochs=2,
        verbose=0,
        validation_data=dataset,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.001 * hvd.size(), warmup_epochs=2, verbose=1),
        ],
    )
    assert_same_on_all_ranks(model.get_weights())
    assert_same_on_all_ranks([np.array(history.history[name]) for name in ("loss", "val_loss", "val_accuracy")])


def test_train_on_batch() -> None:
    model = make_model()
    model.compile(optimizer=hvd.DistributedOptimizer(optimizers.SGD(0.1)), loss="mse")
    model.train_on_batch(*small.data(1, hvd.rank()))
    assert_close(model.get_weights(), trained_alone(lambda: optimizers.SGD(0.1), batches=1, epochs=1))


class OwnStep(keras.Model):  # type: ignore[misc]
    """Reads gradients off a tape of its own, as custom training steps do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make_model()

    def call(self, inputs: Any) -> Any:
        return self.inner(inputs)

    def train_step(self, batch: Any) -> dict[str, Any]:
        inputs, targets = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(inputs, training=True) - targets) ** 2)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name != "clipped"])
def test_a_train_step_of_ones_own(name: str) -> None:
    model = OwnStep()
    model.compile(optimizer=hvd.DistributedOptimizer(OPTIMIZERS[name]()))
    model.fit(*small.data(4, hvd.rank()), batch_size=small.ROWS, epochs=2, shuffle=False, verbose=0)
    assert_close(model.inner.get_weights(), trained_alone(OPTIMIZERS[name]))


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name not in ("clipped", "averaged")])
def test_several_passes_are_one_step(name: str, average: bool) -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        OPTIMIZERS[name](), backward_passes_per_step=2, average_aggregated_gradients=average
    )
    before = model.get_weights()
    fit(model, optimizer, batches=1, epochs=1)
    assert_close(model.get_weights(), before)
    assert int(model.optimizer._agg_helper.counter) == 1
    assert int(model.optimizer.iterations) == 1
    model.fit(*small.data(1, hvd.rank()), batch_size=small.ROWS, epochs=3, shuffle=False, verbose=0)
    assert int(model.optimizer._agg_helper.counter) == 0
    assert int(model.optimizer.iterations) == 4

    reference = make_model()
    alone = OPTIMIZERS[name]()
    for _ in range(2):  # the same batch twice: its gradient, or twice that
        with tf.GradientTape() as tape:
            inputs, targets = small.all_data(1, hvd.size())
            loss = tf.reduce_mean((reference(inputs) - targets) ** 2) * (1 if average else 2)
        grads = tape.gradient(loss, reference.trainable_variables)
        alone.apply_gradients(zip(grads, reference.trainable_variables, strict=True))
        if "adam" in name:
            alone.iterations.assign_add(0)
    if "adam" not in name:  # Adam corrects its bias by the number of steps, which counts every pass
        assert_close(model.get_weights(), reference.get_weights())
    assert_same_on_all_ranks(model.get_weights())


@pytest.mark.parametrize(
    "options",
    [
        {"groups": 2},
        {"gradient_predivide_factor": 2.0},
        {"device_dense": "/cpu:0", "name": "mine"},
        {"compression": hvd.Compression.fp16},
    ],
    ids=["groups", "predivide", "device", "fp16"],
)
def test_options_do_not_change_the_average(options: dict[str, Any]) -> None:
    model = make_model()
    fit(model, hvd.DistributedOptimizer(OPTIMIZERS["sgd"](), **options), epochs=1)
    tolerance = 2e-2 if "compression" in options else 2e-4
    for one, other in zip(model.get_weights(), trained_alone(OPTIMIZERS["sgd"], epochs=1), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def test_groups_of_variables() -> None:
    model = make_model()
    groups = [model.layers[0].trainable_variables, model.layers[1].trainable_variables]
    fit(model, hvd.DistributedOptimizer(OPTIMIZERS["sgd"](), groups=groups))
    assert_close(model.get_weights(), trained_alone(OPTIMIZERS["sgd"]))


def test_sum_is_the_average_times_size() -> None:
    model = make_model()
    fit(model, hvd.DistributedOptimizer(optimizers.SGD(0.02), op=hvd.Sum), epochs=1)
    assert_close(model.get_weights(), trained_alone(lambda: optimizers.SGD(0.02 * hvd.size()), epochs=1))


def test_local_variables_stay_local() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.1))
    optimizer.register_local_var(model.layers[0].kernel)
    fit(model, optimizer, batches=1, epochs=1)

    alone = make_model()
    with tf.GradientTape() as tape:
        inputs, targets = small.data(1, hvd.rank())
        loss = tf.reduce_mean((alone(inputs) - targets) ** 2)
    kernel = alone.layers[0].kernel
    grad = tape.gradient(loss, kernel)
    np.testing.assert_allclose(
        model.layers[0].kernel.numpy(), kernel.numpy() - 0.1 * grad.numpy() / hvd.size(), rtol=1e-4, atol=1e-6
    )
    assert_close(model.get_weights()[1:], trained_alone(lambda: optimizers.SGD(0.1), batches=1, epochs=1)[1:])


def test_a_partial_optimizer_leaves_layers_local() -> None:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([small.layers.Dense(5, activation="tanh"), small.layers.Dense(1)])  # not built yet
    optimizer = horovod.keras.PartialDistributedOptimizer(optimizers.SGD(0.1), local_layers=model.layers[0])
    fit(model, optimizer, batches=2, epochs=1)
    if hvd.size() > 1:
        gathered = hvd.allgather(model.get_weights()[0][None]).numpy()
        assert not np.allclose(gathered[0], gathered[1])
    assert_same_on_all_ranks([model.get_weights()[3] * 0])
    with pytest.raises(ValueError, match="local_layers"):
        horovod.keras.PartialDistributedOptimizer(optimizers.SGD(0.1), local_layers="dense")


def test_ranks_outside_of_the_process_set_train_alone() -> None:
    mine = hvd.add_process_set([0])
    try:
        model = make_model()
        fit(model, hvd.DistributedOptimizer(optimizers.SGD(0.1), process_set=mine), batches=1, epochs=1)
        alone = make_model()
        fit(alone, optimizers.SGD(0.1), batches=1, epochs=1)
        assert_close(model.get_weights(), alone.get_weights())
    finally:
        hvd.remove_process_set(mine)


def test_embeddings_have_sparse_gradients() -> None:
    words = np.arange(8).reshape(4, 2) % (3 + hvd.rank())

    def trained(optimizer: Any, inputs: np.ndarray) -> list[np.ndarray]:
        keras.utils.set_random_seed(2)
        inputs_of_two, embedding = small.layers.Input((2,), dtype="int32"), small.layers.Embedding(8, 3)
        model = keras.Sequential([inputs_of_two, embedding, small.layers.Flatten(), small.layers.Dense(1)])
        model.compile(optimizer=optimizer, loss="mse")
        model.fit(inputs, np.ones((len(inputs), 1)), batch_size=len(inputs), epochs=2, verbose=0)
        return list(model.get_weights())

    everyone = np.concatenate([np.arange(8).reshape(4, 2) % (3 + rank) for rank in range(hvd.size())])
    expected = trained(optimizers.SGD(0.1), everyone)
    for sparse_as_dense in (False, True):
        optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.1), sparse_as_dense=sparse_as_dense)
        assert_close(trained(optimizer, words), expected)


def test_xla_is_switched_off_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    from horovod._keras import hooks

    hooks._say_once.cache_clear()
    model = make_model()
    with caplog.at_level(logging.WARNING, "horovod"):
        fit(model, hvd.DistributedOptimizer(OPTIMIZERS["sgd"]()), jit_compile=True)
        assert not model.jit_compile
        fit(make_model(), hvd.DistributedOptimizer(OPTIMIZERS["sgd"]()), jit_compile=True)
    assert [record.message for record in caplog.records] == [
        "jit_compile is turned off: XLA cannot run Horovod's operations"
    ]
    assert_close(model.get_weights(), trained_alone(OPTIMIZERS["sgd"]))
    plain = make_model()
    plain.compile(optimizer=optimizers.SGD(0.1), loss="mse", jit_compile=True)
    assert plain.jit_compile, "models without Horovod are left alone"


def test_a_function_for_xla_gets_a_clear_error() -> None:
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.1))
    variable = tf.Variable([1.0])

    @tf.function(jit_compile=True)
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = variable**2
        grads = tape.gradient(loss, [variable])
        optimizer.apply_gradients(zip(grads, [variable], strict=True))

    with pytest.raises((ValueError, RuntimeError), match="jit_compile"):
        step()


@pytest.mark.parametrize("scaler_inside", [False, True], ids=["scaler outside", "scaler inside"])
def test_all_ranks_skip_a_step_whose_gradients_overflow_on_one(scaler_inside: bool) -> None:
    scaler = keras.mixed_precision.LossScaleOptimizer
    if scaler_inside:
        optimizer = hvd.DistributedOptimizer(scaler(optimizers.SGD(0.1), initial_scale=4.0))
    else:
        optimizer = scaler(hvd.DistributedOptimizer(optimizers.SGD(0.1)), initial_scale=4.0)
    model = make_model()
    model.compile(optimizer=optimizer, loss="mse")
    inputs, targets = small.data(1, hvd.rank())
    before = model.get_weights()
    bad = inputs * np.inf if hvd.rank() == hvd.size() - 1 else inputs
    model.train_on_batch(bad, targets)
    assert_close(model.get_weights(), before)
    scale = optimizer.dynamic_scale if KERAS_3 else optimizer.loss_scale
    assert float(scale) == 2.0
    model.train_on_batch(inputs, targets)
    assert_close(model.get_weights(), trained_alone(lambda: optimizers.SGD(0.1), batches=1, epochs=1))


def test_mixed_precision() -> None:
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = make_model()
        history = fit(model, hvd.DistributedOptimizer(optimizers.SGD(0.05)), epochs=4)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert_same_on_all_ranks(model.get_weights())


def test_minimize_reduces_once() -> None:
    variable, optimizer = tf.Variable([0.0]), hvd.DistributedOptimizer(optimizers.SGD(1.0), op=hvd.Sum)
    for step in (1, 2):
        optimizer.minimize(lambda: variable * float(hvd.rank() + 1), [variable])
        assert variable.numpy() == [-step * sum(range(1, hvd.size() + 1))]


def test_compute_then_apply_reduces_once() -> None:
    variable, optimizer = tf.Variable([0.0]), hvd.DistributedOptimizer(optimizers.SGD(1.0), op=hvd.Sum)
    total = sum(range(1, hvd.size() + 1))

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = variable * float(hvd.rank() + 1)
        pairs = optimizer._compute_gradients(loss, [variable], tape=tape)
        optimizer.apply_gradients(pairs)
        return pairs[0][0]

    assert step().numpy() == [total]
    assert variable.numpy() == [-total]
    optimizer.apply_gradients([(tf.constant([float(hvd.rank() + 1)]), variable)])
    assert variable.numpy() == [-2 * total], "gradients that come from elsewhere are reduced when they are applied"


def test_ranks_may_call_their_layers_differently() -> None:
    """As when rank 0 has loaded or built other models before."""
    for _ in range(hvd.rank()):
        make_model()
    model = make_model()
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS["sgd"]())
    model.compile(optimizer=optimizer, loss="mse")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(
        *small.data(4, hvd.rank()), batch_size=small.ROWS, epochs=2, shuffle=False, verbose=0, callbacks=callbacks
    )
    assert_close(model.get_weights(), trained_alone(OPTIMIZERS["sgd"]))


def test_two_optimizers_at_once() -> None:
    """As generator and discriminator: of one class, for variables of the same shapes, within one step."""
    variables = [tf.Variable([0.0]), tf.Variable([0.0])]
    both = [hvd.DistributedOptimizer(optimizers.SGD(1.0), op=hvd.Sum) for _ in variables]
    for optimizer, variable in zip(both, variables, strict=True):
        optimizer.build([variable])

    @tf.function
    def step() -> None:
        for factor, optimizer, variable in zip((1.0, 10.0), both, variables, strict=True):
            optimizer.apply_gradients([(tf.constant([factor * (hvd.rank() + 1)]), variable)])

    step()
    total = sum(range(1, hvd.size() + 1))
    assert [float(each[0]) for each in variables] == [-total, -10 * total]
