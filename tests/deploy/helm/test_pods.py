"""The chart's scripts in hosts that play its pods: driver, workers, keys, and the jobs of the tutorials."""

from __future__ import annotations

import base64
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from job import Job
from jobs import REDUCE, WAIT, await_up, of_command
from mpi import path_without_mpi
from pods import LIMIT, NAME, OURS, SYSTEM, Cluster, make_keys, worker_name

TUTORIAL = "--mca orte_keep_fqdn_hostnames t --allow-run-as-root --display-map --tag-output --timestamp-output"


def python(code: str) -> list[str]:
    return ["python", "-c", shlex.quote(code)]


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=LIMIT)
    return process.returncode, said


def install(cluster: Cluster, number: int = 2, **more: Any) -> None:
    """With workers that run and are ready."""
    worker = {"number": number} | more.pop("worker", {})
    cluster.install({"worker": worker, **more})
    for i in range(number):
        cluster.start_worker(i)
    cluster.wait_until_ready(*range(number))


def test_the_driver_waits_for_its_workers(cluster: Cluster) -> None:
    cluster.install({"worker": {"number": 2}})
    waiting = cluster.start_driver("waitWorkersReady.sh")
    for i in range(2):
        cluster.start_worker(i)
    assert finish(waiting) == (0, "waitWorkersReady.sh: 2 workers answer\n")


def test_workers_that_do_not_come_are_named(cluster: Cluster) -> None:
    install(cluster, 1)
    cluster.install({"worker": {"number": 3}, "driver": {"waitSeconds": 5}})
    code, said = cluster.run_driver("waitWorkersReady.sh")
    assert code == 1
    assert f"no answer within 5 s from: {worker_name(1)} {worker_name(2)} (the last said: ssh: connect" in said


def test_some_workers_may_be_enough(cluster: Cluster) -> None:
    install(cluster, 1)
    cluster.install({"worker": {"number": 3}, "driver": {"minWorkers": 1}})
    assert cluster.run_driver("waitWorkersReady.sh") == (0, "waitWorkersReady.sh: 1 workers answer\n")


def test_a_host_file_job_runs_on_all_workers(cluster: Cluster, tmp_path: Path) -> None:
    """The tutorial's first command, in pods without MPI, as the image has none: arguments for mpirun do no harm."""
    script = tmp_path / "train.py"
    script.write_text(REDUCE)
    hostfile = ["--hostfile", "/horovod/generated/hostfile"]
    for_mpirun = ["--mpi-args", f'"{TUTORIAL}"']
    args = ["horovodrun", "-n", 4, *hostfile, *for_mpirun, "bash", "-c", shlex.quote(f"python {script}")]
    install(cluster, worker={"slots": 2}, driver={"args": args}, ssh={"port": 12345})
    path = f"{OURS}:{path_without_mpi(tmp_path / 'bin', SYSTEM)}"
    code, said = finish(cluster.start_driver(env={"PATH": path}))
    assert code == 0, said
    lines = sorted(said.splitlines())
    assert lines[:-1] == [f"[{rank}]<stdout>:reduced {rank} of 4 on {NAME}-{rank // 2}" for rank in range(4)]
    assert lines[-1].startswith("horovodrun: warning: --mpi-args is ignored: there is no mpirun in PATH")


