"""The reference has every public name of the packages, with its signature and what it does."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from blocks import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import api_reference

MODULES = [(page, module) for page, wanted in api_reference.PAGES.items() for module in wanted.modules]


def listed(module: str) -> list[str]:
    """What the module says is public."""
    loaded = api_reference.load(module)
    assert loaded is not None
    return [name for name in api_reference.listed_names(loaded) if not name.startswith("_")]


@pytest.mark.parametrize(("page", "module"), MODULES, ids=[module for _, module in MODULES])
def test_every_public_name_is_there_with_a_text(page: str, module: str) -> None:
    text = api_reference.page(page)
    for name in listed(module):
        if api_reference.path_of(f"{module}.{name}"):
            continue  # a module: it has a page or part of its own
        part = re.search(rf"^#+ `{name}` {{ #{re.escape(module)}\.{name} }}$(.*?)(?=^#|\Z)", text, re.M | re.S)
        assert part, f"{module}.{name} is missing"
        prose = re.sub(r"```.*?```", "", part[1], flags=re.S).strip()
        assert len(prose) > 10, f"{module}.{name} says nothing"


def test_names_that_all_packages_share_are_listed() -> None:
    for module in ("horovod.numpy", "horovod.torch", "horovod.tensorflow", "horovod.keras", "horovod.tensorflow.keras"):
        assert {"init", "rank", "Average", "ProcessSet", "HorovodInternalError"} <= set(listed(module))


def test_names_that_are_assigned_have_the_signature_of_their_function() -> None:
    text = api_reference.page("horovod.torch")
    assert "broadcast_(\n    tensor: T,\n    root_rank: int,\n" in text
    assert "rank() -> int" in text
    assert "no_sync() -> " in text  # of the optimizer that DistributedOptimizer returns


def test_the_header_has_all_its_functions() -> None:
    text = api_reference.page("horovod.h")
    header = (ROOT / api_reference.HEADER).read_text()
    functions = set(re.findall(r"^HVD_EXPORT [^;(]*?(hvd_\w+)\(", header, re.MULTILINE))
    assert len(functions) > 50
    assert functions <= set(re.findall(r"^### `(\w+)`", text, re.MULTILINE))


def test_guides_lead_to_the_reference(site: Path) -> None:
    for guide in ("torch", "tensorflow", "numpy", "elastic", "runner"):
        article = (site / f"{guide}.html").read_text().partition("<article")[2].partition("</article>")[0]
        assert 'href="reference/horovod' in article, guide
