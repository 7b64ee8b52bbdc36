"""Runs ranks on the stand-in for CUDA and NCCL, or on real GPUs with HVD_TEST_GPU=1 (make test-gpu)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent / "python", HERE.parents[1] / "python"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

STANDIN = Path(os.environ.get("HVD_STANDIN", HERE.parents[1] / "build" / "release" / "tests" / "gpu" / "standin"))


@pytest.fixture
def gpu_env() -> dict[str, str]:
    """The environment of ranks that use GPUs."""
    if os.environ.get("HVD_TEST_GPU") == "1":
        return {"PYTHONPATH": f"{HERE}:{HERE.parents[1] / 'python'}"}
    cuda, nccl = STANDIN / "cuda", STANDIN / "nccl-2.27"
    if not (cuda / "libcuda.so.1").exists():
        pytest.skip(f"skipped: the stand-in is not built ({cuda})")
    return {
        "LD_LIBRARY_PATH": f"{cuda}:{nccl}",
        "HVD_STANDIN_GPUS": "4",
        "PYTHONPATH": f"{HERE}:{HERE.parents[1] / 'python'}",
    }
