"""The entry point of the images, in hosts that play containers; tests/images has it in the images themselves."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bed import Bed, Host, why_not
from container import Container
from jobs import REDUCE

ROOT = Path(__file__).resolve().parents[3]
ENTRYPOINT = ROOT / "deploy/docker/image/entrypoint.sh"
HEALTHCHECK = ROOT / "deploy/docker/image/healthcheck.sh"
LIMIT = 60.0


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A directory of keys, readable by all as volumes often are."""
    folder = tmp_path / "keys"
    folder.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "id_rsa"], check=True)
    (folder / "id_rsa").chmod(0o644)
    return folder


class Containers:
    """Two of them, with the same keys."""

    def __init__(self, bed: Bed, folder: Path, keys: Path) -> None:
        share = folder / "share"
        share.mkdir()
        for source in (ROOT / "deploy/docker/image/places.sh", ROOT / "deploy/helm/horovod/files/ssh.sh"):
            (share / source.name).write_text(source.read_text())
        volumes = {"/etc/horovod/ssh": keys, "/usr/local/share/horovod": share}
        self.one, self.other = (Container(host, {f"/volumes{k}": v for k, v in volumes.items()}) for host in bed)
        self._processes: list[subprocess.Popen[str]] = []
        self.variables = {
            "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": str(ROOT / "python"),
            "OMP_NUM_THREADS": "1",
            "HOROVOD_SHARE": "/volumes/usr/local/share/horovod",
            "SSH_KEYS": "/volumes/etc/horovod/ssh",
        }

    def start(self, container: Container, *command: str, user: int = 0, **variables: str) -> subprocess.Popen[str]:
        options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        environment = self.variables | variables
        process = container.popen([*become, ENTRYPOINT, *command], stdin=subprocess.DEVNULL, env=environment, **options)
        self._processes.append(process)
        return process

    def run(self, container: Container, *command: str, user: int = 0, **variables: str) -> tuple[int, str]:
        process = self.start(container, *command, user=user, **variables)
        said, _ = process.communicate(timeout=LIMIT)
        return process.returncode, said

    def serve(self, container: Container, port: int, user: int = 0) -> subprocess.Popen[str]:
        """Returns when the server listens."""
        server = self.start(container, "sshd", user=user, SSH_SERVER_PORT=str(port))
        assert server.stdout
        assert "Server listening" in server.stdout.readline()
        return server

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate(timeout=LIMIT)


@pytest.fixture
def containers(tmp_path: Path, keys: Path) -> Iterator[Containers]:
    if reason := why_not():
        pytest.skip(f"no test bed: {reason}")
    with Bed([Host("hosta"), Host("hostb")]) as bed:
        containers = Containers(bed, tmp_path, keys)
        yield containers
        containers.end()


def test_a_job_spans_containers(containers: Containers) -> None:
    containers.serve(containers.other, 12345)
    command = ["horovodrun", "-np", "2", "-H", "hosta:1,hostb:1", "-p", "12345", "python", "-c", REDUCE]
    code, said = containers.run(containers.one, *command)
    assert code == 0, said
    lines = sorted(line for line in said.splitlines() if "reduced" in line)
    assert lines == [f"[{rank}]<stdout>:reduced {rank} of 2 on host{'ab'[rank]}" for rank in range(2)]


def test_a_server_runs_beside_the_command(containers: Containers) -> None:
    login = ["ssh", "-p", "12345", "-o", "BatchMode=yes", "hosta", "hostname"]
    code, said = containers.run(containers.one, *login, SSH_SERVER="true", SSH_SERVER_PORT="12345")
    assert (code, "hosta" in said.splitlines()) == (0, True), said  # among what the server says


def test_it_works_without_root(containers: Containers, keys: Path) -> None:
    containers.serve(containers.other, 12345, user=10001)
    login = ["ssh", "-p", "12345", "-o", "BatchMode=yes", "hostb", "id -u"]
    code, said = containers.run(containers.one, *login, user=10001)
    assert (code, said) == (0, "10001\n")


def test_the_server_ends_when_it_is_told(containers: Containers) -> None:
    server = containers.serve(containers.one, 12345)
    server.send_signal(signal.SIGTERM)
    assert server.wait(LIMIT) in (0, 255, -signal.SIGTERM)  # by itself, however, or before it has a handler
    code, said = containers.run(containers.one, "ssh", "-p", "12345", "hosta", "true")
    assert (code, "Connection refused" in said) == (255, True)


def test_the_command_is_left_alone(containers: Containers) -> None:
    assert containers.run(containers.one, "sh", "-c", "umask; echo $0; exit 7", "zero") == (7, "0022\nzero\n")


def test_health_is_that_of_the_server_or_of_the_program(containers: Containers) -> None:
    def health(**variables: str) -> int:
        result = containers.one.run([HEALTHCHECK], env=containers.variables | variables, stderr=subprocess.DEVNULL)
        return int(result.returncode)

    assert health() == 0  # no server was asked for
    server = containers.serve(containers.one, 12345)
    assert health(SSH_SERVER_PORT="12345") == 0
    server.terminate()
    server.wait(LIMIT)
    assert health(SSH_SERVER_PORT="12345") == 1


def test_without_keys_nobody_could_log_in(containers: Containers, keys: Path) -> None:
    for path in keys.iterdir():
        path.unlink()
    code, said = containers.run(containers.one, "true", SSH_SERVER="true")
    assert code == 1
    assert "nobody could log in: mount keys at /volumes/etc/horovod/ssh, or set GENERATE_SSH_KEY=true" in said
    assert containers.run(containers.one, "echo", "fine")[0] == 0  # without the server no key is needed


def test_keys_are_made_on_request_and_once(containers: Containers, keys: Path) -> None:
    for path in keys.iterdir():
        path.unlink()
    for _ in range(2):
        assert containers.run(containers.one, "true", GENERATE_SSH_KEY="true") == (0, "")
        made = {path.name: path.read_text() for path in keys.iterdir()}
        assert set(made) == {"id_ed25519", "id_ed25519.pub"}
    containers.serve(containers.one, 12345)
    login = ["ssh", "-p", "12345", "-o", "BatchMode=yes", "hosta", "true"]
    assert containers.run(containers.other, *login, GENERATE_SSH_KEY="true") == (0, "")
    assert {path.name: path.read_text() for path in keys.iterdir()} == made
