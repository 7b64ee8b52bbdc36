"""Says which stages and C++ suites test what has changed: make check runs them.

Changed is what is not committed, and the commits since main; on main itself, the last commit. Prints two lines: the
stages, and the folders of tests/cpp.

A folder that RULES does not name is tested by the stage and the C++ suite of its name, if tools/test.sh and tests/cpp
have them: python/horovod/jax/ and tests/python/jax/ by the stage jax, src/store/ by the suite store and those of CORE.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# The first rule with a matching prefix determines the tests of a path: stages, and C++ suites of the folder and its
# users.
CORE = ("engine", "capi")
Rules = tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]
RULES: Rules = (
    ("src/base/", ("ctest",), ("base", "model", "net", *CORE)),
    ("src/model/", ("ctest", "differential"), ("model", "negotiation", *CORE)),
    ("src/negotiation/", ("ctest", "differential"), ("negotiation", *CORE)),
    ("src/net/", ("ctest", "differential"), ("net", "transport", "rendezvous", *CORE)),
    ("src/transport/", ("ctest", "differential"), ("transport", "collectives", *CORE)),
    ("src/rendezvous/", ("ctest", "differential"), ("rendezvous", *CORE)),
    ("src/collectives/", ("ctest", "differential"), ("collectives", *CORE)),
    ("src/backends/mpi/", ("ctest", "mpi"), CORE),
    ("src/backends/nccl/", ("ctest", "gpu"), ("backends_nccl", *CORE)),
    ("src/backends/", ("ctest", "differential"), CORE),
    ("src/engine/", ("ctest", "differential"), CORE),
    ("src/capi/", ("ctest", "differential"), CORE),
    ("src/elastic/", ("ctest", "elastic"), ("elastic", "launcher")),
    ("src/report/", ("ctest", "launcher"), ("report",)),
    ("src/launcher/", ("ctest", "launcher"), ("launcher",)),
    ("src/adapters/tensorflow/", ("ctest", "tensorflow"), ("adapters",)),
    ("src/adapters/jax/", ("jax", "gpu"), ()),
    ("include/", ("ctest", "single"), ("capi",)),
    ("python/horovod/torch/distributed/", ("torchdist",), ()),
    ("python/horovod/_torch_", ("torchdist",), ()),
    ("tests/python/torchdist_jobs/", ("torchdist",), ()),
    ("python/horovod/torch/", ("torch",), ()),
    ("python/horovod/tensorflow/", ("tensorflow",), ()),
    ("tests/python/mxnet_jobs/", ("mxnet",), ()),
    ("python/horovod/_keras/", ("keras",), ()),
    ("python/horovod/keras/", ("keras",), ()),
    ("python/horovod/tracking/", ("single",), ()),
    ("python/horovod/runner/", ("runner",), ()),
    ("examples/", ("docs",), ()),
    ("docs/", ("docs",), ()),
    ("README.md", ("docs",), ()),
    ("mkdocs.yml", ("docs",), ()),
    ("pyproject.toml", ("packaging",), ()),
    ("THIRD_PARTY_NOTICES.md", ("packaging",), ()),
    ("tools/wheel_readme.py", ("packaging",), ()),
)


# For what has neither a rule nor a stage of its name.
REST: Rules = (
    ("python/horovod/", ("differential", "runner"), ()),
    ("src/", ("ctest", "differential"), CORE),
)
NAMED = re.compile(r"(?:tests/python|tests|python/horovod|src/adapters|src/backends|src|(?=deploy/))/?([a-z0-9_]+)/")


def stages_of_test_sh() -> set[str]:
    return set(re.findall(r"(?m)^(\w+)_stage\(\)", (ROOT / "tools/test.sh").read_text()))


def named(path: str) -> tuple[set[str], set[str]]:
    """The stage and the suite that have the name of the folder."""
    found = NAMED.match(path)
    folder = {found[1]} if found else set()
    stages = folder & stages_of_test_sh() - {"ctest"}
    suites = folder if path.startswith("src/") and (ROOT / "tests/cpp" / "".join(folder)).is_dir() else set()
    return stages, suites


def git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()


def changed() -> list[str]:
    base = git("merge-base", "HEAD", "main")
    if base == git("rev-parse", "HEAD"):
        base = git("rev-parse", "HEAD~1")
    tracked = git("diff", "--name-only", base).splitlines()
    return tracked + git("ls-files", "--others", "--exclude-standard").splitlines()


def apply(rules: Rules, path: str, stages: dict[str, None], suites: dict[str, None]) -> bool:
    for start, its_stages, its_suites in rules:
        if path.startswith(start):
            stages |= dict.fromkeys(its_stages)
            suites |= dict.fromkeys(its_suites)
            return True
    return False


def choose(paths: list[str]) -> tuple[list[str], list[str]]:
    stages: dict[str, None] = {}
    suites: dict[str, None] = {}
    for path in paths:
        if path.startswith("tests/cpp/") and path.count("/") > 2:
            stages["ctest"] = suites[path.split("/")[2]] = None
        if not apply(RULES, path, stages, suites):
            own_stages, own_suites = named(path)
            stages |= dict.fromkeys(sorted(own_stages))
            suites |= dict.fromkeys(sorted(own_suites))
            if not own_stages:
                apply(REST, path, stages, suites)
    return list(stages), [suite for suite in suites if suite != "support"]


if __name__ == "__main__":
    stages, suites = choose(changed())
    if not stages:
        sys.exit("nothing has changed that a stage tests")
    print(" ".join(stages))
    print(" ".join(suites))
