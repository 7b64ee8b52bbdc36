#!/usr/bin/env python3
"""make test-gpu: runs the suites of this folder on the GPUs of this machine, and prints a report that can be pasted.

Without a GPU it says why, and succeeds.
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from ctypes import byref, c_int
from pathlib import Path

HERE = Path(__file__).resolve().parent


def find_gpus() -> tuple[list[str], str]:
    """The names of the GPUs; or none, and why."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return [], f"no CUDA driver ({error})"
    code = cuda.cuInit(0)
    if code != 0:
        return [], f"no CUDA device (cuInit returned {code})"
    count = c_int()
    cuda.cuDeviceGetCount(byref(count))
    names = []
    for ordinal in range(count.value):
        device, name = c_int(), ctypes.create_string_buffer(96)
        cuda.cuDeviceGet(byref(device), ordinal)
        cuda.cuDeviceGetName(name, len(name), device)
        names.append(name.value.decode())
    return names, "no CUDA device (cuDeviceGetCount says 0)" if not names else ""


def main() -> int:
    names, reason = find_gpus()
    print(f"machine: {platform.platform()}, Python {platform.python_version()}")
    if not names:
        print(f"skipped: {reason}")
        return 0
    for ordinal, name in enumerate(names):
        print(f"GPU {ordinal}: {name}")
    sys.path.insert(0, str(HERE.parents[1] / "python"))
    import horovod.numpy as hvd

    print(f"NCCL: {hvd.nccl_built()}")
    env = os.environ | {"HVD_TEST_GPU": "1", "HOROVOD_TEST_GPUS": str(len(names))}
    command = [sys.executable, "-m", "pytest", "-ra", "-q", str(HERE)]
    return subprocess.run(command, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
