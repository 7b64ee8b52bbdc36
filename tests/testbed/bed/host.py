"""One host: what is wanted (Host), and the running one (Machine)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from child import Child

from bed import groups, ssh
from bed.namespace import Namespace
from bed.switch import Switch, shape

Command = Sequence[str | os.PathLike[str]]

# $1 is the name, $2 the directory with the host's own files.
PREPARE = """
hostname "$1"
for file in hosts hostname resolv.conf; do
  [ ! -e /etc/$file ] || mount --bind "$2/$file" /etc/$file
done
[ ! -d "$2/ssh" ] || mount --bind "$2/ssh" /etc/ssh
mount -t sysfs sysfs /sys                   # shows this host's NICs
mount -t cgroup2 cgroup2 /sys/fs/cgroup     # the host's own group is the root of it
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run       # last: it hides the directory of the bed
mkdir /run/sshd /run/lock
"""


@dataclass(frozen=True)
class Host:
    """Its name resolves to the first NIC's IPv4 address, or IPv6 without IPv4, unless `name_is` says otherwise."""

    name: str
    nics: Sequence[str] = ("eth0",)
    ipv4: bool = True
    ipv6: bool = True
    name_is: Sequence[int] = ()  # address families the name resolves to: (4,), (6,) or (4, 6)
    own_name_is_loopback: bool = False  # as Debian writes /etc/hosts: 127.0.1.1, for the host itself only
    docker0: bool = False  # a bridge with 172.17.0.1, the same on each host and good for nothing

    def families(self) -> list[int]:
        return [family for family, wanted in ((4, self.ipv4), (6, self.ipv6)) if wanted]


@dataclass(frozen=True)
class Nic:
    name: str
    port: str  # of the switch
    network: int
    mac: str
    addresses: Sequence[str] = field(default_factory=list)


def _address(family: int, network: int, number: int) -> str:
    return f"10.77.{network}.{number}" if family == 4 else f"fd77:{network + 1:x}::{number:x}"


