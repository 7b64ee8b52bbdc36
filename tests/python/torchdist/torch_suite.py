"""PyTorch's own tests of torch.distributed, which its wheel contains, for the backend "hvd".

There they start their processes themselves. Here they run in the ranks of one job, one after another, each with a
default group of its own. Some name Gloo or MPI as the only backends with a feature: there "hvd" counts as Gloo.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import types
from pathlib import Path
from typing import Any

import horovod.numpy as hvd

_MODULE = "torch.testing._internal.distributed.distributed_test"

# What cannot be here, and why.
NOT_HERE = {
    "test_destroy_full_group": "is about MPI's groups",
}


def load(temporary: str) -> types.ModuleType:
    """The module, after the environment has been told what it looks for there."""
    os.environ.update(BACKEND="hvd", WORLD_SIZE=str(hvd.size()), TEMP_DIR=temporary, INIT_METHOD="env://")
    from torch.testing._internal.common_distributed import DistTestCases

    for feature in ("ddp", "subgroup", "plugin"):
        DistTestCases.backend_feature[feature].add("hvd")
    spec = importlib.util.find_spec(_MODULE)
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin).read_text()
    source = re.sub(r'BACKEND (==|!=) "gloo"', r'BACKEND \1 "hvd"', source)
    source = source.replace('{"gloo"}', '{"gloo", "hvd"}').replace("BACKEND != dist.Backend.GLOO", "False")
    module = types.ModuleType(_MODULE)
    module.__file__, module.__spec__ = spec.origin, spec
    sys.modules[_MODULE] = module
    exec(compile(source, spec.origin, "exec"), module.__dict__)
    return module


def test_case(module: types.ModuleType) -> type[Any]:
    """The class with all tests."""

    class Suite(module.TestDistBackend, module.DistributedTest._DistTestBase):  # type: ignore[misc,name-defined]
        def setUp(self) -> None:
            """The processes are there."""

        def tearDown(self) -> None:
            """And they stay."""

    return Suite


def names() -> list[str]:
    """All tests by name, without importing torch's module, whose import needs the environment."""
    spec = importlib.util.find_spec(_MODULE)
    assert spec is not None and spec.origin is not None
    text = Path(spec.origin).read_text()
    found = re.findall(r"^        def (test_\w+)\(", text, re.MULTILINE)
    return [name for name in dict.fromkeys(found) if name not in NOT_HERE]
