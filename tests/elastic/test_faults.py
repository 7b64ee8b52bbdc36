"""Elastic jobs with faults, on this machine. Each checks that the job ends right, that no process is left, that all
ranks agree at the end, and that every sample of every epoch was used exactly once (worker.py)."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faults import HOSTS, OPTIONS, SIZE, Schedule, Summary
from job import ROOT, Job, MakeJob

from horovod.common.elastic import durable

EXAMPLE = ROOT / "examples/elastic/pytorch_mnist_elastic.py"

# A host that failed rests for a second, one whose process was sent SIGTERM for a minute: there is always another.
SPARE = {"127.0.0.1": 2, "127.0.0.2": 2, "127.0.0.3": 2}
# In --elastic-timeout a worker has to come: TensorFlow takes its time.
RETRY = ("--min-np", "1", "--max-np", "3", "--blacklist-cooldown-range", "1", "1", "--elastic-timeout", "300")


def strike(job: Job, kind: str, point: str, rank: int | str = "any") -> float:
    return float(job.wait_for_fault(job.fault(kind, point, rank))["time"])


@pytest.mark.parametrize("point", ["negotiation", "collective", "commit"])
@pytest.mark.parametrize("kind", ["kill", "exit", "term"])
def test_one_goes_and_another_comes(start: MakeJob, kind: str, point: str) -> None:
    job = start(SPARE, 3, *RETRY)
    job.wait_until_going(3)
    job.wait_until_going(3, strike(job, kind, point))
    job.finish()


@pytest.mark.parametrize("rank", [0, 2])
def test_the_first_and_the_last_rank(start: MakeJob, rank: int) -> None:
    job = start(SPARE, 3, *RETRY)
    job.wait_until_going(3)
    job.wait_until_going(3, strike(job, "kill", "collective", rank))
    job.finish()


@pytest.mark.parametrize(
    ("kind", "point"),
    [("kill", "leaving"), ("later", "forming"), ("kill", "sync"), ("kill", "init"), ("exit", "init")],
)
def test_one_more_while_the_others_recover(start: MakeJob, kind: str, point: str) -> None:
    job = start(SPARE, 3, *RETRY)
    job.wait_until_going(3)
    waiting = job.fault(kind, point)
    struck = strike(job, "kill", "negotiation", 1)
    job.wait_for_fault(waiting)
    job.wait_until_going(3, struck)
    job.finish()


def test_one_survivor_has_it_all(start: MakeJob) -> None:
    job = start(SPARE, 3, *RETRY)
    job.wait_until_going(3)
    numbers = [job.fault("kill", "collective", rank) for rank in (0, 1)]
    struck = [job.wait_for_fault(number)["time"] for number in numbers]
    job.wait_until_going(3, max(struck))
    done = job.finish()
    assert done[0]["epoch"] >= 1


def test_one_that_falls_silent_is_left_behind(start: MakeJob) -> None:
    job = start(SPARE, 3, *RETRY, env={"HOROVOD_SILENCE_SECONDS": "2"})
    job.wait_until_going(3)
    job.wait_until_going(3, strike(job, "stop", "negotiation", 1))
    job.finish()


def test_a_host_comes_and_another_goes(start: MakeJob) -> None:
    job = start({"127.0.0.1": 1, "127.0.0.2": 1}, 2, "--min-np", "1", "--max-np", "3")
    job.wait_until_going(2)
    job.set_hosts({"127.0.0.1": 1, "127.0.0.2": 1, "127.0.0.3": 1})
    job.wait_until_going(3)
    changed = time.monotonic()
    job.set_hosts({"127.0.0.2": 1, "127.0.0.3": 1})  # that of rank 0
    job.wait_until_going(2, changed)
    assert sorted(job.hosts_in_use(changed)) == ["127.0.0.2", "127.0.0.3"]
    job.finish()


def test_a_notice_costs_no_step(start: MakeJob) -> None:
    """SIGTERM: the process leaves after a commit, so no rank is rolled back."""
    job = start(SPARE, 3, *RETRY)
    job.wait_until_going(3)
    job.wait_until_going(3, strike(job, "term", "negotiation", 2))
    job.finish()
    assert "lost" not in job.log()


def test_one_that_dies_at_the_exit(start: MakeJob) -> None:
    job = start(SPARE, 3, *RETRY)
    job.wait_until_going(3)
    job.fault("kill", "exit", 1)
    (job.folder / "stop").touch()
    done = job.wait_for_end(exit_code=None)
    assert done


def test_a_job_goes_on_after_all_of_it_was_killed(start: MakeJob, tmp_path: Path) -> None:
    path = tmp_path / "commit"
    env = {"ELASTIC_TEST_FILE": str(path)}
    first = start(SPARE, 2, "--min-np", "1", "--max-np", "2", env=env)
    first.wait_until(lambda: path.exists() and durable.read(path)[0].commits >= 50, "fifty commits in the file")
    kept = durable.read(path)[0].commits
    first.process.kill()
    first.wait_for_end(exit_code=-signal.SIGKILL)  # no process is left
    second = start(SPARE, 2, "--min-np", "1", "--max-np", "2", env=env)
    second.wait_until_going(2)
    resumed = [event for event in second.events if event["event"] == "resumed"]
    assert [event["found"] for event in resumed] == [True, True]
    assert min(event["commits"] for event in resumed) >= kept
    second.finish()  # every sample of every epoch was used once, over both jobs


def test_the_elastic_example(horovodrun: str, tmp_path: Path) -> None:
    command = [horovodrun, "-np", "2", "--min-np", "1", "-H", "localhost:2", "--start-timeout", "200"]
    command += [sys.executable, str(EXAMPLE)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    options = ["--epochs", "3", "--lr", "0.05", "--momentum", "0.9", "--save-to", str(tmp_path / "commit")]
    for epochs in ("3", "4"):  # the second continues where the first ended
        options[1] = epochs
        ended = subprocess.run([*command, *options], env=env, capture_output=True, text=True, timeout=250)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    found = re.findall(r"epoch (\d+): 2 ranks, accuracy ([\d.]+)%", ended.stdout)
    assert [number for number, _ in found] == ["4"]
    assert float(found[0][1]) > 80


@pytest.mark.parametrize("program", ["torch_worker.py", "keras_worker.py"])
def test_frameworks_survive_it_all(start: MakeJob, program: str) -> None:
    options = ("--min-np", "1", "--max-np", "2", *RETRY[4:])
    job = start(SPARE, 2, *options, program=program)
    job.wait_until_going(2)
    for kind, point, rank in [("kill", "negotiation", 0), ("term", "negotiation", 1)]:
        job.wait_until_going(2, strike(job, kind, point, rank))
    assert job.finish()


def test_a_sharded_optimizer_is_right_when_rank_0_is_replaced(start: MakeJob) -> None:
    """The size stays, the survivor has another rank: between two steps, and in the middle of one."""
    job = start(SPARE, 2, "--min-np", "2", "--max-np", "2", *RETRY[4:], program="sharded_worker.py")
    job.wait_until_going(2)
    for point in ("negotiation", "collective"):
        job.wait_until_going(2, strike(job, "kill", point, 0))
    job.finish()
    assert {event["size"] for event in job.events if event["event"] == "going"} == {2}


def test_a_sharded_optimizer_is_right_when_the_world_shrinks_and_grows(start: MakeJob) -> None:
    job = start(SPARE, 2, "--min-np", "1", "--max-np", "2", *RETRY[4:], program="sharded_worker.py")
    job.wait_until_going(2)
    for hosts in ({job.hosts_of_world(2)[1]: 1}, SPARE):
        changed = time.monotonic()
        job.set_hosts(hosts)
        job.wait_until_going(min(2, sum(hosts.values())), changed)
    job.finish()


def test_a_sharded_optimizer_that_the_state_does_not_know(start: MakeJob) -> None:
    """Nothing reloads it: its pieces move to the ranks of the new world by themselves as long as none is lost."""
    one, two = {"127.0.0.1": 1}, {"127.0.0.1": 1, "127.0.0.2": 1}
    env = {"ELASTIC_TEST_STATE": "own"}
    job = start(one, 1, "--min-np", "1", "--max-np", "2", program="sharded_worker.py", env=env)
    job.wait_until_going(1)
    job.set_hosts(two)
    job.wait_until_going(2)
    job.set_hosts(one)
    job.wait_for_end(exit_code=1)
    assert "pieces of its state are lost" in job.log()


def test_all_at_once(start: MakeJob) -> None:
    """One is killed, one gets a notice, one falls silent, one host is replaced, and the survivors continue."""
    hosts = {f"127.0.0.{number}": 1 for number in range(1, 6)}
    job = start(hosts, 5, "--min-np", "1", "--max-np", "5", *RETRY[4:], env={"HOROVOD_SILENCE_SECONDS": "2"})
    job.wait_until_going(5)
    numbers = [job.fault(kind, "negotiation", rank) for kind, rank in [("kill", 1), ("term", 2), ("stop", 3)]]
    job.set_hosts({host: 1 for host in hosts if host != "127.0.0.5"} | {"127.0.0.6": 1, "127.0.0.7": 1, "127.0.0.8": 1})
    struck = max(job.wait_for_fault(number)["time"] for number in numbers)
    job.wait_until_going(5, struck)
    assert "127.0.0.5" not in job.hosts_of_world(5)  # its process may need a moment to end
    job.finish()


def test_hosts_that_flap(start: MakeJob) -> None:
    """Discovery that says something else every time costs worlds, not samples."""
    job = start({"127.0.0.1": 1, "127.0.0.2": 1}, 2, "--min-np", "1", "--max-np", "2")
    job.wait_until_going(2)
    for _ in range(3):
        for hosts in ({"127.0.0.1": 1}, {"127.0.0.1": 1, "127.0.0.2": 1}):
            changed = time.monotonic()
            job.set_hosts(hosts)
            job.wait_until_going(len(hosts), changed)
    job.finish()


def test_under_tls(start: MakeJob) -> None:
    """Workers ask for their places over TLS as well."""
    job = start(SPARE, 3, *RETRY, env={"HOROVOD_TLS": "1"})
    job.wait_until_going(3)
    job.wait_until_going(3, strike(job, "kill", "collective", 1))
    job.finish()


def test_twenty_random_faults(horovodrun: str, tmp_path: Path) -> None:
    """As `make soak` has them by the hundred; faults.py can replay a seed."""
    summary = Summary()
    with Job(horovodrun, tmp_path / "job", HOSTS, SIZE, options=OPTIONS) as job:
        Schedule(job, random.Random("smoke"), summary).run(20)
        job.finish()
    assert summary.count() >= 20
