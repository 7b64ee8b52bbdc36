"""A cluster of hosts that play pods, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bed import Bed, why_not
from pods import Cluster, hosts


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := why_not():
        pytest.skip(f"no test bed: {reason}")
    with Bed(hosts()) as bed:
        yield Cluster(bed, tmp_path_factory.mktemp("cluster"))


@pytest.fixture
def cluster(pods: Cluster) -> Iterator[Cluster]:
    """Without a release; what a test starts ends with it."""
    yield pods
    pods.end()
