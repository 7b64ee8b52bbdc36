"""TensorFlow's processes: how they load the operations, what happens if that does not work, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import ROOT, Ranks, run_ranks, say

pytest.importorskip("tensorflow")

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a process without a launcher makes of the code."""
    outside = {key: value for key, value in os.environ.items() if not key.startswith("HOROVOD_")}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**outside, **QUIET, "PYTHONPATH": str(ROOT / "python"), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


REPORT = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import horovod.tensorflow as hvd
import tensorflow as tf
hvd.init()
given = tf.Variable(3.0)
with tf.GradientTape() as tape:
    reduced = hvd.allreduce(given * given, op=hvd.Sum)
assert float(tape.gradient(reduced, given)) == 6.0
print(hvd.native_ops.is_fallback(), [str(each.message) for each in caught if each.category is RuntimeWarning])
"""


def test_operations_are_those_of_the_library(tmp_path: Path) -> None:
    """The first process tries them out and keeps what came of it."""
    done = python(REPORT, XDG_CACHE_HOME=str(tmp_path))
    assert done.stdout == "False []\n", done.stderr
    (kept,) = [file for file in (tmp_path / "horovod").iterdir() if file.suffix != ".lock"]
    assert kept.read_text() == "passed"
    kept.write_text("it ends with SIGSEGV")  # as with a TensorFlow that changed
    done = python(REPORT, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True "), done
    assert done.stdout.count("slower operations") == done.stdout.count("it ends with SIGSEGV") == 1


def test_fallback_on_demand() -> None:
    done = python(REPORT, HOROVOD_TENSORFLOW_FALLBACK="1")
    assert done.stdout == "True []\n", done.stderr


SELF_TEST = """
from horovod.tensorflow import self_test
self_test._SCRIPT = {script!r}
print(repr(self_test.run("library")))
"""


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("print('loaded', flush=True); import os; os.abort()", "'it ends with SIGABRT'"),
        ("print('loaded'); raise RuntimeError('no')", "'it fails: RuntimeError: no'"),
        ("print('loaded'); print('wrong results')", "'wrong results'"),
        ("raise RuntimeError('no TensorFlow')", "''"),
    ],
)
def test_self_test_survives_what_it_finds(script: str, wanted: str) -> None:
    done = python(SELF_TEST.format(script=script), HOROVOD_TENSORFLOW_FALLBACK="1")
    assert done.stdout == wanted + "\n", done.stderr


def leave_something_pending() -> None:
    import threading

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    name = f"alone.{hvd.rank()}"
    function = tf.function(lambda: hvd.allreduce(tf.ones([4]), name=name))
    threading.Thread(target=function, daemon=True).start()
    threading.Thread(target=lambda: hvd.allgather(tf.ones([4]), name=f"{name}.eager"), daemon=True).start()
    signal.sigwait([signal.SIGUSR1])
    say("leaves")


def test_a_process_ends_with_operations_pending() -> None:
    with Ranks(2, leave_something_pending, env=QUIET | {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1"}, limit=200) as ranks:
        for rank in range(2):  # the stall report: both operations of both ranks are pending
            ranks.wait_for_error(0, f"allreduce alone.{rank}")
            ranks.wait_for_error(0, f"allgather alone.{rank}.eager")
        for rank in range(2):
            ranks.send(rank, signal.SIGUSR1)
        for ended in ranks.wait():
            assert ended.code == 0, ended.errors
            assert ended.lines == ["leaves"]


def many_steps(count: int) -> None:
    import gc
    import os

    import tensorflow as tf

    import horovod.tensorflow as hvd

    def memory() -> int:
        gc.collect()
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    variables = [tf.Variable(tf.ones([5000])) for _ in range(20)]

    @tf.function
    def step() -> tf.Tensor:
        reduced = hvd.grouped_allreduce([each * 1.0 for each in variables[:10]])
        reduced += [hvd.allreduce(each * 1.0) for each in variables[10:]]
        return tf.add_n(reduced) + hvd.allgather(tf.ones([2500])) + hvd.alltoall(tf.ones([5000]))

    def one_round() -> None:
        step()
        hvd.allreduce(variables[0])
        hvd.allgather(tf.ones([2500]), name="named")
        hvd.reducescatter(tf.ones([5000]))

    hvd.init()
    for _ in range(count // 2):
        one_round()
    before = memory()
    for _ in range(count):
        one_round()
    grown = memory() - before
    assert grown < 6 << 20, grown  # a leak of one tensor of 20 kB in each round would be more
    say("done")


def test_nothing_grows() -> None:
    ended = run_ranks(2, many_steps, 400, env={**QUIET, "OMP_NUM_THREADS": "1"}, limit=300)
    assert all(each.lines == ["done"] for each in ended)
