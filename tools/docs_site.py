"""Makes the site from pages that are written to be read in the repository. A hook of MkDocs, see mkdocs.yml.

Links: in the repository `../examples/numpy_digits.py` is a file. The site has docs/ alone, so each file that is linked
to becomes a page of it, under source/, and the links are changed to lead there. What does not exist is left as it is,
and MkDocs complains about it.

Reference: tools/api_reference.py makes a page for each public module and for the C header, under reference/. Links to
the file of such a module lead there.

Tables: cells learn the headings of their columns, which assets/site.css shows on phones.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))
import api_reference

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

LINK = re.compile(r"(?<=\]\()(?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?(?=\))")
CODE = re.compile(r"^(```|~~~~).*?^\1$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
REFERENCE = {
    api_reference.HEADER: "reference/horovod.h.md",
    **{api_reference.path_of(name): f"reference/{name}.md" for name in api_reference.PAGES},
}
LANGUAGES = {".py": "python", ".sh": "bash", ".h": "c", ".yaml": "yaml", ".yml": "yaml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    root = Path(config.docs_dir).parent
    for name in [*api_reference.PAGES, "horovod.h"]:
        files.append(File.generated(config, f"reference/{name}.md", content=api_reference.page(name)))
    waiting = [(f"docs/{file.src_uri}", file.content_string) for file in files.documentation_pages()]
    while waiting:
        page, text = waiting.pop()
        for path in linked(page, text):
            if files.get_file_from_path(site_path(path)) or not (root / path).is_file():
                continue
            content = as_page(path, (root / path).read_text())
            files.append(File.generated(config, site_path(path), content=content))
            waiting.append((path, content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = page.file.src_uri
    original = here.removeprefix("source/") if here.startswith("source/") else f"docs/{here}"

    def lead_to_site(link: re.Match[str]) -> str:
        target = site_path(resolve(original, link["path"]))
        if not files.get_file_from_path(target):
            return link[0]
        return posixpath.relpath(target, posixpath.dirname(here) or ".") + (link["anchor"] or "")

    return outside_code(markdown, lambda text: LINK.sub(lead_to_site, text))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return TABLE.sub(lambda table: labelled(table[0]), html)


def labelled(table: str) -> str:
    """The table, with the heading of its column in every cell of a row of three and more, and short words marked."""
    headings = [re.sub(r"<[^>]*>", "", each) for each in re.findall(r"<th[^>]*>(.*?)</th>", table, re.DOTALL)]
    table = re.sub(r"<code>(?=[^<\s]{1,40}</code>)", '<code class="whole">', table)
    if len(headings) < 3:
        return table

    def with_labels(row: re.Match[str]) -> str:
        labels = iter([f' data-label="{heading}"' if heading else "" for heading in headings])
        return '<tr data-cells="{}">{}</tr>'.format(
            len(headings), re.sub(r"<td(?=[ >])", lambda _: "<td" + next(labels), row[1])
        )

    return re.sub(r"<tr>(.*?)</tr>", with_labels, table, flags=re.DOTALL)


def resolve(page: str, link: str) -> str:
    """The path in the repository that a link of this page means."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def site_path(path: str) -> str:
    """Where the site has a file of the repository."""
    if path in REFERENCE:
        return REFERENCE[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def linked(page: str, text: str) -> set[str]:
    """Files outside docs/ that the page links to, as paths in the repository."""
    found = {resolve(page, link["path"]) for link in LINK.finditer(CODE.sub("", text))}
    return {path for path in found if not path.startswith(("docs/", "../"))}


def as_page(path: str, text: str) -> str:
    if path.endswith(".md"):
        return text
    if path.endswith(".ipynb"):
        cells = [("".join(cell["source"]), cell["cell_type"]) for cell in json.loads(text)["cells"]]
        return "\n\n".join(source if kind == "markdown" else fenced("python", source) for source, kind in cells)
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"# {path}\n\n{fenced(language, text)}"


def fenced(language: str, text: str) -> str:
    return f"~~~~{language}\n{text.rstrip()}\n~~~~\n"


def outside_code(markdown: str, change: Callable[[str], str]) -> str:
    done, parts = 0, []
    for code in CODE.finditer(markdown):
        parts += [change(markdown[done : code.start()]), code[0]]
        done = code.end()
    return "".join([*parts, change(markdown[done:])])
