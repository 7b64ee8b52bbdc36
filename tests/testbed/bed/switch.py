"""What the hosts hang on: one bridge per network, a port per NIC, and the faults of the network."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bed.namespace import Namespace

UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


def shape(device: str, rate: str | None) -> list[str]:
    """Lines for tc: what the device sends is limited, with 20 ms of queue and a burst of 2 ms, but at least 128 kB."""
    if rate is None:
        return [f"qdisc del dev {device} root"]
    number, unit = rate[:-4], rate[-4:]
    if unit not in UNITS or not number.isdigit() or int(number) == 0:
        raise ValueError(f"not a rate: '{rate}'; give a whole number with kbit, mbit or gbit")
    burst = max(128 << 10, int(number) * UNITS[unit] // 8 // 500)
    return [f"qdisc replace dev {device} root tbf rate {rate} burst {burst} latency 20ms"]


class Switch:
    """Ports are named by their owners; a fault between two ports outlives a port that goes and comes again."""

    def __init__(self, group: Path, networks: int) -> None:
        self._namespace = Namespace(["net"], group)
        lines = [f"link add br{i} type bridge forward_delay 0 mcast_snooping 0" for i in range(networks)]
        self._namespace.batch("ip", lines + [f"link set br{i} up" for i in range(networks)])
        self._losses: dict[tuple[str, str], int] = {}  # sending and receiving port: percent
        hook = "type filter hook forward priority 0;"
        self._namespace.batch("nft", ["add table bridge faults", f"add chain bridge faults forward {{ {hook} }}"])

    def plug(self, port: str, network: int, nic: str, mac: str, pid: int) -> None:
        """A new cable from the port to a new NIC in the network namespace of the process."""
        peer = f"peer name {nic} address {mac} netns {pid}"
        self._namespace.batch("ip", [f"link add {port} type veth {peer}", f"link set {port} master br{network} up"])

    def unplug(self, ports: Iterable[str]) -> None:
        self._namespace.batch("ip", [f"link del {port}" for port in ports])

    def carry(self, ports: Iterable[str], on: bool) -> None:
        self._namespace.batch("ip", [f"link set {port} {'up' if on else 'down'}" for port in ports])

    def limit(self, ports: Iterable[str], rate: str | None) -> None:
        self._namespace.batch("tc", [line for port in ports for line in shape(port, rate)])

    def lose(self, lanes: Iterable[tuple[str, str]], percent: int) -> None:
        """Of the frames from the first port of each lane to the second, with any contents."""
        for lane in lanes:
            self._losses.pop(lane, None)
            if percent:
                self._losses[lane] = percent
        lines = ["flush chain bridge faults forward"]
        for (sender, receiver), loss in self._losses.items():
            chance = "" if loss == 100 else f"numgen random mod 100 < {loss} "
            lines.append(f"add rule bridge faults forward iifname {sender} oifname {receiver} {chance}drop")
        self._namespace.batch("nft", lines)

    def close(self) -> None:
        self._namespace.close()
