"""Writes the reference of the Python packages and of the C header as Markdown. tools/docs_site.py puts it on the site.

    tools/api_reference.py horovod.torch      # prints one page; without a name, lists the pages

The sources are read, not imported, so no framework is needed. Most public names are not defined where scripts find
them: they are imported from elsewhere, or assigned, as in `allreduce = outside_graphs(_collectives.allreduce)`. So each
name is followed to its function or class: through imports, to the class of an object, and to the bases of a class.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADER = "include/horovod/horovod.h"

RUNNER = [
    "horovod.runner",
    "horovod.runner.launch",
    "horovod.runner.gloo_run",
    "horovod.runner.mpi_run",
    "horovod.runner.js_run",
    "horovod.runner.common.util.hosts",
    "horovod.runner.common.util.settings",
    "horovod.runner.common.util.config_parser",
    "horovod.runner.common.util.env",
    "horovod.runner.common.util.secret",
    "horovod.runner.common.util.codec",
    "horovod.runner.common.util.timeout",
    "horovod.runner.common.util.host_hash",
    "horovod.runner.common.util.network",
    "horovod.runner.common.util.safe_shell_exec",
    "horovod.runner.util.threads",
    "horovod.runner.util.streams",
    "horovod.runner.util.cache",
    "horovod.runner.util.lsf",
    "horovod.runner.util.remote",
    "horovod.runner.elastic.discovery",
    "horovod.runner.elastic.settings",
]


@dataclass(frozen=True)
class PageOfModules:
    modules: list[str]
    guide: str  # page of docs/


PAGES = {
    "horovod": PageOfModules(["horovod"], "runner.md"),
    "horovod.torch": PageOfModules(["horovod.torch"], "torch.md"),
    "horovod.torch.elastic": PageOfModules(["horovod.torch.elastic"], "elastic.md"),
    "horovod.torch.lightning": PageOfModules(["horovod.torch.lightning"], "torch.md"),
    "horovod.tensorflow": PageOfModules(["horovod.tensorflow"], "tensorflow.md"),
    "horovod.tensorflow.elastic": PageOfModules(["horovod.tensorflow.elastic"], "elastic.md"),
    "horovod.tensorflow.data": PageOfModules(
        ["horovod.tensorflow.data", "horovod.tensorflow.data.compute_service"], "tensorflow.md"
    ),
    "horovod.tensorflow.keras": PageOfModules(
        ["horovod.tensorflow.keras", "horovod.tensorflow.keras.callbacks", "horovod.tensorflow.keras.elastic"],
        "tensorflow.md",
    ),
    "horovod.keras": PageOfModules(
        ["horovod.keras", "horovod.keras.callbacks", "horovod.keras.elastic"], "tensorflow.md"
    ),
    "horovod.jax": PageOfModules(["horovod.jax"], "jax.md"),
    "horovod.jax.elastic": PageOfModules(["horovod.jax.elastic"], "elastic.md"),
    "horovod.mxnet": PageOfModules(["horovod.mxnet"], "mxnet.md"),
    "horovod.mxnet.elastic": PageOfModules(["horovod.mxnet.elastic"], "elastic.md"),
    "horovod.numpy": PageOfModules(["horovod.numpy"], "numpy.md"),
    "horovod.tracking": PageOfModules(
        ["horovod.tracking", "horovod.tracking.lightning", "horovod.tracking.keras"], "tracking.md"
    ),
    "horovod.common": PageOfModules(
        ["horovod.common.elastic", "horovod.common.exceptions", "horovod.common.process_sets"], "elastic.md"
    ),
    "horovod.runner": PageOfModules(RUNNER, "runner.md"),
}

# Sections of a page, and what the names in each look like. The first that fits takes the name.
SECTIONS = {
    "Start and end": r"init|shutdown|is_initialized|(start|stop)_timeline",
    "Ranks": r"(local_|cross_)?(rank|size)|is_homogeneous",
    "Training": r".*Optimizer|.*Tape|broadcast_(parameters|optimizer_state|(global_)?variables)|SyncBatch.*|Compression"
    r"|load_model|.*Hook|callbacks|elastic",
    "Objects": r".*_object(_fn)?",
    "Process sets": r"ProcessSet|.*_process_set",
    "Handles": r"poll|synchronize",
    "Collectives": r"_?(grouped_|sparse_)?(allreduce|allgather|broadcast|alltoall|reducescatter|barrier|join).*",
    "Reduce operations": r"Average|Sum|Min|Max|Product|Adasum",
    "What is built": r".*_(built|enabled)|mpi_threads_supported|gpu_available",
    "Ranks in graphs": r".*_op",
}

# Values have no docstrings.
VALUES = {
    "Average": "The mean over the ranks; the default of `op=`.",
    "Sum": "The sum over the ranks.",
    "Min": "The smallest element over the ranks.",
    "Max": "The largest element over the ranks.",
    "Product": "The product over the ranks.",
    "Adasum": "Adaptive summation: combines gradients by their directions. Do not scale the learning rate with it.",
    "global_process_set": "The process set of all ranks, and the default of `process_set=`.",
    "notification_manager": "Tells states about changed hosts.",
}
# The result of a function, if its class deserves its own section.
RETURNED = {("horovod.torch", "DistributedOptimizer"): ("horovod.torch.optimizer.distributed", "DistributedMethods")}
# Objects that are made by a call of which the sources do not tell the outcome.
MADE_BY = {"module_for": "horovod._keras.on_tensorflow"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    name: str
    text: str
    tree: ast.Module
    bound: dict[str, ast.AST] = field(default_factory=dict)  # the last binding of each name


@dataclass(frozen=True)
class Found:
    """What a name means: a function, a class, a module, or another value."""

    module: Module
    node: ast.AST


def path_of(name: str) -> str | None:
    """The file of a module in the repository, if there is one."""
    base = f"python/{name.replace('.', '/')}"
    return next((path for path in (f"{base}/__init__.py", f"{base}.py") if (ROOT / path).is_file()), None)


@cache
def load(name: str) -> Module | None:
    path = path_of(name)
    if path is None:
        return None
    text = (ROOT / path).read_text()
    module = Module(name, text, ast.parse(text))
    for node in statements(module.tree.body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            module.bound[node.name] = node
        elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            source = load(node.module or "")
            module.bound.update(dict.fromkeys(listed_names(source), node) if source else {})
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            module.bound.update({alias.asname or alias.name: node for alias in node.names})
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                module.bound.update({each.id: node for each in names if isinstance(each, ast.Name)})
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            module.bound[node.target.id] = node
    return module


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a module, also inside `if` and `try`; what comes first wins there."""
    for node in body:
        if isinstance(node, ast.If):
            yield from statements([*node.orelse, *node.body])
        elif isinstance(node, ast.Try):
            yield from statements(node.body)
        else:
            yield node