class Machine:
    """Made by Bed, and running until it crashes."""

    def __init__(self, host: Host, number: int, directory: Path, group: Path, switch: Switch) -> None:
        self.host, self.name = host, host.name
        self.directory, self._group, self._switch = directory, group, switch
        self.nics = [
            Nic(
                name,
                f"p{number}.{network}",
                network,
                f"02:77:00:00:{network:02x}:{number:02x}",
                [_address(family, network, number) for family in host.families()],
            )
            for network, name in enumerate(host.nics)
        ]
        self._namespace: Namespace | None = None
        self._sshd: subprocess.Popen[str] | None = None
        self._rate: str | None = None
        directory.mkdir()

    @property
    def addresses(self) -> list[str]:
        return [address for nic in self.nics for address in nic.addresses]

    @property
    def address(self) -> str:
        """Of the first NIC: IPv4 if there is one."""
        return self.addresses[0]

    def names(self) -> list[str]:
        """Its lines in /etc/hosts."""
        families = self.host.name_is or self.host.families()[:1]
        by_family = dict(zip(self.host.families(), self.nics[0].addresses, strict=True))
        return [f"{by_family[family]} {self.name}" for family in families]

    def write_etc(self, others: Sequence[Machine]) -> None:
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
        if self.host.own_name_is_loopback:
            lines.append(f"127.0.1.1 {self.name}")
        for machine in others:
            if machine is not self or not self.host.own_name_is_loopback:
                lines += machine.names()
        (self.directory / "hosts").write_text("\n".join(lines) + "\n")
        (self.directory / "hostname").write_text(f"{self.name}\n")
        (self.directory / "resolv.conf").write_text("")

    # ---- processes

    def popen(self, command: Command, **options: Any) -> subprocess.Popen[Any]:
        """As subprocess.Popen, in the host: its pid, signals and exit code are those of the command."""
        return Child(self.command(command), **options)

    def run(self, command: Command, **options: Any) -> subprocess.CompletedProcess[Any]:
        """As subprocess.run, in the host."""
        return subprocess.run(self.command(command), **options)

    def command(self, command: Command) -> list[str]:
        """What has to be run on the machine so that the command runs in the host."""
        return self._running().command(command)

    def pids(self) -> list[int]:
        holder = self._running().pid
        return [pid for pid in groups.pids(self._group) if pid != holder]

    def start_sshd(self) -> None:
        self._sshd = ssh.serve(self.popen)

    def stop_sshd(self) -> None:
        """Ends the server and leaves the sessions, as its restart would."""
        if self._sshd is None:
            raise RuntimeError(f"no sshd runs on {self.name}")
        self._sshd.terminate()
        self._sshd.wait()
        self._sshd = None

    # ---- faults

    def cut(self, nic: str | None = None) -> None:
        """Pulls the cable out of this NIC, or of all: the carrier is lost, addresses stay."""
        self._carry(nic, False)

    def heal(self, nic: str | None = None) -> None:
        self._carry(nic, True)

    def limit(self, rate: str | None) -> None:
        """ "100mbit", "10gbit"; each NIC, in each direction. None: no limit."""
        namespace = self._running()
        if rate is None and self._rate is None:
            return
        namespace.batch("tc", [line for nic in self.nics for line in shape(nic.name, rate)])
        self._switch.limit(self._ports(), rate)
        self._rate = rate

    def freeze(self) -> None:
        """No process runs any more, though it can be killed; the kernel still answers pings and accepts connections."""
        groups.freeze(self._group, True)

    def thaw(self) -> None:
        groups.freeze(self._group, False)

    def crash(self) -> None:
        """Power off: the peers see silence, no FIN and no RST, and no process sees anything at all."""
        namespace = self._running()
        self.freeze()
        self._switch.unplug(self._ports())
        groups.end(self._group)
        self.thaw()
        self._namespace = None
        namespace.close()
        if self._sshd:
            self._sshd.wait()

    def boot(self) -> None:
        """Power on: the same name, NICs, addresses and rate limit, an empty /dev/shm, and sshd if it ran before."""
        if self._namespace:
            raise RuntimeError(f"{self.name} is running")
        kinds = ["net", "uts", "ipc", "mount", "cgroup"]
        self._namespace = Namespace(kinds, self._group, PREPARE, self.name, str(self.directory))
        self._make_nics(self._namespace)
        rate, self._rate = self._rate, None
        self.limit(rate)
        if self._sshd:
            self.start_sshd()

    def close(self) -> None:
        """Reaps what the end of the bed's processes leaves."""
        if self._namespace:
            self._namespace.close()
        if self._sshd:
            self._sshd.wait()

    def _running(self) -> Namespace:
        if self._namespace is None:
            raise RuntimeError(f"{self.name} is powered off")
        return self._namespace

    def _carry(self, nic: str | None, on: bool) -> None:
        self._running()
        self._switch.carry(self._ports(nic), on)

    def _ports(self, nic: str | None = None) -> list[str]:
        ports = [n.port for n in self.nics if nic in (None, n.name)]
        if not ports:
            raise ValueError(f"{self.name} has no NIC '{nic}'")
        return ports

    def _make_nics(self, namespace: Namespace) -> None:
        lines = ["link set lo up"]
        for nic in self.nics:
            self._switch.plug(nic.port, nic.network, nic.name, nic.mac, namespace.pid)
            if not self.host.ipv6:
                lines.append(f"link set {nic.name} addrgenmode none")
            lines.append(f"link set {nic.name} up")
            for address in nic.addresses:
                suffix = "/64 dev {} nodad" if ":" in address else "/24 dev {}"
                lines.append(f"address add {address}{suffix.format(nic.name)}")
        if self.host.docker0:
            lines += ["link add docker0 type bridge", "address add 172.17.0.1/16 dev docker0", "link set docker0 up"]
        namespace.batch("ip", lines)
