"""The chart as Helm renders it: its resources, and the files that pods find in /horovod/generated."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[3] / "deploy/helm/horovod"
HELM = Path(sys.executable).parent / "helm"
Values = dict[str, Any]
Resource = dict[str, Any]


def helm(*arguments: str | os.PathLike[str], values: Values | None = None) -> subprocess.CompletedProcess[str]:
    """Runs helm; the values are given as a file."""
    text = yaml.safe_dump(values or {})
    command = [HELM, *arguments, *(["--values", "-"] if values is not None else [])]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)


class Rendered:
    def __init__(self, text: str) -> None:
        self.text = text
        self.resources: list[Resource] = [each for each in yaml.safe_load_all(text) if each]

    def find(self, kind: str, name: str | None = None) -> Resource:
        (found,) = [
            each for each in self.resources if each["kind"] == kind and name in (None, each["metadata"]["name"])
        ]
        return found

    def names(self, kind: str) -> list[str]:
        return sorted(each["metadata"]["name"] for each in self.resources if each["kind"] == kind)

    def pod(self, kind: str, name: str | None = None) -> Resource:
        """The pod's specification in a Job or StatefulSet."""
        spec: Resource = self.find(kind, name)["spec"]["template"]["spec"]
        return spec

    def data(self) -> dict[str, str]:
        config: dict[str, str] = self.find("ConfigMap")["data"]
        return config

    def write_files(self, spec: Resource, folder: Path) -> Path:
        """What the kubelet makes of the ConfigMap for a pod: files with their names and modes."""
        folder.mkdir(exist_ok=True)
        (volume,) = [each for each in spec["volumes"] if each["name"] == "generated"]
        for item in volume["configMap"]["items"]:
            path = folder / item["path"]
            path.unlink(missing_ok=True)
            path.write_text(self.data()[item["key"]])
            path.chmod(item["mode"])
        return folder


def render(values: Values | None = None, release: str = "demo") -> Rendered:
    return Rendered(_template(release, json.dumps(values or {})))


@functools.cache
def _template(release: str, values: str) -> str:
    result = helm("template", release, CHART, "--namespace", "lab", values=json.loads(values))
    assert result.returncode == 0, result.stderr
    return result.stdout


def refusal(values: Values) -> str:
    """Why Helm does not take these values."""
    result = helm("template", "demo", CHART, values=values)
    assert result.returncode != 0, result.stdout
    return result.stderr
