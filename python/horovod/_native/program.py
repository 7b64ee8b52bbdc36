"""Finds the program `horovodrun`, which is native and part of this package."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

NAME = "horovodrun"


@functools.cache
def find() -> str:
    """The path of horovodrun: HOROVODRUN, or next to this package; FileNotFoundError if it does not exist."""
    for path in _places():
        if _is_native(path):
            return str(path)
    raise FileNotFoundError(f"cannot find the program {NAME}: run make, or reinstall horovod")


def _places() -> Iterator[Path]:
    if os.environ.get("HOROVODRUN"):
        yield Path(os.environ["HOROVODRUN"])
    package = Path(__file__).resolve().parents[1]
    yield package / "bin" / NAME
    try:
        files = importlib.metadata.files("horovod") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == NAME:
            yield Path(str(file.locate()))
    yield package.parent / "bin" / NAME  # pip install --target
    yield Path(sys.executable).with_name(NAME)
    found = shutil.which(NAME)
    if found:
        yield Path(found)


def _is_native(path: Path) -> bool:
    """Whether it is the program, and not a script that calls this module."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF" and os.access(path, os.X_OK)
    except OSError:
        return False
