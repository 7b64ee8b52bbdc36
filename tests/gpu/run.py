#!/usr/bin/env python3
"""make test-gpu: runs the probes and the suites of this folder on the GPUs of this machine, and prints a report.

Without a GPU it says why, and succeeds. One GPU is enough for the probes and for ranks one by one, two for the rest.
These are the suites that make test runs on the stand-in, except for cases that ask for faults. So a difference is a
mistake of the stand-in. The report can be pasted into an issue.
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
ROOT = HERE.parents[1]
PROBES = ROOT / "build" / "release" / "tests" / "cpp" / "gpu_probes"


def find_gpus() -> tuple[list[str], int, str]:
    """The names of the GPUs and the version of the driver; or none, and why."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return [], 0, f"no CUDA device (cuInit cannot be called: {error})"
    if hasattr(cuda, "hvd_standin_marker"):
        return [], 0, "no CUDA device (libcuda.so.1 is the stand-in for tests)"
    code = cuda.cuInit(0)
    if code != 0:
        return [], 0, f"no CUDA device (cuInit returned {code})"
    count, version = c_int(), c_int()
    cuda.cuDeviceGetCount(byref(count))
    cuda.cuDriverGetVersion(byref(version))
    names = []
    for ordinal in range(count.value):
        device, name = c_int(), ctypes.create_string_buffer(96)
        cuda.cuDeviceGet(byref(device), ordinal)
        cuda.cuDeviceGetName(name, len(name), device)
        names.append(name.value.decode())
    return names, version.value, "" if names else "no CUDA device (cuDeviceGetCount says 0)"


def version_of(module: str) -> str:
    command = [sys.executable, "-c", f"import {module}; print({module}.__version__)"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout.strip() or "not installed"


def run(what: str, command: list[str], env: dict[str, str]) -> bool:
    print(f"-- {what}", flush=True)
    code = subprocess.run(command, env=env, cwd=ROOT, check=False).returncode
    print(f"-- {what}: {'passed' if code == 0 else f'FAILED, exit code {code}'}", flush=True)
    return code == 0


def main() -> int:
    names, driver, reason = find_gpus()
    print(f"machine: {platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} CPUs")
    if not names:
        print(f"skipped: {reason}")
        return 0
    for ordinal, name in enumerate(names):
        print(f"GPU {ordinal}: {name}")
    sys.path.insert(0, str(ROOT / "python"))
    import horovod.numpy as hvd

    print(
        f"driver: CUDA {driver // 1000}.{driver % 1000 // 10}, NCCL: {hvd.nccl_built()}, torch: {version_of('torch')}"
    )
    env = os.environ | {"HVD_TEST_GPU": "1", "HVD_TEST_GPUS": str(len(names))}
    pytest = [sys.executable, "-m", "pytest", "-ra", "-v", "-p", "no:cacheprovider"]
    results = [run("probes", [str(PROBES)], env)]
    results.append(run("suites", [*pytest, str(HERE)], env))
    if len(names) > 1:
        results.append(run("random programs", [sys.executable, str(HERE / "random_jobs.py"), "--jobs", "50"], env))
    else:
        print("skipped: random programs of several ranks (there is one GPU)")
    horovodrun = str(ROOT / "python" / "horovod" / "bin" / "horovodrun")
    ranks = str(min(2, len(names)))
    if version_of("torch") != "not installed":
        torch = [horovodrun, "-np", ranks, *pytest, "tests/python/torch"]
        results.append(run(f"torch, {ranks} ranks", torch, env))
    else:
        print("skipped: the suite of PyTorch (it is not installed)")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
