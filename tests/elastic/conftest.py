"""Elastic jobs under test; job.py says how."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from job import Job, MakeJob


@pytest.fixture
def start(horovodrun: str, tmp_path: Path) -> Iterator[MakeJob]:
    """Starts a job; it is ended with the test."""
    jobs: list[Job] = []

    def make(hosts: dict[str, int], np: int, *options: str, **more: Any) -> Job:
        folder = tmp_path / f"job{len(jobs)}"
        folder.mkdir()
        jobs.append(Job(horovodrun, folder, hosts, np, options=options, **more))
        return jobs[-1]

    yield make
    for job in jobs:
        job.__exit__()
