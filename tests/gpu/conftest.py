"""Runs ranks on the stand-in for CUDA and NCCL, or on real GPUs with HVD_TEST_GPU=1 (make test-gpu)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent / "python", HERE.parents[1] / "python"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import gpu_machine  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cases marked `standin` ask for faults and limits that a GPU does not have."""
    for item in items:
        if item.get_closest_marker("standin") and gpu_machine.on_real_gpus():
            item.add_marker(pytest.mark.skip(reason="skipped: needs the stand-in"))


@pytest.fixture
def gpu_env() -> dict[str, str]:
    """The environment of ranks that use GPUs."""
    if reason := gpu_machine.missing():
        pytest.skip(reason)
    if gpu_machine.limits()[0] == 1:
        pytest.skip("skipped: there is one GPU, and this needs two")
    return gpu_machine.gpu_environment()
