"""The site; and two hosts, node1 and node2, on which the commands of the pages are run. Without them, those for one
machine are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bed import Bed, Host, why_not
from blocks import ROOT
from building import build


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    result = build(ROOT / "mkdocs.yml", folder)
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr
    return folder


@pytest.fixture(scope="session")
def nodes() -> Iterator[Bed | str]:
    """The hosts, or why there are none."""
    if reason := why_not():
        yield reason
        return
    with Bed([Host("node1"), Host("node2")], ssh=True) as bed:
        yield bed
