"""Builds the CPU image with buildah, on a base of our own making: neither a registry nor a Docker engine is needed.

What was built stays in build/images: the next run finds the layers whose files have not changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "build/images"
BASE = "localhost/horovod-base"
NAME = "horovod-cpu:test"
PROGRAMS = ("buildah", "mmdebstrap", "dockerd", "docker-compose")
# Ends with us, and what it mounts ends with it, whatever happens to us.
ALONE = ("unshare", "--mount", "setpriv", "--pdeathsig", "KILL")
PIP = ("PIP_INDEX_URL", "PIP_CERT")  # how this machine reaches packages, if it says so


def why_not() -> str | None:
    """None, or the reason why no image can be built here."""
    if os.geteuid() != 0:
        return "images are built as root"
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    return f"not installed: {', '.join(missing)} (tools/packages.sh images)" if missing else None


def build(frameworks: str = "") -> Path:
    """An archive that `docker load` takes; by default without frameworks, which are large and not ours."""
    PLACE.mkdir(parents=True, exist_ok=True)
    _make_base()
    arguments = {"BASE": BASE, "BUILD_BASE": BASE, "FRAMEWORKS": frameworks}
    volumes = []
    for name in PIP:
        if not (value := os.environ.get(name)):
            continue
        arguments[name] = value
        if name == "PIP_CERT":  # a file, lent to the build under a name that no package has
            arguments[name] = "/run/ca.crt"
            volumes = ["--volume", f"{value}:/run/ca.crt:ro"]
    options = [word for pair in arguments.items() for word in ("--build-arg", "=".join(pair))]
    dockerfile = ROOT / "deploy/docker/cpu/Dockerfile"
    _bud("--layers", "-t", NAME, *options, *volumes, "-f", str(dockerfile), str(ROOT))
    archive = PLACE / "image.tar"
    archive.unlink(missing_ok=True)
    _buildah("push", NAME, f"docker-archive:{archive}:{NAME}")
    return archive


def _make_base() -> None:
    if _buildah("images", "--quiet", "--filter", f"reference={BASE}").strip():
        return
    base = PLACE / "base.tar"
    if not base.exists():
        unfinished = PLACE / "unfinished.tar"
        _run(["mmdebstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(unfinished)])
        unfinished.rename(base)
    (PLACE / "Dockerfile.base").write_text("FROM scratch\nADD base.tar /\n")
    _bud("--layers", "-t", BASE, "-f", str(PLACE / "Dockerfile.base"), str(PLACE))


def _bud(*arguments: str) -> None:
    _buildah("bud", "--isolation", "chroot", "--format", "docker", *arguments)


def _buildah(*arguments: str) -> str:
    places = ["--root", str(PLACE / "storage"), "--runroot", str(PLACE / "run"), "--storage-driver", "overlay"]
    return _run(["buildah", *places, *arguments])


def _run(command: list[str]) -> str:
    """Its output; what it says meanwhile is in build/images/log."""
    log = PLACE / "log"
    with log.open("ab") as errors:
        result = subprocess.run(
            [*ALONE, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=3600,
        )
    end = "\n".join(log.read_text(errors="replace").splitlines()[-40:])
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout[-4000:]}\n{end}"
    return result.stdout
