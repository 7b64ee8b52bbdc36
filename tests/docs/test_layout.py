"""In a browser: nothing of a page is cut off, on a desktop and on a phone, and the search works without a server.

Chromium is used where it is installed. Elsewhere only the rule is looked for that makes the cells of tables wrap.
"""

from __future__ import annotations

import functools
import html
import http.server
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from blocks import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
WIDTHS = (1440, 768, 390)
# A page of the same server that shows every page in a frame and writes what does not fit into itself. The frame runs
# no scripts, which saves much time; what the theme's script does to tables is done here.
LOOK = """<!DOCTYPE html><title>look</title><pre id="found">not done</pre><script>
const found = []
const parts = "table, p, li, img, h1, h2, h3, h4".split(", ").map(tag => `.md-content ${tag}`).join()
async function look(url) {
  const frame = document.createElement("iframe")
  frame.sandbox = "allow-same-origin"
  const loaded = new Promise(done => { frame.onload = done })
  frame.src = url
  document.body.append(frame)
  await loaded
  const page = frame.contentDocument
  for (const table of page.querySelectorAll(".md-typeset table:not([class])")) {
    const outer = page.createElement("div"), inner = page.createElement("div")
    outer.className = "md-typeset__scrollwrap"
    inner.className = "md-typeset__table"
    table.replaceWith(outer)
    outer.append(inner)
    inner.append(table)
  }
  for (const width of WIDTHS) {
    frame.style.cssText = `width:${width}px;height:800px;border:0`
    const edge = page.querySelector(".md-content").getBoundingClientRect().right + 1
    if (page.documentElement.scrollWidth > width) found.push(`${url} at ${width}: the page scrolls sideways`)
    for (const each of page.querySelectorAll(parts)) {
      const is_wider = each.clientWidth > 0 && each.scrollWidth > each.clientWidth + 8  // code has a margin
      if (is_wider || each.getBoundingClientRect().right > edge)
        found.push(`${url} at ${width}: ${each.tagName} ${each.textContent.trim().slice(0, 60)}`)
    }
  }
  frame.remove()
}
async function all() {
  for (const url of PAGES) await look(url)
  return found
}
all().catch(error => [String(error)]).then(result => {
  document.getElementById("found").textContent = JSON.stringify(result)
})
</script>"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def dom(url: str, profile: Path, seconds: int) -> str:
    """The page after its scripts have run for so long by the browser's own clock, which skips what it waits for."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    command += [f"--virtual-time-budget={seconds * 1000}", "--window-size=1500,900", "--dump-dom", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@needs_browser
def test_nothing_is_cut_off(site: Path, address: str, tmp_path: Path) -> None:
    pages = [f"/{page.relative_to(site)}" for page in [*site.glob("*.html"), *site.glob("reference/*.html")]]
    pages.remove("/404.html")
    look = LOOK.replace("WIDTHS", json.dumps(WIDTHS)).replace("PAGES", json.dumps(sorted(pages)))
    (site / "look.html").write_text(look)
    try:
        shown = re.search(r'<pre id="found">(.*?)</pre>', dom(f"{address}/look.html", tmp_path, 100), re.DOTALL)
    finally:
        (site / "look.html").unlink()
    assert shown is not None
    found = json.loads(html.unescape(shown[1]))
    assert not found, "\n".join(found)


@needs_browser
def test_the_search_works_in_a_folder(site: Path, tmp_path: Path) -> None:
    shown = dom(f"{(site / 'index.html').as_uri()}?q=allreduce", tmp_path, 20)
    assert "md-search-result__item" in shown
    assert re.search(r"\d+ matching documents", shown)


def test_cells_of_tables_wrap() -> None:
    rules = (ROOT / "docs/assets/site.css").read_text()
    cells = re.search(r"table:not\(\[class\]\) td \{(.*?)\}", rules, re.DOTALL)
    assert cells and "overflow-wrap: anywhere" in cells[1] and "min-width: 0" in cells[1]
    assert "assets/site.css" in (ROOT / "mkdocs.yml").read_text()
