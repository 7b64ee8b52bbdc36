"""A package imports its own framework only: no package, imported and initialised, even tries to import another one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
from ranks import ROOT

FRAMEWORKS = "torch tensorflow keras tf_keras jax flax optax mxnet pytorch_lightning lightning pyspark ray"

# What the framework itself imports is its own business: it comes first, and only what follows is watched.
PROGRAM = """
import importlib, importlib.abc, sys

own, packages, others = sys.argv[1].split(), sys.argv[2].split(), set(sys.argv[3].split())
for name in own:
    importlib.import_module(name)
tried = set()

class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in others:
            tried.add(name)

sys.meta_path.insert(0, Watch())
for name in packages:
    importlib.import_module(name)
hvd = sys.modules[packages[0]]
hvd.init()
hvd.shutdown()
print(sorted(tried))
"""

CASES = {  # Keras's backend, what is imported first, and the packages
    "numpy": ("", "numpy", "horovod.numpy horovod.common.elastic horovod.runner"),
    "torch": ("", "torch", "horovod.torch horovod.torch.elastic"),
    "lightning": ("", "torch pytorch_lightning", "horovod.torch horovod.torch.lightning"),
    "tensorflow": ("", "tensorflow", "horovod.tensorflow horovod.tensorflow.elastic"),
    "tensorflow.keras": ("tensorflow", "tensorflow keras", "horovod.tensorflow.keras horovod.tensorflow.keras.elastic"),
    "keras on tensorflow": ("tensorflow", "tensorflow keras", "horovod.keras horovod.keras.elastic"),
    "keras on torch": ("torch", "torch keras", "horovod.keras horovod.keras.elastic"),
    "keras on jax": ("jax", "jax keras", "horovod.keras horovod.keras.elastic"),
    "jax": ("", "jax", "horovod.jax horovod.jax.elastic"),
    "mxnet": ("", "mxnet", "horovod.mxnet horovod.mxnet.elastic"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_package_imports_no_other_framework(case: str) -> None:
    backend, own, packages = CASES[case]
    for name in own.split():
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:  # a folder of tests may have the name
            pytest.skip(f"{name} is not installed here")
    others = " ".join(set(FRAMEWORKS.split()) - set(own.split()))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/python", "KERAS_BACKEND": backend or "tensorflow"}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, own, packages, others], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "[]"