def resolve(module: Module, name: str) -> Found | None:
    node = module.bound.get(name)
    if node is None and name in (lazy := lazy_names(module)):
        source = load(lazy[name])
        return resolve(source, name) if source else None
    is_own_module = isinstance(node, ast.ImportFrom) and node.module == module.name
    if node is None or is_own_module:
        inner = load(f"{module.name}.{name}")
        return Found(inner, inner.tree) if inner else None
    if isinstance(node, ast.ImportFrom):
        original = next((alias.name for alias in node.names if (alias.asname or alias.name) == name), name)  # or by *
        source = load(node.module or "")
        return resolve(source, original) if source else None
    if isinstance(node, ast.Import):
        return None
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        return follow(module, node.value) or Found(module, node)
    return Found(module, node)


def follow(module: Module, value: ast.expr) -> Found | None:
    """What an expression on the right of an assignment means, if that is a function or class."""
    if isinstance(value, ast.Name):
        return resolve(module, value.id)
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
        owner = module.bound.get(value.value.id)
        if isinstance(owner, ast.Assign) and isinstance(owner.value, ast.Call):
            return member(module, owner.value, value.attr)
        within = resolve(module, value.value.id)
        if within and isinstance(within.node, ast.Module):
            return resolve(within.module, value.attr)
    if isinstance(value, ast.Call) and len(value.args) == 1 and isinstance(value.args[0], ast.Attribute):
        return follow(module, value.args[0])  # a wrapper around it
    return None


def member(module: Module, made: ast.Call, name: str) -> Found | None:
    """A method of the object that a call of its class makes."""
    if not isinstance(made.func, ast.Name):
        return None
    if made.func.id in MADE_BY:
        source = load(MADE_BY[made.func.id])
        return resolve(source, name) if source else None
    cls = resolve(module, made.func.id)
    if cls and isinstance(cls.node, ast.FunctionDef):  # it defines classes, and returns them under their names
        inner = next((each for each in cls.node.body if isinstance(each, ast.ClassDef) and each.name == name), None)
        return Found(cls.module, inner) if inner else None
    return methods(cls).get(name) if cls and isinstance(cls.node, ast.ClassDef) else None


def methods(cls: Found) -> dict[str, Found]:
    """All methods of a class, with those of its bases that are in this package."""
    found: dict[str, Found] = {}
    assert isinstance(cls.node, ast.ClassDef)
    for base in reversed(cls.node.bases):
        expression = base.value if isinstance(base, ast.Subscript) else base
        above = follow(cls.module, expression)
        if above and isinstance(above.node, ast.ClassDef):
            found.update(methods(above))
    for node in cls.node.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found[node.name] = Found(cls.module, node)
    return found


