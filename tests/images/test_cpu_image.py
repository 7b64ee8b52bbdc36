"""The CPU image, built for real, in containers on two hosts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from api_server import ApiServer, pod
from building import NAME, ROOT
from chart import render
from engine import Engine
from pods import make_keys

TRAIN = ["horovodrun", "-np", "2", "-H", "hosta:1,hostb:1", "-p", "12345", "python", "numpy_digits.py", "--epochs", "2"]


def check_training(said: str) -> None:
    accuracy = re.search(r"test accuracy ([0-9.]+), .* with 2 ranks", said)
    assert accuracy, said
    assert float(accuracy[1]) > 0.8


@pytest.mark.parametrize("user", ["root", "horovod"])
def test_training_across_two_hosts(engines: list[Engine], keys: Path, user: str) -> None:
    """With the port of the tutorials, keys from a volume, and the 64 MiB of /dev/shm that containers have."""
    for path in (keys, *keys.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    options = ["--network", "host", "--user", user, "--env", "SSH_SERVER_PORT=12345", "--health-interval", "1s"]
    containers = [engine.start(*options, "--volume", f"{keys}:/etc/horovod/ssh:ro", NAME, "sshd") for engine in engines]
    for engine, container in zip(engines, containers, strict=True):
        engine.await_healthy(container)
    main, container = engines[0], containers[0]
    assert main.docker("exec", container, "df", "--output=size", "-BM", "/dev/shm").split()[-1] == "64M"
    said = main.docker("exec", container, *TRAIN)
    check_training(said)


def test_training_as_documented_by_horovod(engines: list[Engine], keys: Path) -> None:
    """A shared ~/.ssh, and a server that is started by hand."""
    shutil.copy(keys / "id_ed25519.pub", keys / "authorized_keys")
    options = ["--network", "host", "--volume", f"{keys}:/root/.ssh", NAME]
    engines[1].start(*options, "bash", "-c", "/usr/sbin/sshd -p 12345; sleep infinity")
    said = engines[0].docker("run", "--rm", *options, *TRAIN)
    check_training(said)


def test_two_containers_by_compose(engines: list[Engine]) -> None:
    variables = [f"HOROVOD_IMAGE={NAME}", "SCRIPT=numpy_digits.py", "COMPOSE_PROJECT_NAME=tryout"]
    compose = [*variables, "docker-compose", "-f", str(ROOT / "deploy/docker/compose.yaml")]
    up = engines[0].run(*compose, "up", "--no-build", "--exit-code-from", "main", program="env")
    down = engines[0].run(*compose, "down", "--volumes", program="env")
    assert up.returncode == 0, up.stdout + up.stderr
    check_training(up.stdout)
    assert down.returncode == 0, down.stderr


def test_the_chart_with_the_image(engines: list[Engine], tmp_path: Path) -> None:
    """Its scripts, rights and volumes, as the kubelet would give them to the containers."""
    worker_name = "demo-horovod-0.demo-horovod"
    args = ["horovodrun", "--hostfile", "/horovod/generated/hostfile", "python", "numpy_digits.py", "--epochs", "2"]
    rendered = render({"worker": {"number": 1, "slots": 2}, "driver": {"args": args}})
    make_keys(tmp_path / "keys")
    address = engines[1].machine.address

    def options(kind: str, name: str) -> list[str]:
        spec = rendered.pod(kind, "demo-horovod")
        (container,) = [each for each in spec["containers"] if each["name"] == name]
        files = rendered.write_files(spec, tmp_path / name)
        security = container["securityContext"]
        variables = [word for each in container["env"] for word in ("--env", f"{each['name']}={each['value']}")]
        rights = [word for right in security["capabilities"]["add"] for word in ("--cap-add", right)]
        keys = tmp_path / "keys"
        volumes = ["--volume", f"{files}:/horovod/generated:ro", "--volume", f"{keys}:/etc/secret-volume:ro"]
        return [
            *("--network", "host", "--add-host", f"{worker_name}:{address}", "--tmpfs", "/horovod/ssh"),
            *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", *rights, *variables, *volumes),
            *("--entrypoint", container["command"][0], NAME),
        ]

    engines[1].start(*options("StatefulSet", "worker"))
    driver = options("Job", "horovod-driver")
    wait = ["/horovod/generated/waitWorkersReady.sh" if each.endswith("/run.sh") else each for each in driver]
    engines[0].docker("run", "--rm", *wait)
    said = engines[0].docker("run", "--rm", *driver)
    check_training(said)


def test_no_key_is_in_the_image(engines: list[Engine]) -> None:
    private = ["find", "/", "-xdev", "-name", "ssh_host_*", "-o", "-xdev", "-name", "id_*", "-path", "*ssh*"]
    assert engines[0].docker("run", "--rm", "--entrypoint", private[0], NAME, *private[1:]) == ""


def test_what_is_where(engines: list[Engine]) -> None:
    def inside(*command: str) -> str:
        return engines[0].docker("run", "--rm", NAME, *command)

    assert inside("pwd") == "/horovod/examples\n"
    assert "numpy_digits.py" in inside("ls", "/horovod/examples")
    assert inside("bash", "-lc", "command -v python") == "/opt/horovod/bin/python\n"
    assert "[X] NumPy" in inside("horovodrun", "--check-build")
    assert inside("id", "-u", "horovod") == "10001\n"
    assert inside("bash", "-c", "command -v ps pkill pgrep").count("\n") == 3  # of deploy/preemptible


def test_a_server_without_keys_is_refused(engines: list[Engine]) -> None:
    result = engines[0].run("run", "--rm", "--network", "host", NAME, "sshd")
    assert result.returncode == 1
    assert "nobody could log in" in result.stderr


def test_kubectl_of_the_image_serves_discovery(engines: list[Engine], tmp_path: Path) -> None:
    """It is older than that of most clusters; what it is asked for has not changed since."""
    container = engines[0].start(NAME, "sleep", "infinity")
    engines[0].docker("cp", f"{container}:/usr/local/bin/kubectl", str(tmp_path / "kubectl"))
    rendered = render()
    folder = rendered.write_files(rendered.pod("Job", "demo-horovod"), tmp_path / "generated")
    labels = {"app": "horovod", "release": "demo", "role": "worker"}
    with ApiServer() as api:
        api.pods = [pod("demo-horovod-0", labels, ready=True), pod("demo-horovod-1", labels, ready=False)]
        environment = os.environ | api.environment(tmp_path) | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        script = [folder / "discoverHosts.sh"]
        result = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=60)
    assert result.stdout == "demo-horovod-0.demo-horovod:1\n", result.stderr
