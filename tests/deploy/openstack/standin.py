"""A stand-in for OpenStack's Terraform provider: a real Terraform plans, applies and destroys with it, without a cloud.

The cloud is a folder, $STANDIN_CLOUD: one JSON file per thing that exists, which a test may read. An instance gets one
of the addresses in $STANDIN_ADDRESSES, so that provisioners find a host there if a test has put one. What Neutron and
Nova would refuse is refused here where a mistake is likely: groups and instances that do not exist, a group in use.
It knows the kinds of things that deploy/openstack makes, with the argument names of the provider's version 1.42, and
proves nothing about a cloud's own rules. Runs in .venv-cloud, where `tf` is, which speaks the plugin protocol.
"""

from __future__ import annotations

import ipaddress
import json
import os
import uuid
from pathlib import Path
from typing import Any

from tf.blocks import SetNestedBlock
from tf.iface import Provider, Resource
from tf.runner import run_provider
from tf.schema import Attribute, Block, Schema
from tf.types import List, Number, String

Thing = dict[str, Any]


class Cloud:
    """What exists. Every command of Terraform has a provider process of its own, so nothing is kept in memory."""

    def __init__(self) -> None:
        self._things = Path(os.environ["STANDIN_CLOUD"])
        self._things.mkdir(parents=True, exist_ok=True)
        self._addresses = os.environ.get("STANDIN_ADDRESSES", "").split(",")

    def all(self, kind: str) -> list[Thing]:
        things = [self.find(path.stem) for path in self._things.glob("*.json")]
        return [thing for thing in things if thing and thing["kind"] == kind]

    def find(self, identity: str) -> Thing | None:
        """Things are made and removed at the same time, so what was listed may be gone."""
        try:
            loaded: Thing = json.loads(self._path(identity).read_text())
        except FileNotFoundError:
            return None
        return loaded

    def put(self, kind: str, thing: Thing) -> None:
        new = self._path(thing["id"]).with_suffix(".new")
        new.write_text(json.dumps({"kind": kind, **thing}, indent=1))
        new.rename(self._path(thing["id"]))

    def remove(self, identity: str) -> None:
        thing = self.find(identity) or {}
        if "access_ip_v4" in thing:
            self._claim(thing["access_ip_v4"]).unlink()
        self._path(identity).unlink(missing_ok=True)

    def claim_address(self) -> str:
        """The first free one; instances are made at the same time, and a file can be made only once."""
        for address in filter(None, self._addresses):
            try:
                self._claim(address).touch(exist_ok=False)
                return address
            except FileExistsError:
                continue
        raise ValueError("no address is left in STANDIN_ADDRESSES for another instance")

    def _claim(self, address: str) -> Path:
        return self._things / f"{address}.address"

    def _path(self, identity: str) -> Path:
        return self._things / f"{identity}.json"


class Kind(Resource):
    """One kind of things; its arguments are fixed: another value means another thing."""

    name: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()
    blocks: tuple[SetNestedBlock, ...] = ()

    def __init__(self, provider: OpenStack) -> None:
        self.cloud = Cloud()

    @classmethod
    def get_name(cls) -> str:
        return cls.name

    @classmethod
    def get_schema(cls) -> Schema:
        fixed = {"requires_replace": True}
        return Schema(
            attributes=[
                Attribute("id", String(), computed=True),
                *(Attribute(name, String(), required=True, **fixed) for name in cls.required),
                *(Attribute(name, String(), optional=True, **fixed) for name in cls.optional),
                *(Attribute(name, Number(), optional=True, **fixed) for name in cls.numbers),
                *(Attribute(name, List(String()), optional=True, **fixed) for name in cls.lists),
                *(Attribute(name, String(), computed=True) for name in cls.computed),
            ],
            block_types=list(cls.blocks),
        )

    def create(self, ctx: Any, planned: Thing) -> Thing | None:
        thing = {**planned, "id": str(uuid.uuid4())}
        try:
            self.complete(thing)
        except ValueError as error:
            ctx.diagnostics.add_error(f"the cloud refuses {self.name}", str(error))
            return None
        self.cloud.put(self.name, thing)
        return thing

    def complete(self, thing: Thing) -> None:
        """Fills in what the cloud decides; ValueError for what it would refuse."""

    def read(self, ctx: Any, current: Thing) -> Thing | None:
        return current if self.cloud.find(current["id"]) else None

    def update(self, ctx: Any, current: Thing, planned: Thing) -> Thing:
        return planned

    def delete(self, ctx: Any, current: Thing) -> None:
        self.cloud.remove(current["id"])

    def upgrade(self, ctx: Any, version: int, old: Thing) -> Thing:
        return old


