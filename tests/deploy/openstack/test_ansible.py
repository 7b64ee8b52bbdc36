"""The playbook and its roles, without hosts: lint, syntax, and that all settings are in one place."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from deployment import DEPLOY, TOOLS, why_not

ANSIBLE = DEPLOY / "ansible"
ROLES = {"common", "nfs", "docker", "horovod_master", "horovod_worker", "jupyter"}


def run(command: str, *words: str, folder: Path) -> str:
    if reason := why_not():
        pytest.skip(reason)
    env = os.environ | {"PATH": f"{TOOLS}:{os.environ['PATH']}", "NO_COLOR": "1", "ANSIBLE_HOME": str(folder)}
    result = subprocess.run(
        [TOOLS / command, *words], cwd=ANSIBLE, env=env, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def test_ansible_lint_finds_nothing(tmp_path: Path) -> None:
    said = run("ansible-lint", "--offline", "--project-dir", str(ANSIBLE), folder=tmp_path)
    assert "Passed" in said and "0 failure(s), 0 warning(s)" in said, said


def test_the_playbook_names_the_roles_and_every_task(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory"
    inventory.write_text("[master_nodes]\nm node_address=10.77.0.2\n[worker_nodes]\nw node_address=10.77.0.3\n")
    said = run("ansible-playbook", "-i", str(inventory), "--syntax-check", "site.yaml", folder=tmp_path)
    assert "playbook: site.yaml" in said
    plays = yaml.safe_load((ANSIBLE / "site.yaml").read_text())
    assert {role for play in plays for role in play["roles"]} == ROLES


def test_every_setting_is_in_group_vars_and_used() -> None:
    settings = set(yaml.safe_load((ANSIBLE / "group_vars/all.yaml").read_text()))
    text = "".join(path.read_text() for path in (ANSIBLE / "roles").rglob("*") if path.is_file())
    assert {name for name in settings if not re.search(rf"\b{name}\b", text)} == set()
