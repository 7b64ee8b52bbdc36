"""A small image for the deployment's tests: Debian, sshd, Python, Jupyter Lab, and this tree's Horovod.

It stands for the image of deploy/docker, which takes longer to build. The parts that do not change are kept in
build/cloud: a Debian by mmdebstrap, and what `pip` installs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build/cloud"
NAME = "horovod-test:latest"
DEBIAN = "openssh-server,python3,procps"
PYTHON = ROOT / "requirements/jupyter.txt"
PACKAGES = "usr/local/lib/python3.11/dist-packages"  # bookworm's
LIMIT = 900


def why_not() -> str | None:
    """None, or why no image can be made here."""
    missing = [program for program in ("mmdebstrap", "dockerd") if not shutil.which(program)]
    return f"not installed: {', '.join(missing)} (tools/packages.sh cloud)" if missing else None


def _make_base() -> Path:
    base = CACHE / "base.tar"
    if not base.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={DEBIAN}", "bookworm", "base.new"]
        subprocess.run([*command, "--format=tar"], cwd=CACHE, check=True, timeout=LIMIT)
        (CACHE / "base.new").rename(base)
    return base


def _make_packages() -> Path:
    """For the image's Python, which need not be this one."""
    packages, note = CACHE / "packages", CACHE / "packages.txt"
    wanted = PYTHON.read_text()
    if not note.exists() or note.read_text() != wanted:
        shutil.rmtree(packages, ignore_errors=True)
        options = ["--target", str(packages), "--python-version", "3.11.2", "--only-binary=:all:", "--no-deps"]
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", *options, "-r", str(PYTHON)]
        subprocess.run(command, check=True, timeout=LIMIT)
        note.write_text(wanted)
    return packages


def make(folder: Path) -> Path:
    """The archive, as of `docker save`, in a folder of the test's."""
    base, packages = _make_base(), _make_packages()
    layer = folder / "layer.tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(packages, PACKAGES)
        tar.add(ROOT / "python/horovod", f"{PACKAGES}/horovod", filter=_as_root)
        tar.add(ROOT / "examples", "horovod/examples", filter=_as_root)
        for name, target in {
            "usr/local/bin/horovodrun": f"/{PACKAGES}/horovod/bin/horovodrun",
            "usr/local/bin/python": "/usr/bin/python3",
        }.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
    return _save(folder / "image.tar", [base, layer])


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    return None if "__pycache__" in member.name else member


def _save(archive: Path, layers: list[Path]) -> Path:
    """Docker's format: a manifest, a configuration and the layers."""
    digests = [subprocess.check_output(["sha256sum", layer], text=True).split()[0] for layer in layers]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
    }
    names = [f"{digest}/layer.tar" for digest in digests]
    manifest = [{"Config": "config.json", "RepoTags": [NAME], "Layers": names}]
    with tarfile.open(archive, "w") as tar:
        for name, content in (("config.json", config), ("manifest.json", manifest)):
            path = archive.with_name(name)
            path.write_text(json.dumps(content))
            tar.add(path, name)
        for layer, name in zip(layers, names, strict=True):
            tar.add(layer, name)
    return archive
