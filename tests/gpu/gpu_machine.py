"""What processes need to use GPUs: those of this machine with HVD_TEST_GPU=1 (make test-gpu), else the stand-in."""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STANDIN = Path(os.environ.get("HVD_STANDIN", ROOT / "build" / "release" / "tests" / "gpu" / "standin"))


def on_real_gpus() -> bool:
    return os.environ.get("HVD_TEST_GPU") == "1"


def gpu_environment(nccl: str = "nccl-2.27") -> dict[str, str]:
    path = {"PYTHONPATH": f"{HERE}:{ROOT / 'python'}"}
    if on_real_gpus():
        return path
    return path | {"LD_LIBRARY_PATH": f"{STANDIN / 'cuda'}:{STANDIN / nccl}", "HVD_STANDIN_GPUS": "4"}


def missing() -> str:
    """Why GPU tests cannot run here; empty if they can."""
    if on_real_gpus() or (STANDIN / "cuda" / "libcuda.so.1").exists():
        return ""
    return f"skipped: the stand-in is not built ({STANDIN}); make standin does so"


def limits() -> tuple[int, int]:
    """The most ranks of a job, and the most GPUs of a rank: 0, 0 if there is no limit."""
    if not on_real_gpus():
        return 0, 0
    gpus = int(os.environ["HVD_TEST_GPUS"])
    size = min(4, gpus)
    return size, max(1, gpus // size)
