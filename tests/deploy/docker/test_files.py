"""The files that images are made of, by their linters; what the context of a build holds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
DOCKER = ROOT / "deploy/docker"
BIN = Path(sys.executable).parent
DOCKERFILES = sorted(DOCKER.glob("*/Dockerfile"))


def lint(*command: str | Path) -> None:
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_dockerfiles_are_clean(path: Path) -> None:
    lint(BIN / "hadolint", "--failure-threshold", "style", path)


def test_scripts_are_clean() -> None:
    lint(BIN / "shellcheck", "--external-sources", *sorted(DOCKER.glob("image/*.sh")))


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_what_is_copied_exists_and_is_not_ignored(path: Path) -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    kept = [line[1:] for line in ignored if line.startswith("!")]
    for line in re.findall(r"(?m)^COPY (?!--from)(.+)$", path.read_text()):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists()
            assert any((ROOT / source).is_relative_to(ROOT / each) for each in kept), source


def test_no_build_argument_is_a_secret_and_no_key_is_copied() -> None:
    for path in DOCKERFILES:
        assert not re.search(r"(?i)^(ARG|ENV) .*(password|token|secret)|id_rsa", path.read_text(), re.MULTILINE)


def test_both_images_differ_in_little() -> None:
    """What one learns of the image that is built holds for the one that is only linted."""
    cpu, gpu = ((DOCKER / kind / "Dockerfile").read_text().splitlines() for kind in ("cpu", "gpu"))
    different = set(cpu) ^ set(gpu)
    assert all(re.match(r"# |ARG (BASE|TORCH_INDEX)|RUN /build/install-frameworks.sh ", line) for line in different)


def test_the_compose_file_uses_what_the_image_has() -> None:
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    assert set(services) == {"worker", "main"}
    build = services["main"]["build"]
    assert (DOCKER / build["context"] / build["dockerfile"]).resolve() == DOCKER / "cpu/Dockerfile"
    known = (DOCKER / "image/places.sh").read_text() + (DOCKER / "image/entrypoint.sh").read_text()
    for name in services["worker"]["environment"]:
        assert name in known
    assert "ARG FRAMEWORKS" in (DOCKER / "cpu/Dockerfile").read_text()
