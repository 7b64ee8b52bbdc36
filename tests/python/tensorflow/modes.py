"""The three ways in which TensorFlow runs operations."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from horovod.tensorflow import native_ops

MODES = ["eager", "function", "session"]
every_mode = pytest.mark.parametrize("mode", MODES)
only_native = pytest.mark.skipif(native_ops.is_fallback(), reason="the operations in Python run one at a time")


def run(mode: str, body: Callable[[], Any]) -> Any:
    """The results of `body`, which makes tensors, as arrays."""
    if mode == "session":
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            fetches = body()
            session.run(tf.compat.v1.global_variables_initializer())
            return session.run(fetches)
    results = tf.function(body)() if mode == "function" else body()
    return tf.nest.map_structure(lambda tensor: np.asarray(tensor.numpy()), results)


def message_of(error: BaseException) -> str:
    """What the error says, without line breaks."""
    return re.sub(r"\s+", " ", str(error))
