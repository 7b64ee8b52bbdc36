"""A world among strangers: data sent to its ports has no effect, and processes without its key are rejected."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from pathlib import Path

import numpy as np
from bed import Bed, Machine
from fleet import PORT, Gate, start_ranks
from ranks import Ended, failure, say

import horovod.numpy as hvd

KEY = secrets.token_hex(32)
STRANGER = Path(__file__).with_name("stranger.py")


def work_with_everybody(gate: str) -> None:
    import fcntl

    hvd.init()
    assert hvd.allreduce(np.array(1.0), op=hvd.Sum) == hvd.size()
    say("ready")
    if hvd.rank() == 0:
        with open(gate) as file:
            fcntl.flock(file, fcntl.LOCK_SH)
    for step in range(20):
        size, rank = hvd.size(), hvd.rank()
        # Connections that were not needed before are opened now, although others wait at the acceptor.
        received, _ = hvd.alltoall(np.full(size, rank), splits=np.ones(size, np.int32), name="to all")
        assert received.tolist() == list(range(size))
        assert hvd.allreduce(np.ones(1 << 18), op=hvd.Sum, name="large")[-1] == size
        assert hvd.broadcast(np.array(rank), step % size, name=f"from {step % size}") == step % size
    say("done")
    hvd.barrier()
    hvd.shutdown()


def listening_ports(machine: Machine) -> set[int]:
    table = machine.run(["cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in table.splitlines() if not line.strip().startswith("sl")]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}


def doors(machine: Machine) -> list[str]:
    """All listening ports at one of the host's addresses, the store's first."""
    address = machine.nics[0].addresses[-1]
    return [f"[{address}]:{port}" for port in sorted(listening_ports(machine), key=lambda port: port != PORT)]


def test_strangers_disturb_nothing(bed: Bed, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    hosts = {"hosta": 2, "hostb": 2, "hostc": 1}
    with start_ranks(bed, hosts, work_with_everybody, gate.path, env={"_HOROVOD_SECRET_KEY": KEY}) as ranks:
        for rank in range(5):
            ranks.wait_for_line(rank, "ready")
        places = [door for machine in bed for door in doors(machine)]
        assert len(places) == 6  # the store and five ranks
        command = [sys.executable, str(STRANGER), KEY, *places]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with bed["hostb"].popen(command, **pipes) as stranger:
            try:
                assert stranger.stdout
                answers = json.loads(stranger.stdout.readline())
                gate.open()
                ended = ranks.wait()
            finally:
                stranger.kill()
    assert [each.lines for each in ended] == [["ready", "done"]] * 5
    assert [each.code for each in ended] == [0] * 5
    assert answers["connections"] == 9 * len(places)
    let_in, refused_version = "687664a70104290000", "687664a70105010001"  # a verdict, a notice
    assert answers["right key"].startswith(let_in)
    assert (answers["replay"], answers["wrong key"]) == ("", "")
    assert answers["other version"] == refused_version


def form(gate: str) -> None:
    import fcntl

    say("up")
    with open(gate) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
    say(failure(hvd.init))
    if hvd.is_initialized():
        hvd.allreduce(np.ones(3))
        hvd.shutdown()


def form_apart(bed: Bed, directory: Path, other: dict[str, str]) -> list[Ended]:
    """How the ranks end on two hosts with one each, the second of which has settings of its own. They begin together:
    who comes late finds nobody, and learns nothing."""
    gate = Gate(directory / "gate")
    shared = {"_HOROVOD_SECRET_KEY": KEY, "HOROVOD_START_TIMEOUT": "5"}
    with start_ranks(
        bed, {"hosta": 1, "hostb": 1}, form, gate.path, env=shared, env_of=lambda rank: other if rank == 1 else {}
    ) as ranks:
        for rank in range(2):
            ranks.wait_for_line(rank, "up")
        gate.open()
        return ranks.wait()


def test_a_rank_with_another_key_is_refused(bed: Bed, tmp_path: Path) -> None:
    ended = form_apart(bed, tmp_path, {"_HOROVOD_SECRET_KEY": secrets.token_hex(32)})
    here, there = (each.output.removeprefix("up\n") for each in ended)
    assert "HorovodInternalError" in here and "never connected: 1" in here
    assert there.startswith("ValueError")  # trying again would not help, as it would with HorovodInternalError
    assert "it has another key: it belongs to another job" in there
    assert all(address in there for address in bed["hosta"].addresses)


def tls_identity(directory: Path) -> str:
    """As the launcher makes it: a certificate for the job and its key."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=job"]
    subprocess.run(
        ["openssl", "req", "-x509", *curve, "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    return (certificate.read_bytes() + key.read_bytes()).hex()


def test_a_world_under_tls(bed: Bed, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    secret = {"_HOROVOD_SECRET_KEY": KEY, "HOROVOD_TLS": "1", "_HOROVOD_TLS_IDENTITY": tls_identity(tmp_path)}
    with start_ranks(bed, {"hosta": 2, "hostb": 1, "hostc": 1}, work_with_everybody, str(gate), env=secret) as ranks:
        assert [each.lines for each in ranks.wait()] == [["ready", "done"]] * 4


def test_tls_on_one_side_only_is_told(bed: Bed, tmp_path: Path) -> None:
    ended = form_apart(bed, tmp_path, {"HOROVOD_TLS": "1", "_HOROVOD_TLS_IDENTITY": tls_identity(tmp_path)})
    assert all("HorovodInternalError" in each.output for each in ended)
    assert "HOROVOD_TLS must be the same everywhere" in ended[0].errors + ended[1].output