class Instance(Kind):
    name = "compute_instance_v2"
    required = ("name",)
    optional = ("flavor_name", "image_id", "image_name", "key_pair", "user_data")
    lists = ("security_groups",)
    computed = ("access_ip_v4",)
    blocks = (SetNestedBlock("network", Block([Attribute("name", String(), optional=True)])),)

    def complete(self, thing: Thing) -> None:
        groups = {group["name"] for group in self.cloud.all(SecurityGroup.name)}
        if unknown := set(thing["security_groups"] or ()) - groups:
            raise ValueError(f"no such security group: {', '.join(sorted(unknown))}")
        if not thing["image_id"] and not thing["image_name"]:
            raise ValueError("an instance needs an image_id or image_name")
        thing["access_ip_v4"] = self.cloud.claim_address()


class FloatingAddress(Kind):
    name = "compute_floatingip_associate_v2"
    required = ("floating_ip", "instance_id")

    def complete(self, thing: Thing) -> None:
        ipaddress.ip_address(thing["floating_ip"])
        if not self.cloud.find(thing["instance_id"]):
            raise ValueError(f"no instance {thing['instance_id']}")


class SecurityGroup(Kind):
    name = "networking_secgroup_v2"
    required = ("name",)
    optional = ("description",)

    def delete(self, ctx: Any, current: Thing) -> None:
        users = [each["name"] for each in self.cloud.all(Instance.name) if current["name"] in each["security_groups"]]
        if users:
            ctx.diagnostics.add_error("the cloud refuses", f"security group {current['name']} is in use by {users}")
            return
        super().delete(ctx, current)


class SecurityRule(Kind):
    name = "networking_secgroup_rule_v2"
    required = ("direction", "ethertype", "security_group_id")
    optional = ("description", "protocol", "remote_ip_prefix", "remote_group_id")
    numbers = ("port_range_min", "port_range_max")

    def complete(self, thing: Thing) -> None:
        for group in filter(None, (thing["security_group_id"], thing["remote_group_id"])):
            if not self.cloud.find(group):
                raise ValueError(f"no security group {group}")
        if thing["remote_ip_prefix"]:
            ipaddress.ip_network(thing["remote_ip_prefix"])
        ports = thing["port_range_min"], thing["port_range_max"]
        if ports != (None, None) and not 1 <= ports[0] <= ports[1] <= 65535:
            raise ValueError(f"not a range of ports: {ports}")


class OpenStack(Provider):
    def full_name(self) -> str:
        return "terraform-provider-openstack/openstack"

    def get_model_prefix(self) -> str:
        return "openstack_"

    def get_provider_schema(self, diags: Any) -> Schema:
        names = ("user_name", "password", "tenant_name", "auth_url", "region", "domain_name")
        return Schema(attributes=[Attribute(name, String(), optional=True) for name in names])

    def validate_config(self, diags: Any, config: Thing) -> None:
        pass

    def configure_provider(self, diags: Any, config: Thing) -> None:
        pass

    def get_data_sources(self) -> list[Any]:
        return []

    def get_resources(self) -> list[Any]:
        return [Instance, FloatingAddress, SecurityGroup, SecurityRule]


if __name__ == "__main__":
    run_provider(OpenStack())
