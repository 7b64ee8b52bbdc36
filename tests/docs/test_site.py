"""The site is built without a warning, has every page, and shows pages as they are meant.

test_layout.py looks at it in a browser, test_reference.py at the reference that is made from the sources.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from blocks import ROOT
from building import build

STRAY = (
    "# Stray\n\nNobody links here, and [this](nowhere.md) leads nowhere. Nor does [that](install.md#no-such-part).\n"
)


def test_every_page_is_there(site: Path) -> None:
    expected = {page.stem for page in (ROOT / "docs").glob("*.md")}
    assert expected <= {page.stem for page in site.glob("*.html")}


def test_a_linked_file_is_a_page(site: Path) -> None:
    assert 'href="source/examples/numpy_digits.py.html"' in (site / "numpy.html").read_text()
    assert "load_digits" in (site / "source/examples/numpy_digits.py.html").read_text()


def test_no_markdown_is_left_in_what_readers_see(site: Path) -> None:
    """A list without an empty line before it, or a block inside a list, is a list or block on GitHub, but not here."""
    for page in site.glob("*.html"):
        text = re.sub(r"<pre.*?</pre>", "", page.read_text(), flags=re.DOTALL)
        assert "```" not in text, page
        for paragraph in re.findall(r"<p>(.*?)</p>", text, flags=re.DOTALL):
            assert not re.search(r"^(\* |\d+\. |\| )", paragraph, re.MULTILINE), (page.name, paragraph)


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        found = re.findall(r'(?:<script[^>]*src|<link[^>]*href|<img[^>]*src)="(https?:[^"]*)"', page.read_text())
        assert not found, page


def test_mistakes_are_reported(tmp_path: Path) -> None:
    """A page that is not in the navigation, and links to pages and parts that do not exist."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    for each in ROOT.iterdir():
        if not (tmp_path / each.name).exists() and not each.name.startswith("."):
            (tmp_path / each.name).symlink_to(each)
    (tmp_path / "docs/stray.md").write_text(STRAY)
    result = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert result.returncode != 0
    reported = " ".join(line for line in result.stderr.splitlines() if "INFO" not in line)
    assert re.search(r'not included in the "nav" configuration:\s+- stray.md', reported), reported
    assert "'nowhere.md'" in reported
    assert "no-such-part" in reported
