"""What can be made to go wrong between hosts and in them, and that it then goes wrong in just that way."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pytest
from bed import Bed, Host
from peer import Peer, connect, output, ping, udp

MakeBed = Callable[..., Bed]
NOTHING = "'BlockingIOError'"  # what a look into a connection finds: neither data, nor its end, nor an error
LOOK = "look(s)"


def carrier(bed: Bed, host: str, nic: str) -> str:
    return output(bed[host], "cat", f"/sys/class/net/{nic}/carrier")


# ---- the network


def test_a_cut_cable_loses_the_carrier_and_keeps_addresses_and_connections(make_bed: MakeBed) -> None:
    bed = make_bed("hosta", "hostb")
    with Peer(bed["hosta"]) as client, Peer(bed["hostb"]) as server:
        connect(server, client, bed["hostb"].address)
        bed["hostb"].cut()
        assert (carrier(bed, "hosta", "eth0"), carrier(bed, "hostb", "eth0")) == ("1", "0")
        assert "10.77.0.2/24" in output(bed["hostb"], "ip", "-brief", "address")
        client("s.send(b'x')")
        assert server(LOOK) == NOTHING
        bed["hostb"].heal()
        assert server("s.recv(1)") == "b'x'"


def test_one_of_several_cables_can_be_cut(make_bed: MakeBed) -> None:
    bed = make_bed(Host("hosta", nics=["eth0", "eth1"]), Host("hostb", nics=["eth0", "eth1"]))
    bed["hostb"].cut("eth1")
    assert (carrier(bed, "hostb", "eth0"), carrier(bed, "hostb", "eth1")) == ("1", "0")
    ping(bed["hosta"], "10.77.0.2")
    with pytest.raises(ValueError, match="eth7"):
        bed["hostb"].cut("eth7")


def test_a_partition_is_silent_and_concerns_two_hosts_only(make_bed: MakeBed) -> None:
    bed = make_bed("hosta", "hostb", "hostc")
    with Peer(bed["hosta"]) as client, Peer(bed["hostb"]) as server:
        connect(server, client, bed["hostb"].address)
        bed.partition("hosta", "hostb")
        client("s.send(b'from client')")
        server("s.send(b'from server')")
        for machine in (bed["hosta"], bed["hostb"]):
            ping(machine, "hostc")
            assert carrier(bed, machine.name, "eth0") == "1"
        assert (client(LOOK), server(LOOK)) == (NOTHING, NOTHING)
        bed.heal("hosta", "hostb")
        assert server("s.recv(100)") == "b'from client'"
        assert client("s.recv(100)") == "b'from server'"


def test_a_partition_cuts_every_network(make_bed: MakeBed) -> None:
    bed = make_bed(Host("hosta", nics=["eth0", "eth1"]), Host("hostb", nics=["eth0", "eth1"]))
    bed.partition("hosta", "hostb")
    for address in bed["hostb"].addresses:
        lost = bed["hosta"].run(["ping", "-c", "1", "-W", "0.2", address], stdout=subprocess.DEVNULL)
        assert lost.returncode == 1
    bed.heal("hosta", "hostb")
    for address in bed["hostb"].addresses:
        ping(bed["hosta"], address)


def test_a_drop_goes_one_way(make_bed: MakeBed) -> None:
    bed = make_bed("hosta", "hostb")
    ping(bed["hosta"], "hostb")  # each knows the other's hardware address
    with Peer(bed["hosta"]) as a, Peer(bed["hostb"]) as b:
        to_a, to_b = (bed["hosta"].address, udp(a, bed["hosta"].address)), (bed["hostb"].address, udp(b, "10.77.0.2"))
        bed.drop("hosta", "hostb")
        a(f"u.sendto(b'lost', {to_b})")
        b(f"u.sendto(b'other way', {to_a})")
        assert a("u.recv(100)") == "b'other way'"
        bed.heal("hosta", "hostb")
        a(f"u.sendto(b'kept', {to_b})")
        assert b("u.recv(100)") == "b'kept'"  # packets do not overtake each other here: the first is gone


def test_a_part_of_the_packets_can_be_dropped(make_bed: MakeBed) -> None:
    bed = make_bed("hosta", "hostb")
    ping(bed["hosta"], "hostb")
    sent = 400
    with Peer(bed["hosta"]) as a, Peer(bed["hostb"]) as b:
        to = ("10.77.0.2", udp(b, "10.77.0.2"))
        udp(a, "10.77.0.1")
        bed.drop("hosta", "hostb", percent=50)
        a(f"for i in range({sent}): u.sendto(b'maybe', {to})")
        bed.heal("hosta", "hostb")
        a(f"u.sendto(b'last', {to})")
        arrived = int(b("[*iter(lambda: u.recv(100), b'last')].__len__()"))
        assert 0 < arrived < sent
    with pytest.raises(ValueError, match="101"):
        bed.drop("hosta", "hostb", percent=101)


def seconds_to_send(bed: Bed, size: int) -> float:
    with Peer(bed["hosta"]) as client, Peer(bed["hostb"]) as server:
        connect(server, client, bed["hostb"].address)
        server.ask(f"take(s, {size})")
        start = time.monotonic()
        client(f"s.sendall(bytes({size}))")
        assert server.answer() == "None"
        return time.monotonic() - start


def test_a_rate_limits_each_direction(make_bed: MakeBed) -> None:
    """A busy machine is slower, never faster, so the bound holds on any; the burst of 128 kB passes at once."""
    for limited in ("hosta", "hostb"):  # as the sender and as the receiver
        bed = make_bed("hosta", "hostb")
        bed[limited].limit("20mbit")
        assert seconds_to_send(bed, 1_500_000) > (1_500_000 - 131_072) * 8 / 20e6
        bed[limited].limit("10gbit")
        bed[limited].limit(None)
        assert "tbf" not in output(bed[limited], "tc", "qdisc", "show", "dev", "eth0")
        seconds_to_send(bed, 50_000_000)  # at the rate of before: 20 s
    for wrong in ("20", "fast", "0mbit", "1.5gbit"):
        with pytest.raises(ValueError, match=wrong):
            bed["hosta"].limit(wrong)


# ---- the host


def test_a_killed_process_ends_its_connections_but_a_crashed_host_is_silent(make_bed: MakeBed) -> None:
    bed = make_bed("hosta", "hostb", "hostc")
    with Peer(bed["hosta"]) as server:
        with Peer(bed["hostb"]) as client:
            connect(server, client, bed["hosta"].address)
            client.process.kill()
            assert server("s.recv(1)") == "b''"
        with Peer(bed["hostb"]) as client:
            connect(server, client, bed["hosta"].address)
            bed["hostb"].crash()
            assert client.process.wait() == -9
            ping(bed["hosta"], "hostc")  # whatever hostb had sent before would have arrived before this
            assert server(LOOK) == NOTHING


def test_a_crashed_host_boots_afresh(make_bed: MakeBed) -> None:
    bed = make_bed("hosta", Host("hostb", nics=["ib0", "eth1"]), ssh=True)
    hostb = bed["hostb"]
    before = output(hostb, "ip", "-brief", "link").replace("@if", "").split()[3:]
    output(hostb, "touch", "/dev/shm/old")
    hostb.limit("100mbit")
    hostb.crash()
    for use in (hostb.crash, hostb.cut, lambda: hostb.run(["true"])):
        with pytest.raises(RuntimeError, match="hostb is powered off"):
            use()
    hostb.boot()
    with pytest.raises(RuntimeError, match="hostb is running"):
        hostb.boot()
    assert output(hostb, "ls", "/dev/shm") == ""
    assert "tbf" in output(hostb, "tc", "qdisc", "show", "dev", "ib0")
    macs = [field for field in before if field.startswith("02:")]
    assert macs and all(mac in output(hostb, "ip", "link") for mac in macs)
    assert output(bed["hosta"], "ssh", "hostb", "hostname") == "hostb"


def test_a_partition_outlives_a_reboot(make_bed: MakeBed) -> None:
    bed = make_bed("hosta", "hostb")
    bed.partition("hosta", "hostb")
    bed["hostb"].crash()
    bed["hostb"].boot()
    lost = bed["hosta"].run(["ping", "-c", "1", "-W", "0.2", "hostb"], stdout=subprocess.DEVNULL)
    assert lost.returncode == 1
    bed.heal("hosta", "hostb")
    ping(bed["hosta"], "hostb")


def test_a_frozen_host_still_has_a_kernel(make_bed: MakeBed) -> None:
    bed = make_bed("hosta", "hostb")
    with Peer(bed["hosta"]) as client, Peer(bed["hostb"]) as server:
        connect(server, client, bed["hostb"].address)
        bed["hostb"].freeze()
        server.ask("s.send(b'thawed')")
        ping(bed["hosta"], "hostb")
        port = client("s.getpeername()[1]")
        client(f"t = socket.create_connection(('hostb', {port}), timeout=30)")
        assert client(LOOK) == NOTHING
        bed["hostb"].thaw()
        assert client("s.recv(100)") == "b'thawed'"


def test_a_frozen_host_can_crash_and_boot(make_bed: MakeBed) -> None:
    bed = make_bed("hosta", "hostb")
    bed["hostb"].freeze()
    bed["hostb"].crash()
    bed["hostb"].boot()
    ping(bed["hostb"], "hosta")
