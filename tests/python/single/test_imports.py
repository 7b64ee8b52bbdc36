"""The packages import each other in one direction only: _native <- _generic <- common <- frameworks, without cycles.

An import inside a function counts as well, unless a comment on its line says why it is there.
"""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[3] / "python/horovod"
LAYERS = ["_native", "_generic", "common"]  # everything else is above these
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


def layer_of(module: str) -> int:
    part = module.partition(".")[2].partition(".")[0]
    return LAYERS.index(part) if part in LAYERS else len(LAYERS)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def import_nodes(node: ast.AST, lines: list[str], in_function: bool = False) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports that count."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            if not (in_function and "#" in lines[child.lineno - 1]):
                yield child
        elif not is_type_checking(child):
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from import_nodes(child, lines, in_function or is_function)


def imports_of(text: str) -> set[str]:
    """The modules of this package that a source imports."""
    found: set[str] = set()
    for node in import_nodes(ast.parse(text), text.splitlines()):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            assert node.level == 0, "imports are absolute here"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else str(node.module))
    return found & set(MODULES)


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    return {module: imports_of(path.read_text()) for module, path in MODULES.items()}


def test_imports_follow_the_layers(graph: dict[str, set[str]]) -> None:
    wrong = [
        f"{module} imports {other}"
        for module, others in graph.items()
        for other in others
        if layer_of(other) > layer_of(module)
    ]
    assert sorted(wrong) == []


def test_there_are_no_cycles(graph: dict[str, set[str]]) -> None:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" <- ".join(error.args[1]), pytrace=False)


def test_imports_are_found() -> None:
    text = """
from horovod.common import basics
from horovod.common.exceptions import HorovodInternalError
def f():
    import horovod.torch
    from horovod.runner import launch  # only when it is called
if TYPE_CHECKING:
    import horovod.keras
"""
    assert imports_of(text) == {"horovod.common.basics", "horovod.common.exceptions", "horovod.torch"}
