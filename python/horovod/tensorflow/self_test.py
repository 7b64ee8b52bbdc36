"""Tests once per version of TensorFlow, in a separate process, whether a kernel may finish from another thread.

The graph operations rely on how TensorFlow stores a callback (src/adapters/tensorflow/done_callback.h). Should a future
version do it differently, Horovod uses slower operations.
"""

from __future__ import annotations

import tensorflow as tf

from horovod.common.self_test import PASSED, SelfTest

# The first line reports that TensorFlow and the library are loaded: earlier failures prove nothing.
_SCRIPT = """
import sys
sys.path[:] = sys.argv[2:]
import tensorflow as tf
ops = tf.load_op_library(sys.argv[1])
print("loaded", flush=True)
many = tf.function(lambda x: tf.add_n([ops.horovod_self_test(x) for _ in range(100)]))
results = [int(ops.horovod_self_test(7)), int(many(tf.constant(7))), int(many(tf.constant(5)))]
print("passed" if results == [7, 700, 500] else f"wrong results {results}", flush=True)
"""


def _test(library: str) -> SelfTest:
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    return SelfTest(f"tensorflow-{tf.__version__}", library, _SCRIPT, quiet)


def run(library: str) -> str:
    """Return what is wrong, PASSED if nothing is, or an empty text if that cannot be found out."""
    return _test(library).run()


def result(library: str) -> str:
    """As `run`, but only the first time."""
    return _test(library).result()


__all__ = ["PASSED", "result", "run"]
