"""deploy/openstack under test: a copy of it, a stand-in for the cloud, and Terraform.

cluster = Deployment(folder, addresses=["10.77.0.2", "10.77.0.3"])
cluster.terraform("apply", "-auto-approve")
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
DEPLOY = ROOT / "deploy/openstack"
TOOLS = ROOT / ".venv-cloud/bin"

RESOURCES = """
openstack_provider = ({{ tenant_name = "horovod", auth_url = "https://cloud.test:5000/v3" }})
horovod_master_node = ({{ name = "master", flavor_name = "m2.medium", image_id = "ubuntu", key_pair = "mine", floating_ip = "{floating_ip}" }})
horovod_worker_node = ({{ name = "worker", count = {workers}, flavor_name = "m2.medium", image_id = "ubuntu", key_pair = "mine" }})
horovod_network = ({{ network_subnet_range = "10.77.0.0/24" }})
"""  # noqa: E501
PASSWORD = "not-to-be-shown"


def why_not() -> str | None:
    """None, or why Terraform and Ansible cannot be run here."""
    return None if (TOOLS / "ansible-playbook").exists() else "no Terraform and Ansible: make .venv-cloud/stamp"


class Deployment:
    """Runs Terraform here, or in a host of a test bed (`run` is then that of the machine)."""

    def __init__(
        self,
        folder: Path,
        addresses: Sequence[str],
        *,
        workers: int = 1,
        floating_ip: str = "203.0.113.5",
        variables: dict[str, Any] | None = None,
        run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run,
    ) -> None:
        self.module, self.cloud, self._run = folder / "openstack", folder / "cloud", run
        shutil.copytree(DEPLOY, self.module)
        (self.module / "auth_data.auto.tfvars").write_text(
            f'auth_data = ({{ user_name = "me", password = "{PASSWORD}" }})\n'
        )
        self._floating_ip = floating_ip
        self.set_workers(workers)
        (self.module / "test.auto.tfvars.json").write_text(json.dumps(variables or {}))
        plugins = folder / "plugins"
        plugins.mkdir()
        provider = plugins / "terraform-provider-openstack"
        provider.write_text(f"#!/bin/sh\nexec '{TOOLS}/python' '{HERE}/standin.py' \"$@\"\n")
        provider.chmod(0o755)
        settings = folder / "terraform.rc"
        overrides = f'dev_overrides {{ "terraform-provider-openstack/openstack" = "{plugins}" }}'
        settings.write_text(f"provider_installation {{\n  {overrides}\n  direct {{}}\n}}\n")
        self._env = os.environ | {
            "TF_CLI_CONFIG_FILE": str(settings),
            "TF_IN_AUTOMATION": "1",
            "CHECKPOINT_DISABLE": "1",
            "STANDIN_CLOUD": str(self.cloud),
            "STANDIN_ADDRESSES": ",".join(addresses),
            "PATH": f"{TOOLS}:{os.environ['PATH']}",
            "ANSIBLE_NOCOLOR": "1",
        }

    def set_workers(self, count: int) -> None:
        text = RESOURCES.format(workers=count, floating_ip=self._floating_ip)
        (self.module / "resources.auto.tfvars").write_text(text)

    def terraform(self, *words: str, code: int = 0, limit: float = 120) -> str:
        """Its output; another exit code than `code` fails the test with all that was said."""
        command = [str(TOOLS / "python"), str(HERE / "terraform.py"), words[0], *words[1:]]
        if words[0] in ("plan", "apply", "destroy", "validate"):
            command.append("-no-color")
        result = self._run(
            command, cwd=self.module, env=self._env, capture_output=True, text=True, stdin=subprocess.DEVNULL,
            timeout=limit,
        )  # fmt: skip
        said = result.stdout + result.stderr
        assert result.returncode == code, f"terraform {' '.join(words)}: exit code {result.returncode}\n{said}"
        return said if words[0] != "output" else result.stdout

    def outputs(self) -> dict[str, Any]:
        return {name: each["value"] for name, each in json.loads(self.terraform("output", "-json")).items()}

    def things(self, kind: str) -> list[dict[str, Any]]:
        """What exists in the stand-in's cloud."""
        found = [json.loads(path.read_text()) for path in self.cloud.glob("*.json")]
        return [thing for thing in found if thing["kind"] == kind]

    def inventory(self) -> dict[str, Any]:
        loaded = yaml.safe_load((self.module / "generated/inventory.yaml").read_text())
        assert isinstance(loaded, dict)
        return loaded
