"""Elastic states: what they keep, how they take over rank 0's, and which errors lead to a new try."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small
import tensorflow as tf
from small import assert_close, assert_same_on_all_ranks, keras, make_model, optimizers

import horovod.tensorflow as hvd_tf
import horovod.tensorflow.keras as hvd
from horovod._keras.variables import variables_of
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.tensorflow.elastic import TensorFlowKerasState, TensorFlowState


def compiled_model(seed: int = 1, optimizer: Any = None) -> Any:
    model = make_model(seed)
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer or optimizers.Adam(0.1)), loss="mse")
    return model


def everything(model: Any) -> list[np.ndarray]:
    return [*model.get_weights(), *(np.array(each.numpy()) for each in variables_of(model.optimizer))]


def train(model: Any, callbacks: Any = None, epochs: int = 1, batches: int = 2) -> None:
    inputs, targets = small.data(batches, hvd.rank())
    model.fit(inputs, targets, batch_size=small.ROWS, epochs=epochs, verbose=0, callbacks=callbacks)


def test_save_and_restore() -> None:
    model = compiled_model()
    state: Any = hvd.elastic.KerasState(model, batch=1, epoch=2)
    start = everything(model)
    train(model)
    state.batch = 7
    state.restore()
    assert_close(everything(model), start)
    assert (state.batch, state.epoch) == (1, 2)

    train(model)
    state.batch = 9
    state.save()
    saved = everything(model)
    train(model)
    state.restore()
    assert_close(everything(model), saved)
    assert state.batch == 9


def test_sync_takes_over_rank_0() -> None:
    model = compiled_model(seed=hvd.rank())
    state: Any = TensorFlowKerasState(model, batch=hvd.rank(), epoch=10 * hvd.rank())
    if hvd.rank() == 0:  # it has trained already, a new worker has not
        for variable in variables_of(model.optimizer):
            variable.assign(variable + tf.cast(1, variable.dtype))
    state.sync()
    assert_same_on_all_ranks(everything(model))
    assert (state.batch, state.epoch) == (0, 0)
    synced = everything(model)
    train(model)
    state.restore()
    assert_close(everything(model), synced)


def test_sync_takes_over_the_rank_that_is_furthest() -> None:
    """Variables and plain values come from the same rank, whichever it is."""
    last = hvd.size() - 1
    model = compiled_model(seed=hvd.rank())
    state: Any = TensorFlowKerasState(model, batch=hvd.rank())
    value = tf.Variable(1.0 * hvd.rank())
    other: Any = TensorFlowState([value], batch=hvd.rank())
    before = everything(model)
    state.sync_root = other.sync_root = last
    state.sync()
    other.sync()
    if hvd.rank() == last:
        assert_close(everything(model), before)
    assert_same_on_all_ranks(everything(model))
    assert (state.batch, other.batch, float(value)) == (last, last, last)


def test_a_file_holds_the_model_and_its_optimizer(tmp_path: Path) -> None:
    """And not only the plain values: otherwise a job would continue at epoch 4 with weights of the first."""
    model = compiled_model()
    state: Any = TensorFlowKerasState(model, epoch=0)
    if hvd.rank() != 0:
        state._rank = lambda: 0  # each has its own file here
    state.save_to(tmp_path / "commit")
    train(model)
    state.epoch = 4
    state.commit()
    kept = everything(model)
    train(model)
    state.finish_saving()

    later = compiled_model(seed=5)
    resumed: Any = TensorFlowKerasState(later, epoch=0)
    assert resumed.resume_from(tmp_path / "commit")
    assert_close(everything(later), kept)
    assert resumed.epoch == 4
    train(later)
    resumed.restore()
    assert_close(everything(later), kept)

    wider = keras.Sequential([small.layers.Input((3,)), small.layers.Dense(7)])
    wider.compile(optimizer=optimizers.SGD(0.1), loss="mse")
    with pytest.raises(ValueError, match="another script"):
        TensorFlowKerasState(wider, epoch=0).resume_from(tmp_path / "commit")


def test_a_file_holds_variables(tmp_path: Path) -> None:
    variable = tf.Variable([1.0, 2.0])
    state: Any = TensorFlowState([variable], step=3)
    state.save_to(tmp_path / "commit")
    state._rank = lambda: 0
    state.commit()
    variable.assign([5.0, 6.0])
    state.finish_saving()
    later: Any = TensorFlowState([tf.Variable([0.0, 0.0])], step=0)
    assert later.resume_from(tmp_path / "commit")
    assert (later.variables[0].numpy().tolist(), later.step) == ([1.0, 2.0], 3)


def test_local_sums_end_with_the_world() -> None:
    """A rank that joins has none; with different counts the ranks would wait for each other forever."""
    model = make_model()
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.1), backward_passes_per_step=2)
    model.compile(optimizer=optimizer, loss="mse")
    state = TensorFlowKerasState(model)
    train(model, batches=2)
    if hvd.rank() > 0:  # the survivors are in the middle of a step
        train(model, batches=1)
    state.on_reset()
    assert int(model.optimizer._agg_helper.counter) == 0
    state.sync()
    train(model, batches=2)
    assert_same_on_all_ranks(model.get_weights())


def test_model_without_variables_is_refused() -> None:
    model = keras.Sequential([small.layers.Dense(1)])
    model.compile(optimizer=optimizers.SGD(0.1), loss="mse")
    with pytest.raises(ValueError, match="variables"):
        hvd.elastic.KerasState(model)


def test_state_of_variables() -> None:
    variables = [tf.Variable([1.0 + hvd.rank()]), tf.Variable(hvd.rank())]
    state: Any = TensorFlowState(variables, step=hvd.rank())
    state.sync()
    assert [each.numpy() for each in variables] == [[1.0], 0] and state.step == 0
    variables[0].assign([5.0])
    state.step = 4
    state.save()
    variables[0].assign([6.0])
    state.step = 5
    state.restore()
    assert variables[0].numpy() == [5.0] and state.step == 4


def test_state_of_a_graph() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("value", initializer=1.0 + hvd.rank(), use_resource=True)
        session.run(tf.compat.v1.global_variables_initializer())
        state: Any = TensorFlowState(session=session, step=hvd.rank())
        state.sync()
        assert session.run(variable) == 1.0 and state.step == 0
        session.run(variable.assign(3.0))
        state.restore()
        assert session.run(variable) == 1.0
        session.run(variable.assign(2.0 + hvd.rank()))
        state.sync_root = hvd.size() - 1  # by then ranks may have had other roots: a new one has none
        if hvd.rank() == 0:
            state._broadcasts.clear()
        state.sync()
        assert session.run(variable) == 1.0 + hvd.size()


class Commits:
    """Stands for a state: counts commits."""

    def __init__(self, **values: Any) -> None:
        self.commits = 0
        self.__dict__.update(values)

    def commit(self) -> None:
        self.commits += 1


@pytest.mark.parametrize(("per_commit", "expected"), [(1, 10), (2, 6), (3, 4)])
def test_commits(per_commit: int, expected: int) -> None:
    state: Any = Commits()
    train(compiled_model(), [hvd.elastic.CommitStateCallback(state, per_commit)], epochs=2, batches=4)
    assert state.commits == expected


def test_batches_and_epochs_are_kept() -> None:
    state: Any = Commits(batch=0, epoch=5)
    seen: list[tuple[int, int]] = []
    spy = keras.callbacks.LambdaCallback(
        on_batch_end=lambda batch, logs: seen.append((state.epoch, state.batch)),
        on_epoch_end=lambda epoch, logs: seen.append((state.epoch, state.batch)),
    )
    updates = [hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.UpdateEpochStateCallback(state)]
    train(compiled_model(), [*updates, spy], epochs=2)
    assert seen == [(5, 0), (5, 1), (6, 0), (6, 0), (6, 1), (7, 0)]
    train(compiled_model(), [*updates, spy], epochs=1)
    assert state.epoch == 8


def test_first_epoch_after_a_reset_is_shorter() -> None:
    state: Any = Commits(batch=3)
    batches: list[list[int]] = []
    spy = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: batches.append([]),
        on_batch_end=lambda batch, logs: batches[-1].append(state.batch),
    )
    train(compiled_model(), [hvd.elastic.UpdateBatchStateCallback(state), spy], epochs=2, batches=5)
    assert batches == [[3, 4], [0, 1, 2, 3, 4]]


NAMES = (
    "Allreduce GroupedAllreduce Allgather GroupedAllgather Broadcast BroadcastInplaceResource Alltoall Reducescatter"
)


class Recorded(TensorFlowState):
    """A state that records the calls to it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        super().__init__([])

    def sync(self) -> None:
        self.calls.append("sync")

    def restore(self) -> None:
        self.calls.append("restore")


