"""What the pages name exists: options, variables, examples, and the pages themselves as one finds them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from blocks import PAGES, ROOT

UPSTREAM = {"HOROVOD_GPU_OPERATIONS"}  # named because it is not needed
PARTS = {"digits.py", "image_folder.py", "mxnet_digits.py", "resnet.py"}  # of other examples


def sources() -> str:
    files = [path for folder in ("src", "python/horovod", "examples") for path in (ROOT / folder).rglob("*.*")]
    return "\n".join(path.read_text() for path in files if path.suffix in (".py", ".cc", ".h"))


@pytest.fixture(scope="module")
def known_variables() -> set[str]:
    return set(re.findall(r"\b_?HOROVOD_[A-Z_]*[A-Z]\b", sources()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_variables_are_read_somewhere(page: Path, known_variables: set[str]) -> None:
    named = set(re.findall(r"\b_?HOROVOD_[A-Z_]*[A-Z]\b(?!_?\*)", page.read_text()))
    assert named - UPSTREAM <= known_variables


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_are_those_of_the_program(page: Path) -> None:
    options = set(re.findall(r"`(--?[a-z][a-z-]*)[` ]", (ROOT / "docs/options.md").read_text()))
    options |= {"--print-completion", "--print-man", "--print-markdown", "--print-options"}
    for command in re.findall(r"(?:^|`|exec )horovodrun ([^\n`#]*)", page.read_text(), re.MULTILINE):
        words = re.split(r" (?=python\b|\.venv/|/\S*python)", command)[0].split()
        for word in words:
            if word.startswith("--"):
                assert word.partition("=")[0] in options, f"{page.name}: horovodrun {command}"


def test_every_example_is_listed_and_every_listed_one_exists() -> None:
    text = (ROOT / "examples/README.md").read_text()
    files = [path for path in (ROOT / "examples").rglob("*") if path.suffix in (".py", ".sh", ".ipynb")]
    there = {str(path.relative_to(ROOT)) for path in files if path.name not in PARTS}
    assert set(re.findall(r"examples/[\w/]+\.(?:py|sh|ipynb)", text)) - {"examples/x.py"} == there


def test_a_page_opens_with_a_sentence_that_says_what_it_is_about() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        lines = page.read_text().splitlines()
        assert lines[0].startswith("# ") and lines[1] == "", page.name
        assert re.match(r"[A-Z`*\[]", lines[2]), page.name
        assert "question this page answers" not in page.read_text(), page.name


def test_the_version_is_the_same_everywhere() -> None:
    made = re.search(r"project\(horovod VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    released = re.search(r"^## \[([0-9.]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert made and released and cited
    assert made[1] == released[1] == cited[1]


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("*.md")], ids=lambda page: page.name)
def test_links_lead_to_files_of_the_repository(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```$|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), f"{page.name}: {link}"
