"""The counts that docs/gpu.md promises are exact, so they are tested: what a step asks of CUDA and of NCCL."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.standin
BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("benchmark_gpu", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_step_asks_for_exactly_what_is_promised(gpu_env: dict[str, str]) -> None:
    benchmark = load()
    figures = benchmark.count(20)
    assert [each["tensors"] for each in figures] == [*benchmark.TENSORS, 161]
    assert [text for each in figures for text in benchmark.differences(each)] == []


def test_the_fusion_buffer_is_as_large_as_the_largest_plan(gpu_env: dict[str, str]) -> None:
    figures = load().count(5)
    small, gradients = figures[1], figures[-1]
    assert small["held"] <= 1 << 20
    assert gradients["bytes"] <= gradients["held"] <= 128 << 20
