"""The errors that users and elastic training get."""

from __future__ import annotations

import pytest
import tensorflow as tf
from modes import MODES, message_of, only_native, run

import horovod.tensorflow as hvd
from horovod.common.process_sets import ProcessSet

every_mode = pytest.mark.parametrize("mode", MODES)


@only_native
@every_mode
def test_ranks_that_disagree(mode: str) -> None:
    """All ranks get an error that names the operation; and the next operation works."""
    with pytest.raises(tf.errors.FailedPreconditionError) as caught:
        run(mode, lambda: hvd.allreduce(tf.ones([2 + hvd.rank()]), name="disagreement"))
    assert "HorovodAllreduce" in message_of(caught.value)
    assert "disagreement" in message_of(caught.value)
    with pytest.raises(tf.errors.FailedPreconditionError):
        dtype = tf.float32 if hvd.rank() == 0 else tf.float64
        run(mode, lambda: hvd.broadcast(tf.ones([2], dtype), 0, name="types"))
    assert run(mode, lambda: hvd.allreduce(tf.ones([2]), name="disagreement", op=hvd.Sum)).tolist() == [hvd.size()] * 2


@every_mode
def test_bad_splits(mode: str) -> None:
    for splits in ([1] * (hvd.size() + 1), [5] * hvd.size(), [[1] * hvd.size()], [-1] * hvd.size()):
        with pytest.raises(tf.errors.InvalidArgumentError):
            run(mode, lambda splits=splits: hvd.alltoall(tf.ones([hvd.size()]), splits=splits))
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(mode, lambda: hvd.alltoall(tf.ones([hvd.size() + 1])))


@every_mode
def test_bad_root(mode: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(mode, lambda: hvd.broadcast(tf.ones([2]), hvd.size()))


@only_native
@every_mode
def test_scalars_that_have_no_rows(mode: str) -> None:
    errors = (ValueError, tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError)
    for verb in (hvd.allgather, hvd.alltoall, hvd.reducescatter):
        with pytest.raises(errors):
            run(mode, lambda verb=verb: verb(tf.constant(1.0)))


@only_native
@every_mode
def test_reducescatter_has_two_reductions_only(mode: str) -> None:
    with pytest.raises(tf.errors.AbortedError) as caught:
        run(mode, lambda: hvd.reducescatter(tf.ones([hvd.size()]), op=hvd.Max))
    assert "HorovodReducescatter" in message_of(caught.value)


@every_mode
def test_not_a_member(mode: str) -> None:
    others = hvd.add_process_set([0])
    try:
        if hvd.rank() == 0:
            assert run(mode, lambda: hvd.allreduce(tf.constant(2.0), process_set=others)) == 2.0
        else:
            with pytest.raises(tf.errors.InvalidArgumentError):
                run(mode, lambda: hvd.allreduce(tf.constant(2.0), process_set=others))
    finally:
        hvd.remove_process_set(others)


def test_unknown_process_set() -> None:
    with pytest.raises(ValueError):
        hvd.allreduce(tf.constant(1.0), process_set=ProcessSet([0]))
    made_up = ProcessSet([0])
    made_up.process_set_id = 99
    with pytest.raises(ValueError):
        hvd.allgather(tf.ones([1]), process_set=made_up)
    with pytest.raises(tf.errors.InvalidArgumentError):
        hvd.size_op(99)


def test_xla_is_refused_in_words() -> None:
    for verb in (hvd.allreduce, hvd.allgather, lambda x: hvd.broadcast(x, 0), hvd.reducescatter):
        with pytest.raises(RuntimeError, match="jit_compile=False"):
            tf.function(verb, jit_compile=True)(tf.ones([2]))


def test_xla_around_a_function_is_refused_too() -> None:
    inner = tf.function(hvd.allreduce)
    with pytest.raises(RuntimeError, match="jit_compile=False"):
        tf.function(lambda x: inner(x) + 1, jit_compile=True)(tf.ones([2]))


@only_native
def test_failures_that_elastic_training_recovers_from(numbered_anew: None) -> None:
    """Shut down while an operation waits: UnknownError, with the operation's name."""
    function = tf.function(lambda: hvd.allreduce(tf.ones([2]), name="left alone"))
    if hvd.rank() == 0:
        with pytest.raises(tf.errors.UnknownError) as caught:
            function()
        assert "HorovodAllreduce" in message_of(caught.value)
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
