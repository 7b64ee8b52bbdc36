"""The README as the wheel's metadata shows it. Package indexes display it outside the repository, so each relative link
becomes one to the file in the repository that pyproject.toml names, at the tag of the release. The build backend calls
`dynamic_metadata`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def with_absolute_links(text: str, repository: str, version: str) -> str:
    def absolute(link: re.Match[str]) -> str:
        target = link["target"]
        if re.match(r"[a-z]+:|#", target):
            return link[0]
        kind = "raw" if link["image"] else "blob"
        return f"{link['image']}[{link['text']}]({repository}/{kind}/v{version}/{target})"

    return LINK.sub(absolute, text)


def dynamic_metadata(field: str, _settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, str]:
    if field != "readme":
        raise ValueError(f"this makes the readme, not the {field}")
    repository = re.search(r'(?m)^Repository = "(.+)"$', Path("pyproject.toml").read_text())
    if repository is None:
        raise ValueError("pyproject.toml has no Repository under [project.urls]")
    text = with_absolute_links(Path("README.md").read_text(), repository[1], project["version"])
    return {"content-type": "text/markdown", "text": text}
