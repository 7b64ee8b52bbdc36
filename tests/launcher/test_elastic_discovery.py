"""What a discovery script may do to a job: fail, hang, print nonsense."""

import functools

import pytest
from elastic_job import Job


@pytest.fixture
def job(horovodrun, tmp_path):
    return functools.partial(Job, horovodrun, tmp_path)


def test_a_script_that_cannot_run_ends_the_job(job):
    with job("-np", "1", script="/no/such/script") as running:
        assert running.wait() == 1
    assert "/no/such/script" in running.said()


def test_a_script_that_fails_later_is_survived(job, tmp_path):
    script = f"test -e {tmp_path}/broken && echo out of order >&2 && exit 7; cat {tmp_path}/hosts"
    with job("-np", "1", "--min-np", "1", hosts=["127.0.0.1:1"], script=script) as running:
        first = running.world(1)
        (tmp_path / "broken").touch()
        running.wait_for("out of order")
        running.list_hosts(["127.0.0.1:2"])
        (tmp_path / "broken").unlink()
        assert running.world(2)[0].pid == first[0].pid
        assert running.finish() == 0
    assert running.said().count("out of order") == 1


def test_nonsense_is_skipped_and_said_once(job):
    with job("-np", "1", "--min-np", "1", hosts=["127.0.0.1:1", "no host at all", "127.0.0.2:x"]) as running:
        running.world(1)
        running.list_hosts(["127.0.0.1:2", "no host at all", "# a comment", ""])
        running.world(2)
        assert running.finish() == 0
    assert "no host at all" in running.said()


def test_a_script_that_hangs_holds_nobody_up(job, tmp_path):
    """Its second run waits for a writer that never comes; the job ends all the same, and the script with it."""
    script = f"cat {tmp_path}/hosts; test -e {tmp_path}/started && exec sleep 1000; touch {tmp_path}/started"
    with job("-np", "1", "--min-np", "1", hosts=["127.0.0.1:1"], script=script) as running:
        running.world(1)
        assert running.finish() == 0


def test_slots_per_host(job):
    with job("-np", "3", "--slots-per-host", "3", hosts=["127.0.0.1"]) as running:
        running.world(3)
        assert running.finish() == 0
