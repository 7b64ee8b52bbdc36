"""deploy/openstack without a cloud: a real Terraform and a stand-in provider. tests/cloud has the whole chain."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from deployment import Deployment, why_not  # noqa: E402


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Deployment]:
    """make(workers=2): a deployment whose playbook does nothing, with five addresses to give away."""
    if reason := why_not():
        pytest.skip(reason)

    def make(**options: Any) -> Deployment:
        variables = {"ansible_playbook": {"command": "echo ran ansible-playbook"}} | options.pop("variables", {})
        return Deployment(tmp_path, [f"10.77.0.{n}" for n in range(2, 7)], variables=variables, **options)

    return make
