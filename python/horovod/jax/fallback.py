"""Collectives as callbacks from XLA to Python, where the library's custom calls cannot be used. Same results, slower.

Thread rule: any thread; the callback runs in one of XLA's.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback

from horovod.jax import eager
from horovod.jax.call import Call
from horovod.jax.errors import MARK, MARK_OF_ARGUMENTS


def run(*arrays: Any, call: Call) -> list[Any]:
    """Run the collective when the program runs."""
    shapes = call.result_shapes([each.shape for each in arrays])
    results = [jax.ShapeDtypeStruct(shape, each.dtype) for shape, each in zip(shapes, arrays, strict=True)]

    def work(*values: Any) -> list[np.ndarray[Any, Any]]:
        try:
            found = [np.asarray(each) for each in eager.run_on_host(call, [np.asarray(value) for value in values])]
        except ValueError as error:
            raise ValueError(f"{MARK_OF_ARGUMENTS}{error}") from None
        except RuntimeError as error:
            raise RuntimeError(f"{MARK}{error}") from None
        for value, expected in zip(found, results, strict=True):
            if value.shape != expected.shape:
                raise ValueError(
                    f"{MARK_OF_ARGUMENTS}{call.verb} gave the shape {value.shape}, but {expected.shape} was "
                    "compiled: inside jit all ranks need the same number of rows; call it outside jit"
                )
        return found

    outputs: list[Any] = io_callback(work, results, *arrays, ordered=False)
    return outputs
