"""Elastic jobs on GPUs under horovodrun, with faults of GPUs and of NCCL (faults.py)."""

from __future__ import annotations

import pytest
from faults import run

pytestmark = pytest.mark.standin


@pytest.mark.parametrize("seed", ["one", "two"])
def test_an_elastic_job_survives_faults(seed: str, horovodrun: str, gpu_env: dict[str, str]) -> None:
    assert sum(run(horovodrun, seed, 10).values()) >= 10