@pytest.fixture
def no_new_world(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    formed: list[str] = []
    monkeypatch.setattr("horovod.tensorflow.elastic.shutdown", lambda: formed.append("shutdown"))
    monkeypatch.setattr("horovod.tensorflow.elastic.init", lambda: formed.append("init"))
    return formed


@pytest.mark.parametrize("name", [*NAMES.split(), "Join", "GroupedReducescatter"])
def test_failed_collectives_are_tried_again(no_new_world: list[str], name: str) -> None:
    errors = [
        tf.errors.UnknownError(None, None, f"{{{{node Horovod{name}_3}}}} rank 1 is lost"),
        tf.errors.AbortedError(None, None, f"Horovod{name}: rank 1 is lost"),
        HorovodInternalError("rank 1 is lost"),
        HostsUpdatedInterrupt(skip_sync=True),
    ]

    @hvd.elastic.run
    def train(state: Any) -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    state = Recorded()
    assert train(state) == "done"
    assert state.calls == ["sync", "restore", "sync", "restore", "sync", "restore", "sync"]
    assert no_new_world == ["shutdown", "init"] * 4


def test_other_errors_are_not_swallowed(no_new_world: list[str]) -> None:
    for error in (
        tf.errors.UnknownError(None, None, "the disk is full"),
        tf.errors.FailedPreconditionError(None, None, "HorovodAllreduce: shapes differ"),
        KeyError("batch"),
    ):

        @hvd.elastic.run
        def train(state: Any, error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error)):
            train(Recorded())
    assert no_new_world == []


def test_error_of_a_real_collective_after_shutdown_is_recognised() -> None:
    """A function that was traced before meets a world that ended."""
    hvd_tf.allreduce(tf.ones([2]), name="warm")
    tries: list[int] = []

    @tf.function
    def step() -> Any:
        return hvd_tf.allreduce(tf.ones([2]), name="in_function", op=hvd_tf.Sum)

    @hvd.elastic.run
    def train(state: Any) -> float:
        tries.append(len(tries))
        if len(tries) == 1:
            raise tf.errors.UnknownError(None, None, "HorovodAllreduce failed")
        return float(step()[0])

    state: Any = TensorFlowState([tf.Variable(1.0)])
    assert train(state) == hvd.size()
    assert tries == [0, 1]
