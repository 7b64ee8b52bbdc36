"""The PyTorch examples, as a user runs them: two ranks, small models, generated pictures."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from ranks import ROOT

Run = Callable[..., list[str]]


@pytest.fixture
def run(horovodrun: str, tmp_path: Path) -> Run:
    """Runs an example with two ranks, and returns what rank 0 said."""

    def call(example: str, *arguments: str) -> list[str]:
        command = [horovodrun, "-np", "2", sys.executable, str(ROOT / "examples" / example), *arguments]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}/python", "OMP_NUM_THREADS": "1"}
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stdout + result.stderr
        said = [line.removeprefix("[0]<stdout>:") for line in result.stdout.splitlines()]
        assert not any(line.startswith("[1]") for line in said), "only rank 0 reports"
        return said

    return call


def accuracies(lines: list[str]) -> list[float]:
    return [float(found[1]) for line in lines if (found := re.search(r"^Test set: .*Accuracy: ([\d.]+)%", line))]


def test_mnist_learns_the_digits(run: Run, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    lines = run("pytorch_mnist.py", "--epochs", "4", "--lr", "0.05", "--momentum", "0.9", "--report", str(report))
    assert any(re.fullmatch(r"Train Epoch: 4 \[640/719 \(83%\)\]\tLoss: \d\.\d{6}", line) for line in lines), lines
    assert len(accuracies(lines)) == 4
    assert accuracies(lines)[-1] > 90
    result = json.loads(report.read_text())
    assert result["ranks"] == 2 and result["accuracy"] > 0.9 and result["images_per_second"] > 0


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--fp16-allreduce", "--gradient-predivide-factor", "2.0"], id="float16"),
        pytest.param(["--use-adasum"], id="adasum", marks=pytest.mark.soak),
    ],
)
def test_mnist_learns_with_other_reductions(run: Run, options: list[str]) -> None:
    lines = run("pytorch_mnist.py", "--epochs", "4", "--lr", "0.1", "--momentum", "0.9", *options)
    assert accuracies(lines)[-1] > 80


def write_idx(path: Path, values: np.ndarray) -> None:
    path.write_bytes(struct.pack(f">4B{values.ndim}i", 0, 0, 8, values.ndim, *values.shape) + values.tobytes())


def test_mnist_reads_the_files_of_mnist(run: Run, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for part, count in (("train", 256), ("t10k", 64)):
        labels = random.integers(0, 10, count, dtype=np.uint8)
        images = random.integers(0, 60, (count, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):  # digit d is a bright bar in rows 2d and 2d + 1
            image[2 * label : 2 * label + 2] += 180
        write_idx(tmp_path / f"{part}-images-idx3-ubyte", images)
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte", labels)
    options = ["--epochs", "4", "--batch-size", "16", "--lr", "0.02", "--momentum", "0.9"]
    lines = run("pytorch_mnist.py", "--data-dir", str(tmp_path), *options)
    assert any("[0/128 (0%)]" in line for line in lines), "each rank has half of the images"
    assert accuracies(lines)[-1] > 50, lines


def test_synthetic_benchmark_prints_the_lines_that_scripts_parse(run: Run) -> None:
    options = ["--model", "resnet50", "--batch-size", "2", "--image-size", "32", "--no-cuda", "--num-iters", "2"]
    lines = run("pytorch_synthetic_benchmark.py", *options, "--num-warmup-batches", "1", "--num-batches-per-iter", "1")
    expected = [
        r"Model: resnet50",
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


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Two classes that differ in their colour."""
    random = np.random.default_rng(0)
    for part, count in (("train", 24), ("val", 8)):
        for name, channel in (("blue", 2), ("red", 0)):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = random.integers(0, 100, (40, 56, 3), dtype=np.uint8)
                pixels[..., channel] += 150
                Image.fromarray(pixels).save(folder / f"{number}.png")
    return tmp_path


def test_imagenet_trains_and_goes_on_after_its_last_checkpoint(run: Run, pictures: Path) -> None:
    options = ["--train-dir", f"{pictures}/train", "--val-dir", f"{pictures}/val", "--log-dir", f"{pictures}/log"]
    options += ["--model", "resnet18", "--image-size", "32", "--batch-size", "4", "--batches-per-allreduce", "2"]
    options += ["--workers", "0", "--warmup-epochs", "1", "--checkpoint-format", f"{pictures}/at-{{epoch}}.pth"]
    first = run("pytorch_imagenet_resnet50.py", *options, "--epochs", "2")
    line = r"Epoch #{}: loss \d+\.\d{{4}}, accuracy [\d.]+%, validation loss \d+\.\d{{4}}, validation accuracy [\d.]+%"
    assert [bool(re.fullmatch(line.format(number), said)) for number, said in enumerate(first, 1)] == [True] * 2, first

    second = run("pytorch_imagenet_resnet50.py", *options, "--epochs", "4")
    assert second[0] == "goes on after epoch 2"
    assert [bool(re.fullmatch(line.format(number), said)) for number, said in enumerate(second[1:], 3)] == [True] * 2
    assert {path.name for path in pictures.glob("*.pth")} == {f"at-{epoch}.pth" for epoch in (1, 2, 3, 4)}

    records = [json.loads(line) for line in (pictures / "log" / "metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == [1, 2, 3, 4]
    assert records[-1]["loss"] < records[0]["loss"]
    assert records[-1]["accuracy"] > 0.8, "red is not blue"


def test_imagenet_warms_the_learning_rate_up_and_lets_it_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from pytorch_imagenet_resnet50 import rate_factor

    assert [rate_factor(epoch, 5, 8) for epoch in (0, 2.5, 5, 29.9)] == [1, 4.5, 8, 8]
    assert [rate_factor(epoch, 5, 8) for epoch in (30, 60, 80)] == pytest.approx([0.8, 0.08, 0.008])
