"""The hosts of a bed: what they are, and how processes run in them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from bed import Bed, Host
from peer import Peer, connect, output, ping

MakeBed = Callable[..., Bed]


# ---- hosts


def test_hosts_have_their_own_names_and_nics(make_bed: MakeBed) -> None:
    bed = make_bed(Host("hosta", nics=["eth0", "eth1"]), Host("hostb", nics=["ib0"]))
    assert output(bed["hosta"], "hostname") == "hosta"
    assert output(bed["hostb"], "cat", "/etc/hostname") == "hostb"
    assert output(bed["hosta"], "ls", "/sys/class/net").split() == ["eth0", "eth1", "lo"]
    assert output(bed["hostb"], "ls", "/sys/class/net").split() == ["ib0", "lo"]
    assert "ib0" not in os.listdir("/sys/class/net")


def test_addresses_are_those_that_the_kernel_has(make_bed: MakeBed) -> None:
    for machine in make_bed(Host("hosta", nics=["eth0", "eth1"]), Host("hostb", ipv4=False), Host("hostc", ipv6=False)):
        shown = output(machine, "ip", "-brief", "address", "show", "scope", "global").split()
        assert [field.split("/")[0] for field in shown if "/" in field] == machine.addresses


def test_hosts_reach_each_other_on_every_network(make_bed: MakeBed) -> None:
    bed = make_bed(Host("hosta", nics=["eth0", "eth1"]), Host("hostb", nics=["ens3", "ens4"]))
    for address in bed["hostb"].addresses:
        ping(bed["hosta"], address)


def test_names_resolve_to_the_address_family_that_is_there(make_bed: MakeBed) -> None:
    bed = make_bed("hosta", Host("hostb", ipv4=False), Host("hostc", name_is=(4, 6)))
    assert output(bed["hosta"], "getent", "ahosts", "hostb").split()[0] == "fd77:1::2"
    assert bed["hostb"].address == "fd77:1::2"
    ping(bed["hosta"], "hostb")
    both = output(bed["hosta"], "getent", "ahosts", "hostc")
    assert "10.77.0.3" in both and "fd77:1::3" in both


def test_the_traps_of_real_hosts_can_be_had(make_bed: MakeBed) -> None:
    bed = make_bed(Host("hosta", own_name_is_loopback=True, docker0=True), Host("hostb", docker0=True))
    assert output(bed["hosta"], "getent", "ahostsv4", "hosta").split()[0] == "127.0.1.1"
    assert output(bed["hostb"], "getent", "ahostsv4", "hosta").split()[0] == "10.77.0.1"
    for machine in bed:
        assert "172.17.0.1/16" in output(machine, "ip", "-brief", "address", "show", "docker0")


def test_what_hosts_keep_to_themselves(make_bed: MakeBed, tmp_path: Path) -> None:
    bed = make_bed("hosta", "hostb")
    for directory in ("/dev/shm", "/run"):
        output(bed["hosta"], "touch", f"{directory}/mine")
        assert "mine" in output(bed["hosta"], "ls", directory)
        assert "mine" not in output(bed["hostb"], "ls", directory)
        assert not os.path.exists(f"{directory}/mine")
    with Peer(bed["hosta"]) as one, Peer(bed["hostb"]) as other:
        for peer in (one, other):  # abstract Unix sockets belong to a network namespace
            peer("n = socket.socket(socket.AF_UNIX)")
            assert peer("n.bind('\\0horovod-testbed')") == "None"
    output(bed["hosta"], "touch", str(tmp_path / "shared"))
    output(bed["hostb"], "ls", str(tmp_path / "shared"))


def test_tcp_over_both_families(make_bed: MakeBed) -> None:
    bed = make_bed("hosta", "hostb")
    for address in bed["hostb"].addresses:
        with Peer(bed["hosta"]) as client, Peer(bed["hostb"]) as server:
            connect(server, client, address)
            client("s.send(b'hello')")
            assert server("s.recv(5)") == "b'hello'"


def test_impossible_hosts_are_refused(make_bed: MakeBed) -> None:
    for hosts in (
        [],
        [Host("hosta"), Host("hosta")],
        [Host("hosta", nics=[])],
        [Host("hosta", nics=["eth0", "eth0"])],
        [Host("hosta", ipv4=False, ipv6=False)],
        [Host("hosta", ipv4=False, name_is=(4,))],
    ):
        with pytest.raises(ValueError):
            make_bed(*hosts)
    with pytest.raises(RuntimeError, match="much-too-long"):  # the kernel's limit for NICs
        make_bed(Host("hosta", nics=["much-too-long-a-name"]))


# ---- processes


def test_exit_code_environment_and_directory_are_the_commands_own(make_bed: MakeBed, tmp_path: Path) -> None:
    host = make_bed("hosta")["hosta"]
    assert host.run(["sh", "-c", "exit 37"]).returncode == 37
    environment = os.environ | {"PLACE": "here"}
    assert host.run(["printenv", "PLACE"], env=environment, stdout=subprocess.PIPE).stdout == b"here\n"
    assert output(host, "pwd") == os.getcwd()
    assert host.run(["pwd"], cwd=tmp_path, stdout=subprocess.PIPE, text=True).stdout.strip() == str(tmp_path)


def test_signals_reach_the_command_under_its_own_pid(make_bed: MakeBed) -> None:
    host = make_bed("hosta")["hosta"]
    script = "trap 'echo caught; exit 5' TERM; echo $$; read forever"
    process = host.popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert int(process.stdout.readline()) == process.pid
    assert process.pid in host.pids()
    process.send_signal(signal.SIGTERM)
    assert process.communicate()[0] == "caught\n"
    assert process.returncode == 5
    sleeper = host.popen(["sleep", "infinity"])
    sleeper.kill()
    assert sleeper.wait() == -signal.SIGKILL


# ---- ssh


def test_ssh_goes_everywhere_and_checks_host_keys(make_bed: MakeBed) -> None:
    bed = make_bed("hosta", Host("hostb", ipv4=False), ssh=True)
    assert output(bed["hosta"], "ssh", "hostb", "hostname") == "hostb"
    assert output(bed["hostb"], "ssh", "fd77:1::1", "hostname") == "hosta"
    assert bed["hosta"].run(["ssh", "hostb", "exit 41"]).returncode == 41
    keys = [machine.directory / "ssh" / "ssh_host_ed25519_key" for machine in bed]
    assert keys[0].read_text() != keys[1].read_text()
    known = bed["hosta"].directory / "ssh" / "ssh_known_hosts"
    known.write_text(known.read_text().replace("hostb,", "nobody,"))
    assert bed["hosta"].run(["ssh", "hostb", "true"], stderr=subprocess.DEVNULL).returncode == 255


def test_a_host_without_sshd_refuses(make_bed: MakeBed) -> None:
    bed = make_bed("hosta", "hostb", ssh=True)
    bed["hostb"].stop_sshd()
    result = bed["hosta"].run(["ssh", "hostb", "true"], capture_output=True, text=True)
    assert result.returncode == 255 and "refused" in result.stderr
    bed["hostb"].start_sshd()
    output(bed["hosta"], "ssh", "hostb", "true")
