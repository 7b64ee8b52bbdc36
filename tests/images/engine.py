"""A Docker engine on a host of the test bed.

    with Engine(bed["hosta"], folder) as engine:
        engine.load(archive)
        server = engine.start("--network", "host", NAME, "sshd")
        engine.docker("exec", server, "true")

Every call has a limit.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Self

from bed import Machine

DOCKER = "/usr/bin/docker"
LIMIT = 300.0


class Engine:
    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self._log = folder / f"{machine.name}.log"
        data = folder / machine.name
        data.mkdir()
        with self._log.open("wb") as log:
            command = ["dockerd", "--data-root", str(data)]
            self._daemon = machine.popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + LIMIT
        while machine.run([DOCKER, "info"], capture_output=True).returncode != 0:
            assert self._daemon.poll() is None and time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Containers end with the engine, which has to be told: its mounts would stay."""
        self.remove_all()
        self._daemon.terminate()
        self._daemon.wait(LIMIT)

    def run(self, *arguments: str, program: str = DOCKER) -> subprocess.CompletedProcess[str]:
        return self.machine.run(
            [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT
        )

    def docker(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.returncode == 0, f"docker {' '.join(arguments)}: {result.stdout}{result.stderr}"
        return result.stdout

    def load(self, archive: Path) -> None:
        self.docker("load", "--quiet", "--input", str(archive))

    def start(self, *arguments: str) -> str:
        """A container that runs in the background; its name."""
        return self.docker("run", "--detach", *arguments).strip()

    def await_healthy(self, container: str) -> None:
        deadline = time.monotonic() + 60
        while (state := self.docker("inspect", "--format", "{{.State.Health.Status}}", container).strip()) != "healthy":
            said = self.run("logs", container)
            assert time.monotonic() < deadline and state != "unhealthy", f"{state}: {said.stdout}{said.stderr}"
            time.sleep(0.1)

    def remove_all(self) -> None:
        if containers := self.docker("ps", "--all", "--quiet").split():
            self.docker("rm", "--force", "--volumes", *containers)
