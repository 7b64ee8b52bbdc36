"""The driver library under CUDA's names: libcuda, or HIP's with HVD_TEST_HIP=1."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_int
from typing import Any

_OWN_NAMES = {"cuMemAlloc_v2": "hipMalloc", "cuMemFree_v2": "hipFree"}


class _Hip:
    """HIP has a current device for each thread where CUDA has a stack of contexts. A context is the ordinal plus 1."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libamdhip64.so.6")
        self._before: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, _OWN_NAMES.get(name, f"hip{name[2:].removesuffix('_v2')}"))

    def cuDevicePrimaryCtxRetain(self, context: Any, device: c_int) -> int:  # noqa: N802
        context._obj.value = device.value + 1
        return 0

    def cuDevicePrimaryCtxRelease_v2(self, _device: c_int) -> int:  # noqa: N802
        return 0

    def cuCtxPushCurrent_v2(self, context: Any) -> int:  # noqa: N802
        device = c_int()
        self._library.hipGetDevice(byref(device))
        self._before.append(device.value)
        return int(self._library.hipSetDevice(context.value - 1))

    def cuCtxPopCurrent_v2(self, _context: Any) -> int:  # noqa: N802
        return int(self._library.hipSetDevice(self._before.pop()))


def open_driver() -> Any:
    """The library, whose functions are called by their names in CUDA."""
    return _Hip() if os.environ.get("HVD_TEST_HIP") == "1" else ctypes.CDLL("libcuda.so.1")
