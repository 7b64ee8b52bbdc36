"""What Terraform makes of deploy/openstack: nodes, who may reach whom, the inventory; and that nothing is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from deployment import DEPLOY, PASSWORD, Deployment

Make = Callable[..., Deployment]


def test_the_files_are_formatted_and_valid(make: Make) -> None:
    cluster = make()
    assert cluster.terraform("fmt", "-check", "-diff", str(DEPLOY)) == ""
    assert "Success!" in cluster.terraform("validate")


def test_a_plan_makes_nothing_and_shows_no_password(make: Make) -> None:
    cluster = make(workers=3)
    plan = cluster.terraform("plan")
    assert "Plan: 15 to add, 0 to change, 0 to destroy." in plan
    assert PASSWORD not in plan
    assert cluster.things("compute_instance_v2") == []


def test_apply_makes_a_cluster_and_destroy_leaves_nothing(make: Make) -> None:
    cluster = make(workers=2)
    said = cluster.terraform("apply", "-auto-approve")
    assert "ran ansible-playbook -i" in said
    instances = {each["name"]: each for each in cluster.things("compute_instance_v2")}
    assert set(instances) == {"master", "worker-1", "worker-2"}
    outputs = cluster.outputs()
    assert outputs["master_instance_ip"] == instances["master"]["access_ip_v4"]
    assert outputs["worker_instance_ips"] == [instances[f"worker-{n}"]["access_ip_v4"] for n in (1, 2)]
    assert outputs["jupyter_url"] == "http://203.0.113.5:8888/lab"
    for name, instance in instances.items():
        cloud_init = yaml.safe_load(instance["user_data"])
        assert instance["user_data"].startswith("#cloud-config\n")
        assert cloud_init["hostname"] == name and cloud_init["ssh_pwauth"] is False
    floating = cluster.things("compute_floatingip_associate_v2")
    assert [each["instance_id"] for each in floating] == [instances["master"]["id"]]

    assert "No changes." in cluster.terraform("plan", "-detailed-exitcode")

    cluster.terraform("destroy", "-auto-approve")
    assert list(cluster.cloud.iterdir()) == []
    assert not (cluster.module / "generated").exists()
    assert json.loads((cluster.module / "terraform.tfstate").read_text())["resources"] == []


def rules_of(cluster: Deployment, group: str) -> set[tuple[Any, ...]]:
    """protocol, first and last port, from whom: a range of addresses, or the name of a group."""
    groups = {each["id"]: each["name"] for each in cluster.things("networking_secgroup_v2")}
    return {
        (
            rule["protocol"],
            rule["port_range_min"],
            rule["port_range_max"],
            rule["remote_ip_prefix"] or groups[rule["remote_group_id"]],
        )
        for rule in cluster.things("networking_secgroup_rule_v2")
        if groups[rule["security_group_id"]] == group and rule["direction"] == "ingress"
    }


def test_only_ssh_and_jupyter_of_the_master_are_open(make: Make) -> None:
    cluster = make(variables={"jupyter_port": 9999, "admin_range": "198.51.100.0/24"})
    cluster.terraform("apply", "-auto-approve")
    assert rules_of(cluster, "master-access") == {
        ("tcp", 22, 22, "198.51.100.0/24"),
        ("tcp", 9999, 9999, "198.51.100.0/24"),
    }
    assert rules_of(cluster, "master-nodes") == {
        ("tcp", 22, 22, "10.77.0.0/24"),
        ("tcp", 1, 65535, "master-nodes"),
        ("udp", 1, 65535, "master-nodes"),
        ("icmp", None, None, "master-nodes"),
    }
    groups = {each["name"]: each["security_groups"] for each in cluster.things("compute_instance_v2")}
    assert groups == {"master": ["master-access", "master-nodes"], "worker-1": ["master-nodes"]}


def test_the_inventory_follows_the_nodes_and_the_playbook_runs_again(make: Make) -> None:
    cluster = make(variables={"ansible_variables": {"share_kind": "path"}, "ssh_user": "debian"})
    cluster.terraform("apply", "-auto-approve")
    before = {each["name"]: each["id"] for each in cluster.things("compute_instance_v2")}
    everything = cluster.inventory()["all"]
    assert everything["vars"]["ansible_user"] == "debian"
    [master] = everything["children"]["master_nodes"]["hosts"].values()
    assert master["node_address"] == master["ansible_host"] == cluster.outputs()["master_instance_ip"]
    assert master["share_kind"] == "path" and master["jupyter_address"] == "203.0.113.5"

    cluster.set_workers(3)
    assert "ran ansible-playbook" in cluster.terraform("apply", "-auto-approve")
    after = {each["name"]: each["id"] for each in cluster.things("compute_instance_v2")}
    assert before.items() <= after.items(), "nodes that stay are not made anew"
    workers = cluster.inventory()["all"]["children"]["worker_nodes"]["hosts"]
    assert [workers[f"worker-{n}"]["ansible_host"] for n in (1, 2, 3)] == cluster.outputs()["worker_instance_ips"]


def test_a_controller_outside_of_the_cloud_goes_through_the_master(make: Make) -> None:
    cluster = make(variables={"through_floating_ip": True})
    cluster.terraform("apply", "-auto-approve")
    groups = cluster.inventory()["all"]["children"]
    assert groups["master_nodes"]["hosts"]["master"]["ansible_host"] == "203.0.113.5"
    assert "ubuntu@203.0.113.5" in groups["worker_nodes"]["hosts"]["worker-1"]["ansible_ssh_extra_args"]


def test_a_failing_playbook_fails_the_apply_and_is_tried_again(make: Make) -> None:
    cluster = make(variables={"ansible_playbook": {"command": "test -e /proc/self/nothing;"}})
    assert "local-exec provisioner error" in cluster.terraform("apply", "-auto-approve", code=1)
    before = {each["id"] for each in cluster.things("compute_instance_v2")}
    settings = '-var=ansible_playbook={command="echo ran ansible-playbook"}'
    assert "ran ansible-playbook" in cluster.terraform("apply", "-auto-approve", settings)
    assert {each["id"] for each in cluster.things("compute_instance_v2")} == before


def test_a_network_can_be_named(make: Make) -> None:
    cluster = make()
    network = '-var=horovod_network={network_subnet_range="10.77.0.0/24",name="private"}'
    cluster.terraform("apply", "-auto-approve", network)
    assert {each["network"][0]["name"] for each in cluster.things("compute_instance_v2")} == {"private"}


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ('horovod_network={network_subnet_range="everywhere"}', "has to be a range like 192.168.0.0/16"),
        ('admin_range="me"', "has to be a range like 203.0.113.7/32"),
    ],
)
def test_a_mistake_is_named_before_anything_is_made(make: Make, setting: str, reason: str) -> None:
    cluster = make()
    assert reason in cluster.terraform("plan", f"-var={setting}", code=1).replace("\n", " ")
