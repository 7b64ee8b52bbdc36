#!/usr/bin/env python3
"""Makes an old PyTorch that was built for CUDA importable without CUDA, whose libraries are several GB.

    tools/stub_cuda.py <site-packages>/torch

Old versions are offered for x86-64 with CUDA only. What they link is replaced by libraries whose functions do nothing
but fail; a program that leaves GPUs alone does not call them, except to register kernels while it loads.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

CUDA = re.compile(r"lib(cu|nv|nccl)[A-Za-z]*\.so")
NO_DEVICE = 100  # cudaErrorNoDevice


def read(option: str, library: Path) -> str:
    return subprocess.run(["readelf", option, "-W", str(library)], capture_output=True, text=True, check=True).stdout


def missing(package: Path) -> dict[str, dict[str, str]]:
    """The CUDA libraries that the package needs and does not bring: their symbols, with the type of each."""
    needed: set[str] = set()
    symbols: dict[str, dict[str, str]] = defaultdict(dict)
    for library in [*package.glob("lib/*.so*"), *package.glob("_C*.so")]:
        needed |= set(re.findall(r"NEEDED.*\[(.*)\]", read("-d", library)))
        for line in read("--dyn-syms", library).splitlines():
            fields = line.split()
            if len(fields) > 7 and fields[6] == "UND" and "@" in fields[7]:
                name, version = re.split("@+", fields[7])
                symbols[version][name] = fields[3]
    return {name: symbols[name] for name in needed if CUDA.match(name) and not (package / "lib" / name).exists()}


def make(library: Path, symbols: dict[str, str]) -> None:
    text = [
        f"char {name}[4096];" if kind == "OBJECT" else f"long {name}() {{ return {NO_DEVICE}; }}"
        for name, kind in symbols.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        source, versions = Path(folder, "stub.c"), Path(folder, "stub.map")
        source.write_text("\n".join(text))
        versions.write_text(f"{library.name} {{ global: *; }};\n")
        options = [f"-Wl,-soname,{library.name}", f"-Wl,--version-script={versions}"]
        subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-fno-builtin", "-o", library, source, *options], check=True)


def main() -> None:
    package = Path(sys.argv[1])
    for name, symbols in missing(package).items():
        make(package / "lib" / name, symbols)
    # Some functions have no version to find them by: they must not be looked up before they are called.
    (package.parent / "bind-lazily.pth").write_text("import os, sys; sys.setdlopenflags(os.RTLD_LAZY)\n")


if __name__ == "__main__":
    main()
