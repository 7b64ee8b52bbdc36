"""Jobs that are slow for a known reason, and what horovodrun --report says of their timelines."""

import itertools
import json
import os

import pytest

JOB = """
import os, sys, time
import numpy as np
import horovod.numpy as hvd
hvd.init()
rank = hvd.rank()
def step(index):
    {work}
    handles = [hvd.allreduce_async(np.ones(1000), name=f"grad.{{i}}") for i in range(3)]
    for handle in handles:
        hvd.synchronize(handle)
for index in range({steps}):
    step(index)
{end}
hvd.shutdown()
"""


@pytest.fixture
def record(run, python, tmp_path, monkeypatch):
    """Runs a job of three ranks; its timeline."""
    monkeypatch.setenv("HOROVOD_TIMELINE_ALL_RANKS", "1")

    def call(work, steps=30, end="", code=0):
        timeline = tmp_path / "all.json"
        job = python(JOB.format(work=work, steps=steps, end=end))
        result = run("-np", "3", "--timeline-filename", str(timeline), *job)
        assert result.returncode == code, result.stderr.decode()
        return timeline

    return call


@pytest.fixture
def report(run):
    def call(path, *more):
        result = run("--report", str(path), "--json", *more)
        assert result.returncode == 0, result.stderr.decode()
        return json.loads(result.stdout)

    return call


def advice_of(found, what):
    return next((advice for advice in found["advice"] if advice["what"] == what), None)


def test_a_straggler(record, report, run, tmp_path):
    """Far slower than what a loaded machine does to the others."""
    timeline = record("time.sleep(0.4 if rank == 1 else 0.02)", steps=12)
    found = report(timeline, "--report-html", str(tmp_path / "report.html"))
    assert found["problems"] == []
    assert (found["world"]["size"], found["world"]["files"], found["steps"]["count"]) == (3, 3, 11)
    first = found["advice"][0]
    assert (first["what"], first["rank"]) == ("straggler", 1)
    assert 0.1 < first["gain_per_step"] < found["steps"]["median"]
    assert found["waited_for"][0][1] > 0.1 > found["waited_for"][1][0]
    for time in found["ranks"]:
        parts = ("computation", "waiting_for_late_ranks", "exposed_communication", "overhead")
        total = sum(time[part] for part in parts) * found["steps"]["count"]
        assert total <= found["recorded"] + 0.001
    assert found["clocks"] == []  # one host
    assert found["cache"]["known"] > 0.5
    page = (tmp_path / "report.html").read_text()
    assert "rank 1 on" in page
    assert "http" not in page  # nothing from elsewhere
    text = run("--report", str(timeline.parent)).stdout.decode()
    assert "* rank 1 on " in text
    assert "  for rank 1: rank 0 " in text


def test_a_data_loader_that_cannot_keep_up(record, report):
    found = report(record("time.sleep(0.7 if rank == 2 and index % 5 == 4 else 0.02)", steps=26))
    pauses = advice_of(found, "pauses")
    assert pauses is not None, found["advice"]
    assert pauses["rank"] == 2
    assert advice_of(found, "straggler") is None
    long = [pause["step"] for pause in found["pauses"]["list"] if pause["extra"] > 0.3]
    assert len(long) == 5
    assert {later - earlier for earlier, later in itertools.pairwise(long)} == {5}


def test_a_killed_rank(record, report):
    """The files of the killed one and of those that lost it are readable up to there."""
    end = "import signal\nif rank == 1: os.kill(os.getpid(), signal.SIGKILL)\nhvd.allreduce(np.ones(3), name='never')"
    found = report(record("pass", end=end, code=1))
    assert found["world"]["files"] == 3
    assert found["steps"]["count"] >= 28


def test_missing_and_foreign_files(record, run, tmp_path):
    timeline = record("pass")
    (tmp_path / "all.rank2.json").unlink()
    result = run("--report", str(timeline))
    assert b"note: the file of rank 2 is missing" in result.stdout
    os.truncate(timeline, timeline.stat().st_size // 2)
    assert b"is cut off" in run("--report", str(timeline)).stdout
    timeline.write_text("something else")
    (tmp_path / "all.rank1.json").unlink()
    result = run("--report", str(timeline))
    assert result.returncode == 1
    assert b"holds no timeline" in result.stderr
    result = run("--report", str(tmp_path / "nothing"))
    assert result.returncode == 1
    assert b"No such file or directory" in result.stderr


def test_a_timeline_of_rank_0_alone(record, report, monkeypatch):
    monkeypatch.delenv("HOROVOD_TIMELINE_ALL_RANKS")
    found = report(record("pass"))
    assert any("HOROVOD_TIMELINE_ALL_RANKS=1" in problem for problem in found["problems"])
    assert {each["name"]: each["count"] for each in found["tensors"] if "grad" in each["name"]} == {
        f"allreduce.grad.{index}": 30 for index in range(3)
    }