def public_names(module: Module) -> list[str]:
    """`__all__`, and what is loaded on first use; or else what is defined there."""
    listed = listed_names(module)
    if listed:
        names = [*listed, *lazy_names(module)]
    else:
        own = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        names = [name for name, node in module.bound.items() if isinstance(node, own)]
    return sorted({name for name in names if not name.startswith("_")}, key=lambda name: (name.lower(), name))


def lazy_names(module: Module) -> dict[str, str]:
    """Names that `__getattr__` loads on first use, with the modules that have them."""
    node = module.bound.get("_LAZY")
    return ast.literal_eval(node.value) if isinstance(node, ast.Assign) else {}


def listed_names(module: Module) -> list[str]:
    """The names in `__all__`, with those of other modules, as in `[*names.__all__, "Compression"]`."""
    node = module.bound.get("__all__")
    value = node.value if isinstance(node, ast.Assign) else None
    found: list[str] = []
    for each in value.elts if isinstance(value, ast.List) else []:
        if isinstance(each, ast.Constant):
            found.append(str(each.value))
        elif isinstance(each, ast.Starred) and isinstance(each.value, ast.Attribute):
            assert isinstance(each.value.value, ast.Name)
            other = resolve(module, each.value.value.id)
            assert other is not None, ast.unparse(each)
            found += listed_names(other.module)
    return found


# ---- Markdown


def page(name: str) -> str:
    if name == "horovod.h":
        return header_page((ROOT / HEADER).read_text())
    wanted = PAGES[name]
    lines = [
        f"# {name}",
        "",
        f"Public names, with the text of their docstrings. The guide is [{wanted.guide}](../{wanted.guide}).",
    ]
    for each in wanted.modules:
        module = load(each)
        assert module is not None, each
        if len(wanted.modules) > 1:
            lines += ["", f"## {each} {{ #{each} }}"]
        lines += ["", text_of(module.tree)]
        lines += module_parts(module, "###" if len(wanted.modules) > 1 else "##")
    return "\n".join(lines) + "\n"


def module_parts(module: Module, heading: str) -> list[str]:
    parts: dict[str, list[str]] = {section: [] for section in [*SECTIONS, "Other names"]}
    for name in public_names(module):
        section = next((title for title, names in SECTIONS.items() if re.fullmatch(names, name)), "Other names")
        parts[section] += name_part(module, name, heading + "#")
    filled = {section: lines for section, lines in parts.items() if lines}
    result: list[str] = []
    for section, lines in filled.items():
        if len(filled) > 1:
            anchor = f"{module.name}-{section}".lower().replace(" ", "-")
            result += ["", f"{heading} {section} {{ #{anchor} }}"]
        result += lines
    return result


