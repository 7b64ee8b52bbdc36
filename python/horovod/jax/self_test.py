"""Tests once per jaxlib, in a separate process, whether XLA calls the library as its declarations expect."""

from __future__ import annotations

import jaxlib.version

from horovod.common.self_test import PASSED, SelfTest

# The first line reports that JAX and the library are loaded: earlier failures prove nothing.
_SCRIPT = """
import sys
sys.path[:] = sys.argv[2:]
import ctypes
import jax
import numpy as np
library = ctypes.CDLL(sys.argv[1])
jax.ffi.register_ffi_target("hvd_jax_self_test", jax.ffi.pycapsule(library.hvd_jax_self_test), platform="cpu")
print("loaded", flush=True)
a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(5, dtype=np.int8)
shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype), jax.ShapeDtypeStruct(b.shape, b.dtype)]
call = jax.ffi.ffi_call("hvd_jax_self_test", shapes, has_side_effect=True)
integers = {"kind": 2, "reduce_op": 0, "process_set": 0, "root_rank": 7}
attributes = {name: np.int64(value) for name, value in integers.items()}
attributes |= {"prescale_factor": np.float64(0.5), "postscale_factor": np.float64(1.0)}
attributes |= {"verb": "test", "names": "a\\nbc", "groups": "1,1", "splits": "3,45"}
x, y = jax.jit(lambda x, y: call(x, y, **attributes))(a, b)
print("passed" if (x == a).all() and (y == b).all() else f"wrong results {x} {y}", flush=True)
"""


def result(library: str) -> str:
    """Return the error, PASSED on success, or an empty text if it cannot be determined."""
    name = f"jaxlib-{jaxlib.version.__version__}"
    return SelfTest(name, library, _SCRIPT, {"JAX_PLATFORMS": "cpu"}).result()


__all__ = ["PASSED", "result"]
