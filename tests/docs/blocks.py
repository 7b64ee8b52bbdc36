"""The fenced blocks of the project's pages, and what the pages say about running them.

<!-- not run: why -->     before a block of sh: the test does not run it
<!-- file: train.py -->   before a block: it is a file, for the commands that follow
<!-- output -->           before a block: lines that the commands before it write, in any order
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples/README.md", *(ROOT / "docs").glob("*.md")]
)
FENCE = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*) -->\n)?^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass
class Block:
    page: str
    line: int
    language: str
    text: str
    note: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def told(self, word: str) -> str | None:
        """What the note says after `word:`, or None."""
        return self.note.partition(":")[2].strip() if self.note.startswith(f"{word}:") else None


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            page=str(page.relative_to(ROOT)),
            line=text.count("\n", 0, fence.start("language")) + 1,
            language=fence["language"],
            text=fence["text"],
            note=fence["note"] or "",
        )
        for fence in FENCE.finditer(text)
    ]
