"""Elastic jobs whose ranks find commits in files: whose state they continue with. Every host has its own file."""

from __future__ import annotations

import time
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from job import Job, MakeJob

from horovod.common.elastic import durable
from horovod.common.elastic.durable import Origin

FIRST, SECOND = "127.0.0.1", "127.0.0.2"
OURS, ANOTHER = 71, 72
SAMPLES = 61  # of worker.py


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


def write(files: Path, host: str, epoch: int, job: int = OURS, name: str = "worker.py") -> None:
    """A commit of a job that has come to the end of this epoch."""
    values = {"account": np.append(np.full(SAMPLES, float(epoch)), 0.0), "epoch": epoch, "processed": 0}
    durable.write(files / host, Origin(100 * epoch, job, name=name), {"objects": cloudpickle.dumps(values)})


def damage(files: Path, host: str) -> None:
    write(files, host, epoch=1)
    content = (files / host).read_bytes()
    (files / host).write_bytes(content[: len(content) // 2])


def job_of(start: MakeJob, files: Path, *hosts: str) -> Job:
    env = {"ELASTIC_TEST_FILE": f"{files}/{{host}}"}
    return start(dict.fromkeys(hosts, 1), len(hosts), "--min-np", "1", "--max-np", "2", env=env)


@pytest.mark.parametrize("found", ["another job", "same job", "other script", "damaged"])
def test_a_newcomer_with_a_file_takes_over_the_running_job(start: MakeJob, files: Path, found: str) -> None:
    if found == "damaged":
        damage(files, SECOND)
    else:
        job = OURS if found == "same job" else ANOTHER
        write(files, SECOND, 10**6, job, "other.py" if found == "other script" else "worker.py")
    if found == "same job":
        write(files, FIRST, 2)
    running = job_of(start, files, FIRST)
    running.wait_until_going(1)
    changed = time.monotonic()
    running.set_hosts({FIRST: 1, SECOND: 1})
    running.wait_until_going(2, changed)
    done = running.finish()
    assert {event["epoch"] < 10**5 for event in done} == {True}
    was_told = "continues with the state of the running job" in running.log()
    assert was_told == (found != "same job"), running.report()
    assert not any(event["event"] == "fault" for event in running.events)


@pytest.mark.parametrize("newest", [FIRST, SECOND])
def test_a_job_that_starts_anew_goes_on_from_the_newest_file(start: MakeJob, files: Path, newest: str) -> None:
    for host in (FIRST, SECOND):
        write(files, host, 1000 if host == newest else 10)
    job = job_of(start, files, FIRST, SECOND)
    job.wait_until_going(2)
    assert min(event["epoch"] for event in job.finish()) >= 1000


def test_a_damaged_file_is_left_out_if_another_is_good(start: MakeJob, files: Path) -> None:
    damage(files, FIRST)
    write(files, SECOND, 1000)
    job = job_of(start, files, FIRST, SECOND)
    job.wait_until_going(2)
    assert min(event["epoch"] for event in job.finish()) >= 1000
    assert "continues with the state of another rank's file" in job.log() and "damaged" in job.log()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ("two jobs", "files of 2 different jobs"),
        ("other script", 'resume_from(..., job="other.py")'),
        ("damaged", "wrong checksum"),
    ],
)
def test_files_that_cannot_tell_are_refused(start: MakeJob, files: Path, found: str, words: str) -> None:
    if found == "damaged":
        damage(files, SECOND)
    elif found == "other script":
        write(files, SECOND, 10, ANOTHER, "other.py")
    else:
        write(files, FIRST, 1)
        write(files, SECOND, 10, ANOTHER)
    job = job_of(start, files, FIRST, SECOND)
    job.wait_for_end(exit_code=1)
    assert words in job.log()
    assert not any(event["event"] == "going" for event in job.events)
