"""Elastic jobs on other hosts, which are called when they are listed and let go when they are not."""

import functools
import os
import signal
import sys

import pytest
from elastic_job import WORKER, Job, watched
from waiting import Processes, agents_of, wait_for_file


@pytest.fixture
def job(horovodrun, tmp_path, hosts):
    return functools.partial(Job, horovodrun, tmp_path)


def test_a_host_joins_and_is_let_go(job):
    with job("-np", "1", "--min-np", "1", hosts=["127.0.0.1:1"]) as running:
        first = running.world(1)
        running.list_hosts(["127.0.0.1:1", "alpha:2"])
        second = running.world(3)
        assert [member.host for member in second] == ["127.0.0.1", "alpha", "alpha"]
        agents = Processes([pid for pids in agents_of(running.process) for pid in pids])
        with watched(second[1:]) as gone:
            running.list_hosts(["127.0.0.1:1"])
            assert running.world(1)[0].pid == first[0].pid
            assert gone()
        assert agents.gone()
        assert running.finish() == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_lost_host_is_called_again(job, number):
    with job("-np", "2", "--min-np", "1", hosts=["127.0.0.1:1", "alpha:1"]) as running:
        first = running.world(2)
        (agent,), _ = agents_of(running.process)
        with watched(first[1:]) as gone:
            os.kill(agent, number)
            assert gone(), "the agent, or the guard behind it, ends what it ran"
        second = running.world(2, without=[first[1].pid])
        assert second[0].pid == first[0].pid
        assert running.finish() == 0
    assert running.said().count("host alpha is lost") == 1


def test_a_host_that_cannot_be_reached_is_said_and_not_waited_for(job, tmp_path):
    (tmp_path / "alpha.sh").write_text("echo the door is closed >&2; exit 255")
    with job("-np", "1", "--min-np", "1", hosts=["127.0.0.1:1", "alpha:1"]) as running:
        running.world(1)
        running.wait_for("the door is closed")
        (tmp_path / "alpha.sh").unlink()
        running.world(2)
        assert running.finish() == 0


def test_launcher_killed_leaves_no_worker_anywhere(job):
    running = job("-np", "2", "--min-np", "1", hosts=["127.0.0.1:1", "alpha:1"])
    with running, watched(running.world(2)) as gone:
        running.process.kill()
        assert gone()


@pytest.mark.parametrize("host", ["127.0.0.2", "alpha"])
def test_what_a_worker_leaves_behind_goes_while_the_job_goes_on(job, tmp_path, host):
    """It would hold the worker's memory, and there may be many."""
    left = f"echo left $$ >{tmp_path}/left.new; mv {tmp_path}/left.new {tmp_path}/left; exec sleep 1000"
    script = f"""
    if [ "$HOROVOD_WORKER_ID" -gt 1 ]; then
      sh -c '{left}' &
      while [ ! -e {tmp_path}/go ]; do sleep 0.01; done
      exit 3
    fi
    exec {sys.executable} {WORKER} {tmp_path}/end"""
    options = ("-np", "1", "--min-np", "1", "--blacklist-cooldown-range", "60", "60")
    with job(*options, hosts=["127.0.0.1:1"], command=["sh", "-c", script]) as running:
        running.world(1)
        running.list_hosts(["127.0.0.1:1", f"{host}:1"])
        wait_for_file(tmp_path / "left")
        process = Processes([int((tmp_path / "left").read_text().split()[1])])
        (tmp_path / "go").touch()
        assert process.gone()
        assert running.finish() == 0
