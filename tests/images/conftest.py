"""The image, built once, and two hosts with a Docker engine that has it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import bed
import building
import pytest
from engine import Engine


@pytest.fixture(scope="session")
def archive() -> Path:
    if reason := building.why_not() or bed.why_not():
        pytest.skip(f"no images: {reason}")
    return building.build()


@pytest.fixture(scope="session")
def all_engines(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Engine]]:
    folder = tmp_path_factory.mktemp("engines")
    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(bed.Bed([bed.Host("hosta"), bed.Host("hostb")]))
        engines = [stack.enter_context(Engine(host, folder)) for host in hosts]
        for engine in engines:
            engine.load(archive)
        yield engines


@pytest.fixture
def engines(all_engines: list[Engine]) -> Iterator[list[Engine]]:
    """What a test starts ends with it."""
    yield all_engines
    for engine in all_engines:
        engine.remove_all()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A key pair as users have one."""
    folder = tmp_path / "keys"
    folder.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "id_ed25519"], check=True)
    return folder