def test_the_driver_takes_part_if_it_has_slots(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(REDUCE)
    args = ["horovodrun", "--hostfile", "/horovod/generated/hostfile", "python", str(script)]
    install(cluster, 1, driver={"args": args, "slots": 1})
    code, said = finish(cluster.start_driver())
    assert code == 0, said
    assert f"[0]<stdout>:reduced 0 of 2 on {NAME}-driver" in said


def test_an_elastic_job_follows_the_scale(cluster: Cluster, tmp_path: Path, horovodrun: str) -> None:
    """The tutorial's second command. A worker that is taken away leaves at a commit, before its pod ends."""
    install(cluster)
    cluster.list_pods(0, 1)

    def start(command: list[str], env: dict[str, str], **options: Any) -> Any:
        """As the job would be started, but by the chart."""
        command[command.index("--host-discovery-script") + 1] = "/horovod/generated/discoverHosts.sh"
        cluster.install({"worker": {"number": 2}, "driver": {"args": [shlex.join(command)]}})
        needed = {name: value for name, value in env.items() if name.startswith(("ELASTIC_", "PYTHON"))}
        return cluster.start_driver(env=needed, **options)

    with Job(horovodrun, tmp_path / "job", {}, 2, options=("--min-np", "1", "--max-np", "3"), popen=start) as job:
        job.wait_until_going(2)
        added = cluster.start_worker(2)
        cluster.wait_until_ready(2)
        cluster.list_pods(0, 1, 2)
        job.wait_until_going(3)
        taken_away = time.monotonic()
        cluster.list_pods(0, 1, deleted=(2,))
        added.send_signal(signal.SIGTERM)
        job.wait_until_going(2, taken_away)
        assert added.wait(LIMIT) == 0
        assert sorted(job.hosts_in_use(taken_away)) == [worker_name(0), worker_name(1)]
        assert job.finish()


def test_a_worker_without_a_job_leaves_at_once(cluster: Cluster) -> None:
    cluster.install({"worker": {"number": 1}})
    worker = cluster.start_worker(0)
    cluster.wait_until_ready(0)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(LIMIT) == 0
    assert cluster.probe(0) != 0


def test_the_exit_code_is_that_of_the_command(cluster: Cluster) -> None:
    cluster.install({"driver": {"args": ["exit", 7]}})
    assert finish(cluster.start_driver())[0] == 7


def test_a_driver_that_is_taken_away_ends_its_job(cluster: Cluster) -> None:
    install(cluster, 1, driver={"args": ["horovodrun -np 1 -H", worker_name(0), *python(WAIT)]})
    driver = cluster.start_driver()
    await_up(driver, 1)
    driver.send_signal(signal.SIGTERM)
    code, said = finish(driver)
    assert code == 143, said
    assert "got SIGTERM, stopping 1 rank" in said
    assert of_command(cluster.workers[0].machine, b"signal.pause") == []


def test_without_arguments_the_driver_sleeps_until_it_is_told(cluster: Cluster) -> None:
    install(cluster, 1)
    driver = cluster.start_driver()
    script = f"until [ -s /root/.ssh/config ]; do :; done; exec ssh {worker_name(0)} hostname"
    by_hand = cluster.driver.run(["sh", "-c", script], capture_output=True, text=True)  # as in kubectl exec
    assert by_hand.stdout == f"{NAME}-0\n", by_hand.stderr
    driver.send_signal(signal.SIGTERM)
    assert finish(driver)[0] == 143


def test_nothing_but_the_right_keys_is_accepted(cluster: Cluster, tmp_path: Path) -> None:
    """Neither a driver with another key, nor a worker that is not the one the driver knows."""
    install(cluster, 1, driver={"waitSeconds": 1})
    make_keys(tmp_path / "others")
    spec = cluster.rendered.pod("Job", NAME)
    for name, reason in (("host-key", "Permission denied"), ("server-key-pub", "Host key verification failed")):
        mixed = tmp_path / name
        mixed.mkdir()
        for path in cluster.keys.iterdir():
            source = tmp_path / "others" if path.name == name else cluster.keys
            (mixed / path.name).write_bytes((source / path.name).read_bytes())
        cluster.mount_keys(mixed, spec, f"{NAME}-driver")
        code, said = cluster.run_driver("waitWorkersReady.sh")
        assert code == 1
        assert reason in said


def test_keys_of_values_that_lost_their_last_newline(cluster: Cluster) -> None:
    """They come without a key for the servers."""
    keys = {"hostKey": (cluster.keys / "host-key").read_text().rstrip("\n")}
    keys["hostKeyPub"] = (cluster.keys / "host-key-pub").read_text().rstrip("\n")
    cluster.install({"worker": {"number": 1}, "ssh": keys})
    secret = cluster.rendered.find("Secret")["data"]
    given = cluster.folder / "given"
    given.mkdir()
    for name, value in secret.items():
        (given / name).write_bytes(base64.b64decode(value))
    cluster.mount_keys(given, cluster.rendered.pod("Job", NAME), f"{NAME}-driver")
    (cluster.folder / f"{NAME}-0/keys/server-key").unlink()
    (cluster.folder / f"{NAME}-0/keys/host-key-pub").write_bytes(base64.b64decode(secret["host-key-pub"]))
    cluster.start_worker(0)
    cluster.wait_until_ready(0)
    assert cluster.run_driver("waitWorkersReady.sh")[0] == 0


def test_it_works_without_root(cluster: Cluster) -> None:
    install(cluster, 1, runAsNonRoot=True, ssh={"port": 2222}, driver={"args": ["ssh", worker_name(0), "id -u"]})
    code, said = finish(cluster.start_driver())
    assert (code, said) == (0, "10001\n")


def test_a_port_for_root_alone_is_refused_without_root(cluster: Cluster) -> None:
    """Helm refuses it too; here the image's own user is meant."""
    cluster.install({"runAsNonRoot": True, "ssh": {"port": 2222}})
    settings = cluster.folder / f"{NAME}-0/generated/settings.sh"
    settings.write_text(settings.read_text().replace("SSH_PORT=2222", "SSH_PORT=22"))
    worker = cluster.start_worker(0)
    assert worker.wait(LIMIT) == 1
    assert "port 22 needs root: choose an ssh port from 1024 on" in cluster.said_by_worker(0)


def test_helm_test_examines_the_workers(cluster: Cluster) -> None:
    install(cluster)
    spec = cluster.rendered.find("Pod", f"{NAME}-test")["spec"]
    cluster.rendered.write_files(spec, cluster.folder / f"{NAME}-driver" / "generated")
    code, said = cluster.run_driver("doctor.sh")
    assert code == 0, said
    assert "allreduce" in said
