"""The examples, as a user runs them: two ranks, small models."""

from __future__ import annotations

import re

import pytest
from ranks import ROOT


@pytest.mark.parametrize(
    ("example", "arguments"),
    [("mxnet_mnist.py", ["--fp16-allreduce"]), ("mxnet_module_mnist.py", ["--epochs", "4"])],
)
def test_digits_are_learned(job, example: str, arguments: list[str]) -> None:  # type: ignore[no-untyped-def]
    ended = job(["-np", "2"], ROOT / "examples" / example, *arguments)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (accuracy,) = re.findall(r"^\[0\]<stdout>:Accuracy: ([\d.]+)%$", ended.stdout, re.MULTILINE)
    assert float(accuracy) > 85


def test_network_of_the_model_zoo(job) -> None:  # type: ignore[no-untyped-def]
    small = ["--model", "resnet18_v1", "--image-size", "32", "--batches", "4", "--batch-size", "2", "--num-groups", "3"]
    ended = job(["-np", "2"], ROOT / "examples/mxnet_imagenet_resnet50.py", *small)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"^\[0\]<stdout>:[\d.]+ images/s on 2 ranks$", ended.stdout, re.MULTILINE), ended.stdout
