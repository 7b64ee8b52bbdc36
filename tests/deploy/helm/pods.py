"""A release of the chart on hosts of the test bed, which play its pods and do to them what the kubelet would.

    cluster = Cluster(bed, folder)
    cluster.install({"worker": {"number": 2}})      # renders the chart, and mounts what it says into the pods
    workers = [cluster.start_worker(i) for i in range(2)]
    cluster.wait_until_ready(0, 1)
    cluster.run_driver("waitWorkersReady.sh")

Every process has the rights of its container's security context.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bed import Bed, Host
from chart import Rendered, Values, render
from container import Container

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
NAME = "demo-horovod"
WORKERS = 3
LIMIT = 60.0
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
OURS = f"{HERE / 'fake'}:{Path(sys.executable).parent}:{ROOT / 'python/horovod/bin'}"
PATH = f"{OURS}:{SYSTEM}"
Process = subprocess.Popen[str]


def worker_name(number: int) -> str:
    return f"{NAME}-{number}.{NAME}"


def hosts() -> list[Host]:
    return [Host(f"{NAME}-driver"), *(Host(worker_name(i)) for i in range(WORKERS))]


def make_keys(folder: Path) -> None:
    """As make-keys.sh does, for which test_scripts.py is the test."""
    folder.mkdir()
    for name in ("host-key", "server-key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        (folder / f"{name}.pub").rename(folder / f"{name}-pub")


class Cluster:
    def __init__(self, bed: Bed, folder: Path) -> None:
        self.folder, self.listed = folder, folder / "pods"
        self.keys = folder / "keys"
        make_keys(self.keys)
        self.rendered: Rendered = render()
        self._processes: list[Process] = []
        self.driver = self._container(bed, f"{NAME}-driver", f"{NAME}-driver")
        self.workers = [self._container(bed, worker_name(i), f"{NAME}-{i}") for i in range(WORKERS)]
        self.list_pods()

    def _container(self, bed: Bed, host: str, hostname: str) -> Container:
        own = self.folder / hostname
        for part in ("generated", "keys"):
            (own / part).mkdir(parents=True)
        volumes = {"/horovod/generated": own / "generated", "/etc/secret-volume": own / "keys", "/horovod/ssh": None}
        return Container(bed[host], volumes, hostname=hostname)

    # ---- what Kubernetes does

    def install(self, values: Values) -> None:
        """Also again, with other values, as an upgrade does."""
        self.rendered = render(values)
        owners = [(f"{NAME}-driver", "Job"), *((f"{NAME}-{i}", "StatefulSet") for i in range(WORKERS))]
        for pod, kind in owners:
            spec = self.rendered.pod(kind, NAME)
            self.rendered.write_files(spec, self.folder / pod / "generated")
            self.mount_keys(self.keys, spec, pod)

    def mount_keys(self, keys: Path, spec: dict[str, Any], pod: str) -> None:
        (volume,) = [each for each in spec["volumes"] if each["name"] == "keys"]
        names = [path.name for path in keys.iterdir()]
        if "projected" in volume:
            names = [item["key"] for source in volume["projected"]["sources"] for item in source["secret"]["items"]]
        mounted = self.folder / pod / "keys"
        for old in mounted.iterdir():
            old.unlink()
        for name in names:
            (mounted / name).write_bytes((keys / name).read_bytes())
            (mounted / name).chmod(0o740 if self._user(spec) else 0o700)
            os.chown(mounted / name, -1, self._user(spec))

    def start_worker(self, number: int) -> Process:
        with self._log(number).open("w") as log:
            return self._start(self.workers[number], "StatefulSet", "worker", "run.sh", {}, stdout=log)

    def said_by_worker(self, number: int) -> str:
        return self._log(number).read_text()

    def _log(self, number: int) -> Path:
        return self.folder / f"{NAME}-{number}" / "log"

    def start_driver(self, script: str = "run.sh", **options: Any) -> Process:
        environment = {"FAKE_PODS": str(self.listed)} | options.pop("env", {})
        return self._start(self.driver, "Job", "horovod-driver", script, environment, **options)

    def run_driver(self, script: str) -> tuple[int, str]:
        """Its exit code and what it said."""
        process = self.start_driver(script)
        said, _ = process.communicate(timeout=LIMIT)
        return process.returncode, said

    def wait_until_ready(self, *numbers: int) -> None:
        """By the pods' own probe, again and again, as the kubelet does."""
        deadline = time.monotonic() + LIMIT
        for number in numbers:
            while self.probe(number) != 0:
                assert time.monotonic() < deadline, f"worker {number} is not ready: {self.said_by_worker(number)}"

    def probe(self, number: int) -> int:
        probe = self.rendered.pod("StatefulSet")["containers"][0]["readinessProbe"]["exec"]["command"]
        process = self.workers[number].run(probe, env={"PATH": PATH}, stderr=subprocess.DEVNULL)
        return int(process.returncode)

    def list_pods(self, *ready: int, deleted: tuple[int, ...] = ()) -> None:
        """What kubectl tells from now on: name, readiness, and when it was deleted."""
        lines = [f"{NAME}-{i} True \n" for i in ready] + [f"{NAME}-{i} True 2026-01-01T00:00:00Z\n" for i in deleted]
        new = self.folder / "pods.new"
        new.write_text("".join(lines))
        new.replace(self.listed)

    def end(self) -> None:
        """Deletes all pods at once, without grace."""
        for container in (self.driver, *self.workers):
            for pid in container.machine.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.communicate(timeout=LIMIT)
        self._processes.clear()
        for container in (self.driver, *self.workers):  # what pods have in memory goes with them
            container.run(
                ["find", "/horovod/ssh", "/root/.ssh", "-mindepth", "1", "-delete"], stderr=subprocess.DEVNULL
            )
        self.list_pods()

    def _user(self, spec: dict[str, Any]) -> int:
        return int(spec["securityContext"].get("runAsUser", 0))

    def _start(
        self, pod: Container, kind: str, name: str, script: str, more: dict[str, str], **options: Any
    ) -> Process:
        spec = self.rendered.pod(kind, NAME)
        (container,) = [each for each in spec["containers"] if each["name"] == name]
        limits = _limits(container["securityContext"], self._user(spec))
        variables = {each["name"]: each["value"] for each in container["env"]}
        environment = variables | {"PATH": PATH, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"} | more
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        command = [*limits, f"/horovod/generated/{script}"]
        process = pod.popen(command, env=environment, **(pipes | options))
        self._processes.append(process)
        return process


def _limits(security: dict[str, Any], user: int) -> list[str]:
    """The security context of a container, as far as the kernel keeps it."""
    assert security["capabilities"]["drop"] == ["ALL"]
    allowed = "".join(f",+{each.lower()}" for each in security["capabilities"].get("add", []))
    command = ["setpriv", "--no-new-privs", f"--bounding-set=-all{allowed}"]
    if user:
        command += [f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all"]
    return command
