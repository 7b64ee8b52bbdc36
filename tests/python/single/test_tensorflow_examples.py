"""The TensorFlow and Keras examples, as a user runs them: two ranks, small models."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ranks import ROOT

Run = Callable[..., list[str]]


@pytest.fixture
def run(horovodrun: str, tmp_path: Path) -> Run:
    """Runs an example with two ranks, and returns what rank 0 said."""

    def call(example: str, *arguments: str, **variables: str) -> list[str]:
        command = [horovodrun, "-np", "2", sys.executable, str(ROOT / "examples" / example), *arguments]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}/python", "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stdout + result.stderr
        said = [line.removeprefix("[0]<stdout>:") for line in result.stdout.splitlines()]
        assert not any(line.startswith("[1]") for line in said), "only rank 0 reports"
        return said

    return call


def accuracy(lines: list[str]) -> float:
    found = [re.search(r"[Aa]ccuracy: ([\d.]+)%", line) for line in lines]
    return [float(each[1]) for each in found if each][-1]


def test_own_training_loop(run: Run, tmp_path: Path) -> None:
    lines = run("tensorflow2_mnist.py", "--steps", "120", "--checkpoint-dir", str(tmp_path / "saved"))
    assert any(re.fullmatch(r"Step #50\tLoss: \d\.\d{6}", line) for line in lines), lines
    assert accuracy(lines) > 85
    assert (tmp_path / "saved" / "ckpt-1.index").exists()


@pytest.mark.parametrize(
    "legacy", [pytest.param("0", id="Keras 3"), pytest.param("1", id="Keras 2", marks=pytest.mark.soak)]
)
def test_model_fit(run: Run, tmp_path: Path, legacy: str) -> None:
    options = ["--epochs", "4", "--checkpoint-dir", str(tmp_path)]
    lines = run("tensorflow2_keras_mnist.py", *options, TF_USE_LEGACY_KERAS=legacy)
    assert any("finished gradual learning rate warmup to 0.002" in line for line in lines), lines
    assert accuracy(lines) > 80
    assert {path.name for path in tmp_path.glob("*.keras")} == {f"checkpoint-{epoch}.keras" for epoch in (1, 2, 3, 4)}


@pytest.mark.parametrize("backend", ["tensorflow", pytest.param("torch", marks=pytest.mark.soak)])
def test_keras_on_a_backend(run: Run, backend: str) -> None:
    assert accuracy(run("keras_mnist.py", "--epochs", "5", KERAS_BACKEND=backend)) > 80


def test_advanced_goes_on_after_its_last_checkpoint(run: Run, tmp_path: Path) -> None:
    options = ["--checkpoint-dir", str(tmp_path / "digits"), "--warmup-epochs", "2"]
    run("tensorflow2_keras_advanced.py", *options, "--epochs", "2")
    lines = run("tensorflow2_keras_advanced.py", *options, "--epochs", "4")
    assert lines[0] == "goes on after epoch 2"
    assert [line for line in lines if line.startswith("Epoch ")] == ["Epoch 3/4", "Epoch 4/4"]
    assert accuracy(lines) > 90
    log = (tmp_path / "digits" / "log.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in log if line[0].isdigit()] == ["0", "1", "2", "3"]


def test_synthetic_benchmark_prints_the_lines_that_scripts_parse(run: Run) -> None:
    options = ["--model", "MobileNetV2", "--batch-size", "2", "--image-size", "32", "--no-cuda", "--num-iters", "2"]
    lines = run(
        "tensorflow2_synthetic_benchmark.py", *options, "--num-warmup-batches", "2", "--num-batches-per-iter", "1"
    )
    expected = [
        r"Model: MobileNetV2",
        r"Batch size: 2",
        r"Number of CPUs: 2",
        r"Running warmup\.\.\.",
        r"Running benchmark\.\.\.",
        r"Iter #0: \d+\.\d img/sec per CPU",
        r"Iter #1: \d+\.\d img/sec per CPU",
        r"Img/sec per CPU: \d+\.\d \+-\d+\.\d",
        r"Total img/sec on 2 CPU\(s\): \d+\.\d \+-\d+\.\d",
    ]
    assert len(lines) == len(expected), lines
    assert all(re.fullmatch(pattern, line) for pattern, line in zip(expected, lines, strict=True)), lines
    one, all_ranks = (float(lines[number].split(": ")[1].split()[0]) for number in (-2, -1))
    assert all_ranks == pytest.approx(2 * one, abs=0.11)


@pytest.mark.parametrize(
    ("example", "options"),
    [
        ("tensorflow2_mnist_elastic.py", ["--steps", "100"]),
        pytest.param("tensorflow2_keras_mnist_elastic.py", ["--epochs", "4"], marks=pytest.mark.soak),
        ("keras_mnist_elastic.py", ["--epochs", "4"]),
    ],
)
def test_elastic_ones_run_as_any_other_job(run: Run, example: str, options: list[str]) -> None:
    assert accuracy(run(f"elastic/{example}", *options)) > 80
