"""Says which stages and C++ suites test what has changed: make check runs them.

Changed is what is not committed, and the commits since main; on main itself, the last commit. Prints two lines: the
stages, and the folders of tests/cpp.
"""

from __future__ import annotations

import subprocess
import sys

# The first rule whose beginning fits a path says what tests it: stages, and C++ suites of the folder and of its users.
CORE = ("engine", "capi")
RULES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("src/base/", ("ctest",), ("base", "model", "net", *CORE)),
    ("src/model/", ("ctest", "differential"), ("model", "negotiation", *CORE)),
    ("src/negotiation/", ("ctest", "differential"), ("negotiation", *CORE)),
    ("src/net/", ("ctest", "differential"), ("net", "transport", "rendezvous", *CORE)),
    ("src/transport/", ("ctest", "differential"), ("transport", "collectives", *CORE)),
    ("src/rendezvous/", ("ctest", "differential"), ("rendezvous", *CORE)),
    ("src/collectives/", ("ctest", "differential"), ("collectives", *CORE)),
    ("src/backends/mpi/", ("ctest", "mpi"), CORE),
    ("src/backends/", ("ctest", "differential"), CORE),
    ("src/engine/", ("ctest", "differential"), CORE),
    ("src/capi/", ("ctest", "differential"), CORE),
    ("src/elastic/", ("ctest", "elastic"), ("elastic", "launcher")),
    ("src/launcher/", ("ctest", "launcher"), ("launcher",)),
    ("src/adapters/tensorflow/", ("ctest", "tensorflow"), ("adapters",)),
    ("include/", ("ctest", "single"), ("capi",)),
    ("python/horovod/torch/", ("torch",), ()),
    ("python/horovod/tensorflow/", ("tensorflow",), ()),
    ("python/horovod/_keras/", ("keras",), ()),
    ("python/horovod/keras/", ("keras",), ()),
    ("python/horovod/runner/", ("runner",), ()),
    ("python/horovod/", ("differential", "runner"), ()),
    ("tests/python/parallel/", ("parallel",), ()),
    *((f"tests/python/{name}/", (name,), ()) for name in ("single", "runner", "mpi", "torch", "tensorflow", "keras")),
    *(
        (f"tests/{name}/", (name,), ())
        for name in ("launcher", "elastic", "testbed", "hosts", "deploy", "docs", "differential", "fuzz", "packaging")
    ),
    ("deploy/", ("deploy",), ()),
    ("examples/", ("docs",), ()),
    ("docs/", ("docs",), ()),
    ("README.md", ("docs",), ()),
    ("mkdocs.yml", ("docs",), ()),
    ("pyproject.toml", ("packaging",), ()),
)


def git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()


def changed() -> list[str]:
    base = git("merge-base", "HEAD", "main")
    if base == git("rev-parse", "HEAD"):
        base = git("rev-parse", "HEAD~1")
    tracked = git("diff", "--name-only", base).splitlines()
    return tracked + git("ls-files", "--others", "--exclude-standard").splitlines()


def choose(paths: list[str]) -> tuple[list[str], list[str]]:
    stages: dict[str, None] = {}
    suites: dict[str, None] = {}
    for path in paths:
        if path.startswith("tests/cpp/") and path.count("/") > 2:
            stages["ctest"] = suites[path.split("/")[2]] = None
        for start, its_stages, its_suites in RULES:
            if path.startswith(start):
                stages |= dict.fromkeys(its_stages)
                suites |= dict.fromkeys(its_suites)
                break
    return list(stages), [suite for suite in suites if suite != "support"]


if __name__ == "__main__":
    stages, suites = choose(changed())
    if not stages:
        sys.exit("nothing has changed that a stage tests")
    print(" ".join(stages))
    print(" ".join(suites))
