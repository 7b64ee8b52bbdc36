"""Beds side by side, what is left of them, and where there can be none."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bed import Bed, Host, groups, why_not
from bed.place import BEDS
from peer import Peer, connect, output, ping

MakeBed = Callable[..., Bed]
HERE = Path(__file__).parent
KINDS = ("net", "mnt", "uts", "ipc", "cgroup")


def test_beds_side_by_side_are_strangers(make_bed: MakeBed) -> None:
    first, second = make_bed("hosta", "hostb"), make_bed("hosta", "hostb")
    for bed, word in ((first, "first"), (second, "second")):
        output(bed["hostb"], "sh", "-c", f"echo {word} > /dev/shm/word")
    with Peer(first["hosta"]) as client, Peer(first["hostb"]) as server, Peer(second["hosta"]) as stranger:
        connect(server, client, "10.77.0.2")
        port = server("l.getsockname()[1]")
        assert stranger(f"socket.create_connection(('10.77.0.2', {port}), timeout=30)") == "'ConnectionRefusedError'"
    second.close()
    ping(first["hosta"], "hostb")
    assert output(first["hostb"], "cat", "/dev/shm/word") == "first"


@contextlib.contextmanager
def control_groups(point: Path) -> Iterator[Path]:
    groups.mount(point)
    try:
        yield point
    finally:
        groups.unmount(point)


def namespaces_of(pid: int | str) -> set[str]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in KINDS}
    return set()


def all_namespaces() -> set[str]:
    return set[str]().union(*map(namespaces_of, filter(str.isdigit, os.listdir("/proc"))))


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the second: it is gone between open and read
        return False


def assert_nothing_left(name: str, pids: list[int], namespaces: set[str], point: Path) -> None:
    assert not (BEDS / name).exists()
    assert name not in Path("/proc/self/mounts").read_text()
    assert not [pid for pid in pids if is_running(pid)]
    assert not namespaces & all_namespaces()
    with control_groups(point) as root:
        assert not (root / name).exists()


def test_nothing_is_left_after_the_end(make_bed: MakeBed, tmp_path: Path) -> None:
    links = os.listdir("/sys/class/net")
    bed = make_bed("hosta", Host("hostb", nics=["ib0", "eth1"]), ssh=True)
    daemon = "setsid sh -c 'trap \"\" TERM HUP INT; sleep infinity & echo up; wait' &"
    started = bed["hosta"].popen(["sh", "-c", daemon], stdout=subprocess.PIPE)
    assert started.stdout and started.stdout.readline() == b"up\n"
    bed["hostb"].freeze()
    assert os.listdir("/sys/class/net") == links
    pids = [pid for machine in bed for pid in machine.pids()]
    assert len(pids) >= 4  # two sshd, and the daemon with its child
    namespaces = set[str]().union(*map(namespaces_of, pids)) - namespaces_of("self")
    assert len(namespaces) == len(KINDS) * 2
    bed.close()
    bed.close()  # the second does nothing
    started.communicate()
    assert_nothing_left(bed.name, pids, namespaces, tmp_path / "cgroup")


def test_nothing_is_left_of_a_bed_that_could_not_be_made(make_bed: MakeBed) -> None:
    before = Path("/proc/self/mounts").read_text().count(f"horovod-testbed-{os.getpid()}-")
    with pytest.raises(RuntimeError, match="much-too-long"):
        make_bed("hosta", Host("hostb", nics=["much-too-long-a-name"]))
    assert Path("/proc/self/mounts").read_text().count(f"horovod-testbed-{os.getpid()}-") == before
    assert not list(BEDS.glob(f"horovod-testbed-{os.getpid()}-*"))


OWNER = """
import subprocess, sys
from bed import Bed, Host
bed = Bed([Host("hosta")])
command = ["setsid", "-f", "sh", "-c", "echo $$; exec sleep infinity"]
daemon = bed["hosta"].popen(command, stdout=subprocess.PIPE, text=True)
print(bed.name, daemon.stdout.readline(), flush=True)
sys.stdin.read()
"""


def test_what_a_killed_run_leaves_is_removed_by_the_next(make_bed: MakeBed, tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER]
    pipe = subprocess.PIPE
    owner = subprocess.Popen(command, cwd=HERE, stdin=pipe, stdout=pipe, text=True)
    assert owner.stdout
    name, daemon = owner.stdout.readline().split()
    namespaces = namespaces_of(daemon) - namespaces_of("self")
    make_bed("hosta")
    assert (BEDS / name).exists() and is_running(int(daemon))  # its owner lives
    owner.kill()
    owner.communicate()
    assert (BEDS / name).exists() and is_running(int(daemon))
    following = make_bed("hosta")
    # The kernel may have given it the numbers of namespaces that are gone.
    everybody = groups.pids(BEDS / following.name / "cgroup" / following.name)
    reused = set[str]().union(*map(namespaces_of, everybody))
    assert_nothing_left(name, [int(daemon)], namespaces - reused, tmp_path / "cgroup")


ASK = "import bed; print(bed.why_not())"


def reason(*wrapper: str, **environment: str) -> str:
    command = [*wrapper, sys.executable, "-c", ASK]
    result = subprocess.run(command, cwd=HERE, env=os.environ | environment, capture_output=True, text=True, check=True)
    return result.stdout.strip()


def test_where_no_bed_can_be_made_the_reason_is_told(make_bed: MakeBed, tmp_path: Path) -> None:
    assert why_not() is None
    assert reason() == "None"
    assert "root" in reason("setpriv", "--reuid=65534", "--clear-groups")
    no_namespaces = reason("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
    assert "refused" in no_namespaces and "not permitted" in no_namespaces
    (tmp_path / "unshare").symlink_to("/bin/false")
    assert "nftables" in reason(PATH=str(tmp_path))


def test_tests_are_skipped_with_the_reason() -> None:
    command = ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    result = subprocess.run(
        [*command, "-k", "beds_side_by_side", str(HERE / "test_endings.py")],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert result.returncode == 0, result.stdout
    assert "1 skipped" in result.stdout and "no test bed: " in result.stdout and "root" in result.stdout
