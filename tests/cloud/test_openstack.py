"""deploy/openstack from `terraform apply` to `terraform destroy`: a real Terraform with a stand-in for the cloud, real
Ansible over ssh, a real Docker engine per node, Jupyter, and the training command of the tutorial.

The share is a mounted path; NFS is not in every kernel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import deployment
import image
import nodes
import pytest
from bed import Bed, Machine
from bed import why_not as why_no_bed
from deployment import Deployment

LIMIT = 900.0
FETCH = """
import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "token " + sys.argv[2]} if sys.argv[2] else {})
try:
    with urllib.request.urlopen(request, timeout=30) as answer:
        print(answer.status, answer.url, answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
"""
ADD = "import horovod.numpy as hvd, numpy as np; hvd.init(); print('sum', hvd.allreduce(np.ones(1), op=hvd.Sum))"


class Cluster:
    """A deployment that has been applied, and the hosts behind it."""

    def __init__(self, bed: Bed, deployment: Deployment) -> None:
        self.bed, self.deployment = bed, deployment
        outputs = deployment.outputs()
        self.master = self._machine(outputs["master_instance_ip"])
        self.workers = [self._machine(address) for address in outputs["worker_instance_ips"]]

    def _machine(self, address: str) -> Machine:
        return next(machine for machine in self.bed if machine.address == address)

    def docker(self, machine: Machine, *words: str, limit: float = 120) -> str:
        result = machine.run(["docker", *words], capture_output=True, text=True, timeout=limit)
        assert result.returncode == 0, f"docker {' '.join(words)} on {machine.name}: {result.stdout}{result.stderr}"
        return str(result.stdout)

    def token(self) -> str:
        logs = self.docker(self.master, "logs", "horovod_master")
        found = re.search(r"^Jupyter: (http://\S+)/lab\?token=([0-9a-fA-F]{48})$", logs, re.MULTILINE)
        assert found, logs
        assert found[1] == "http://203.0.113.5:8890"
        return found[2]

    def fetch(self, path: str, token: str = "") -> str:
        """From outside the cluster."""
        url = f"http://{self.master.address}:8890{path}"
        command = ["/usr/bin/python3", "-c", FETCH, url, token]
        result = self.bed["controller"].run(command, capture_output=True, text=True, timeout=60, check=True)
        return str(result.stdout)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := why_no_bed() or image.why_not() or deployment.why_not():
        pytest.skip(f"no cluster: {reason}")
    folder = tmp_path_factory.mktemp("cluster")
    archive = image.make(folder)
    with nodes.make_bed(["controller", "hosta", "hostb", "hostc"], folder) as bed:
        settings = {
            "horovod_image": image.NAME,
            "horovod_image_archive": str(archive),
            "share_kind": "path",
            "share_path": str(folder / "share"),
            "jupyter_in_image": True,
            "apt_update_cache": False,
            "docker_package": "docker.io",
        }
        made = Deployment(
            folder,
            [bed[name].address for name in ("hosta", "hostb", "hostc")],
            workers=1,
            variables={"ansible_variables": settings, "ssh_user": "root", "jupyter_port": 8890},
            run=bed["controller"].run,
        )
        made.terraform("apply", "-auto-approve", limit=LIMIT)
        yield Cluster(bed, made)


def changed(recap: str) -> dict[str, int]:
    """How much was changed on each node, by the recap of ansible-playbook."""
    lines = re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=0\s+failed=0\s", recap, re.MULTILINE)
    return {name: int(count) for name, count in lines}


def test_a_second_run_changes_nothing(cluster: Cluster) -> None:
    module = cluster.deployment.module
    command = [str(deployment.TOOLS / "ansible-playbook"), "-i", str(module / "generated/inventory.yaml"), "site.yaml"]
    again = cluster.bed["controller"].run(
        command, cwd=module / "ansible", capture_output=True, text=True, timeout=LIMIT
    )
    assert again.returncode == 0, again.stdout + again.stderr
    assert changed(again.stdout) == {"master": 0, "worker-1": 0}, again.stdout
    assert "No changes" in cluster.deployment.terraform("plan", "-detailed-exitcode")


def test_the_share_is_seen_in_all_containers(cluster: Cluster) -> None:
    cluster.docker(cluster.master, "exec", "horovod_master", "sh", "-c", "echo written by the master > /horovod/note")
    for worker in cluster.workers:
        assert cluster.docker(worker, "exec", "horovod_worker", "cat", "/horovod/note") == "written by the master\n"
        assert "numpy_digits.py" in cluster.docker(worker, "exec", "horovod_worker", "ls", "/examples")


def test_jupyter_answers_with_the_token_only(cluster: Cluster) -> None:
    token = cluster.token()
    assert cluster.fetch("/api/contents").strip() == "403"
    assert cluster.fetch("/api/contents", "0" * 48).strip() == "403"
    assert "/login" in cluster.fetch("/lab").split()[1]
    assert "<title>" in cluster.fetch("/lab", token)
    names = {each["name"] for each in json.loads(cluster.fetch("/api/contents", token).split(" ", 2)[2])["content"]}
    assert "examples" in names


def test_the_tutorials_training_command_succeeds(cluster: Cluster) -> None:
    hosts = ",".join(f"{machine.address}:1" for machine in (cluster.master, *cluster.workers))
    assert cluster.deployment.outputs()["training_hosts"] == hosts
    command = ["horovodrun", "-np", "2", "-H", hosts, "-p", "12345", "python", "/examples/numpy_digits.py"]
    said = cluster.docker(cluster.master, "exec", "horovod_master", *command, limit=LIMIT)
    assert "with 2 ranks" in said, said


def test_only_the_jobs_key_opens_a_container(cluster: Cluster) -> None:
    """The controller's key opens the nodes, and not the sshd of their containers."""
    options = ["-p", "12345", "-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes"]
    command = ["ssh", *options, cluster.workers[0].address, "true"]
    result = cluster.bed["controller"].run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 255
    assert "Permission denied (publickey)" in result.stderr


def test_a_worker_is_added_and_trains_with_the_others(cluster: Cluster) -> None:
    before = cluster.docker(cluster.master, "inspect", "--format", "{{.State.StartedAt}}", "horovod_master")
    cluster.deployment.set_workers(2)
    cluster.deployment.terraform("apply", "-auto-approve", limit=LIMIT)
    grown = Cluster(cluster.bed, cluster.deployment)
    assert len(grown.workers) == 2
    after = grown.docker(grown.master, "inspect", "--format", "{{.State.StartedAt}}", "horovod_master")
    assert before == after, "the master's container was replaced for nothing"
    command = ["horovodrun", "-np", "3", "-H", "master:1,worker-1:1,worker-2:1", "-p", "12345"]
    said = grown.docker(grown.master, "exec", "horovod_master", *command, "python", "-c", ADD)
    assert said.count("sum [3.]") == 3, said


def test_destroy_leaves_nothing(cluster: Cluster) -> None:
    cluster.deployment.terraform("destroy", "-auto-approve", limit=LIMIT)
    assert list(cluster.deployment.cloud.iterdir()) == []
    assert not (cluster.deployment.module / "generated").exists()
    assert json.loads((cluster.deployment.module / "terraform.tfstate").read_text())["resources"] == []