def name_part(module: Module, name: str, heading: str) -> list[str]:
    found = resolve(module, name)
    if found is None:
        return []
    if isinstance(found.node, ast.Module):
        place = next((page for page, wanted in PAGES.items() if found.module.name in wanted.modules), None)
        return ["", f"The module [`{found.module.name}`]({place}.md)."] if place else []
    title = f"{heading} `{name}` {{ #{module.name}.{name} }}"
    if isinstance(found.node, ast.ClassDef):
        return ["", title, *class_part(found, name)]
    if isinstance(found.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        lines = ["", title, "", signature(found.node, name), "", text_of(found.node)]
        if returned := RETURNED.get((module.name, name)):
            source = load(returned[0])
            cls = resolve(source, returned[1]) if source else None
            assert cls is not None, returned
            lines += ["", "What it returns has these methods besides those of the given optimizer:"]
            lines += method_parts(cls)
        return lines
    text = VALUES.get(name, "")
    return ["", title, "", text] if text else []


def class_part(cls: Found, name: str) -> list[str]:
    assert isinstance(cls.node, ast.ClassDef)
    init = methods(cls).get("__init__")
    shown = [signature(init.node, name), ""] if init and isinstance(init.node, Function) else []
    fields = [
        ast.unparse(each)
        for each in cls.node.body
        if isinstance(each, (ast.Assign, ast.AnnAssign)) and not ast.unparse(each).startswith("_")
    ]
    if not shown and fields:
        shown = [fenced("\n".join([f"class {name}:", *(f"    {each}" for each in fields)])), ""]
    return ["", *shown, text_of(cls.node), *method_parts(cls)]


def method_parts(cls: Found) -> list[str]:
    lines: list[str] = []
    for name, method in sorted(methods(cls).items()):
        if name.startswith("_") or not isinstance(method.node, Function):
            continue
        if text := text_of(method.node):
            decorators = {ast.unparse(each) for each in method.node.decorator_list}
            is_value = any("property" in each for each in decorators)
            shown = f"{name}{returns(method.node)}" if is_value else one_line(method.node, name)
            lines += ["", fenced(shown), "", text]
    return lines


def text_of(node: ast.AST) -> str:
    assert isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
    return inspect.cleandoc(ast.get_docstring(node) or "")


def parameters(function: Function) -> list[str]:
    """The parameters as they are written, without `self`."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    shown = [parameter(each, default) for each, default in zip(positional, defaults, strict=True)]
    if positional and positional[0].arg in ("self", "cls"):
        shown = shown[1:]
    if given.vararg:
        shown.append("*" + parameter(given.vararg, None))
    elif given.kwonlyargs:
        shown.append("*")
    shown += [parameter(each, default) for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg:
        shown.append("**" + parameter(given.kwarg, None))
    return shown


def parameter(arg: ast.arg, default: ast.expr | None) -> str:
    text = f"{arg.arg}: {ast.unparse(arg.annotation)}" if arg.annotation else arg.arg
    if default is None:
        return text
    return f"{text} = {ast.unparse(default)}" if arg.annotation else f"{text}={ast.unparse(default)}"


def returns(function: Function) -> str:
    if function.returns is None or function.name == "__init__":
        return ""
    return f" -> {ast.unparse(function.returns)}"


def one_line(function: Function, name: str) -> str:
    return f"{name}({', '.join(parameters(function))}){returns(function)}"


def signature(function: Function, name: str) -> str:
    line = one_line(function, name)
    if len(line) > 72:
        line = "\n".join([f"{name}(", *(f"    {each}," for each in parameters(function)), f"){returns(function)}"])
    return fenced(line)


def fenced(text: str, language: str = "python") -> str:
    return f"```{language}\n{text}\n```"


# ---- the C header

COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
NAME = re.compile(r"\b(hvd_\w+)\s*\(|(?:typedef (?:enum|struct) )(hvd_\w+)|\(\*(hvd_\w+)\)|(hvd_handle);")
ITEM = re.compile(
    r"(?P<comment>^/\*(?:[^*]|\*(?!/))*\*/\n)?"
    r"(?P<code>^(?:typedef (?:enum|struct)[^;{]*\{.*?^\}[^;]*;|typedef [^{;]*;|HVD_EXPORT [^;]*;))"
    r"(?P<behind>[ ]*/\*.*?\*/)?",
    re.MULTILINE | re.DOTALL,
)
SECTION = re.compile(r"^/\* ---- (?P<title>.*?) ----(?P<text>.*?)\*/$", re.MULTILINE | re.DOTALL)


def plain(comment: str) -> str:
    """The text of a comment, without its marks."""
    text = re.sub(r"^ ?\*( |$)", "", comment.strip().removeprefix("/*").removesuffix("*/"), flags=re.MULTILINE)
    text = inspect.cleandoc(text).replace("<", "&lt;").strip()
    return re.sub(r"(?<!\n)\n(?= *- )", "\n\n", text)  # a list needs an empty line before it


def header_page(header: str) -> str:
    start, end = header.index("typedef enum hvd_code"), header.rindex("#ifdef __cplusplus")
    opening = COMMENT.search(header)
    assert opening is not None
    lines = ["# horovod.h", "", "The C interface: the only public header, C99.", "", plain(opening[0])]
    lines += ["", "## Types { #types }"]
    body = header[start:end]
    at = 0
    marks = sorted([*SECTION.finditer(body), *ITEM.finditer(body)], key=lambda mark: mark.start())
    for mark in marks:
        if mark.start() < at:
            continue
        at = mark.end()
        if mark.re is SECTION:
            title, _, rest = mark["title"].partition(";")
            lines += ["", f"## {title[0].upper()}{title[1:]}"]
            lines += ["", plain(f"{rest}\n{mark['text']}")] if (rest + mark["text"]).strip() else []
            continue
        names = NAME.search(mark["code"])
        name = next(filter(None, names.groups())) if names else mark["code"].split()[-1].rstrip(";")
        code = mark["code"].replace("HVD_EXPORT ", "")
        lines += [
            "",
            f"### `{name}` {{ #{name} }}",
            "",
            fenced(re.sub(r"\n {4,}(?=\S)(?!.*\{)", "\n    ", code) if "(" in code else code, "c"),
        ]
        lines += [each for comment in (mark["comment"], mark["behind"]) if comment for each in ("", plain(comment))]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) == 2:
        sys.stdout.write(page(sys.argv[1]))
    else:
        print("\n".join([*PAGES, "horovod.h"]))
