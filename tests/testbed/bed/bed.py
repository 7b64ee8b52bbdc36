"""A bed: the hosts, the switch between them, and the faults that concern two hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType

from bed import ssh
from bed.host import Host, Machine
from bed.place import Place
from bed.requirements import why_not
from bed.switch import Switch


class Bed:
    """Up once made; ends with `with`, close(), or the process that made it."""

    def __init__(self, hosts: Sequence[Host], *, ssh: bool = False) -> None:
        if reason := why_not():
            raise RuntimeError(reason)
        _check(hosts)
        self._place = Place()
        self._switch: Switch | None = None
        self._machines: dict[str, Machine] = {}
        try:
            self._start(hosts, ssh)
        except BaseException:
            self.close()
            raise

    def _start(self, hosts: Sequence[Host], with_ssh: bool) -> None:
        directory, group = self._place.directory, self._place.group
        self._switch = Switch(group / "switch", max(len(host.nics) for host in hosts))
        for number, host in enumerate(hosts, 1):
            own = directory / "hosts" / host.name
            own.parent.mkdir(exist_ok=True)
            self._machines[host.name] = Machine(host, number, own, group / f"host-{host.name}", self._switch)
        for machine in self:
            machine.write_etc(list(self))
        if with_ssh:
            ssh.write(directory / "hosts", {machine.name: machine.addresses for machine in self})
        for machine in self:
            machine.boot()
            if with_ssh:
                machine.start_sshd()

    @property
    def name(self) -> str:
        """As it appears in mounts and control groups, different for each bed."""
        return self._place.directory.name

    def __getitem__(self, name: str) -> Machine:
        return self._machines[name]

    def __iter__(self) -> Iterator[Machine]:
        return iter(self._machines.values())

    def partition(self, one: str, other: str) -> None:
        """Drop all packets between the two, without an error on either side."""
        self.drop(one, other)
        self.drop(other, one)

    def drop(self, sender: str, receiver: str, percent: int = 100) -> None:
        """What the one sends to the other is lost, or a part of it; the other direction is left as it is."""
        if not 0 <= percent <= 100:
            raise ValueError(f"not a percentage: {percent}")
        lanes = zip(self[sender].nics, self[receiver].nics, strict=False)  # by network
        assert self._switch
        self._switch.lose([(a.port, b.port) for a, b in lanes], percent)

    def heal(self, one: str, other: str) -> None:
        """Ends partition and drop between the two."""
        self.drop(one, other, 0)
        self.drop(other, one, 0)

    def close(self) -> None:
        """Ends every process of every host. Afterwards nothing is left."""
        self._place.remove()
        for machine in self:
            machine.close()
        if self._switch:
            self._switch.close()

    def __enter__(self) -> Bed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check(hosts: Sequence[Host]) -> None:
    names = [host.name for host in hosts]
    if not 1 <= len(hosts) <= 250 or len(set(names)) != len(names):
        raise ValueError(f"a bed has 1 to 250 hosts with different names, not {names}")
    for host in hosts:
        if not host.nics or len(set(host.nics)) != len(host.nics) or not host.families():
            raise ValueError(f"{host.name} needs an address family and NICs with different names")
        if not set(host.name_is) <= set(host.families()):
            raise ValueError(f"the name of {host.name} cannot be an address that it does not have")
