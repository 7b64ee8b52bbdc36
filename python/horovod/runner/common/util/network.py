"""The addresses of this machine, and whether a host is this machine."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Iterable

import psutil


class NoValidAddressesFound(Exception):
    """None of the wanted network interfaces has an address."""


def get_local_host_addresses() -> set[str]:
    """Every IPv4 and IPv6 address of this machine."""
    return {address for addresses in _interfaces().values() for address in addresses}


def get_local_intfs(nic: str | None = None) -> set[str]:
    """The names of the interfaces that have the loopback address, or just `nic` if it is one of them."""
    loopback = {name for name, addresses in _interfaces().items() if "127.0.0.1" in addresses}
    return loopback if nic is None else loopback & {nic}


def get_driver_ip(nics: Collection[str]) -> str:
    """An IPv4 address of this machine on one of the interfaces."""
    interfaces = _interfaces()
    for nic in nics:
        for address in interfaces.get(nic, ()):
            if ":" not in address:
                return address
    raise NoValidAddressesFound(f"no interface of {', '.join(sorted(nics))} has an IPv4 address")


def resolve_host_address(host_name: str) -> str | None:
    """The IPv4 address of a host, or None if its name is not known."""
    try:
        return socket.gethostbyname(host_name)
    except OSError:
        return None


def is_local(host_name: str) -> bool:
    """Whether a host, as written in a host list, is this machine."""
    name = host_name.rpartition("@")[2].strip("[]")
    own = socket.gethostname()
    if name in ("localhost", own, own.partition(".")[0]):
        return True
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None)}
    except OSError:
        return False
    return any(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in found) or bool(
        found & get_local_host_addresses()
    )


def filter_local_addresses(all_host_names: Iterable[str]) -> list[str]:
    """The hosts that are not this machine."""
    return [name for name in all_host_names if not is_local(name)]


def outside_addresses(nics: Collection[str] | None = None) -> list[str]:
    """Addresses at which other machines may reach this one, IPv4 first; only those of `nics` if given."""
    found: list[str] = []
    for name, addresses in _interfaces().items():
        if nics and name not in nics:
            continue
        found += [each for each in addresses if nics or not ipaddress.ip_address(each).is_loopback]
    if nics and not found:
        raise NoValidAddressesFound(f"no interface of {', '.join(sorted(nics))} has an address on this machine")
    usable = [each for each in found if not ipaddress.ip_address(each).is_link_local]
    return sorted(usable, key=lambda address: ":" in address)


def _interfaces() -> dict[str, list[str]]:
    return {
        name: [each.address.partition("%")[0] for each in addresses if each.family in (socket.AF_INET, socket.AF_INET6)]
        for name, addresses in psutil.net_if_addrs().items()
    }
