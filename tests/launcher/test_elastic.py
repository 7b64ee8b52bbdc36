"""Elastic jobs: workers die, hosts are added and removed, and the others continue."""

import functools
import re
import signal
import sys

import pytest
from elastic_job import WORKER, Job, kill, watched
from growth import Growth, launchers_of


@pytest.fixture
def job(horovodrun, tmp_path):
    return functools.partial(Job, horovodrun, tmp_path)


def test_a_job_on_this_machine(job):
    with job("-np", "2", "--min-np", "1") as running:
        members = running.world(2)
        assert [member.host for member in members] == ["localhost"] * 2
        assert running.finish() == 0
    assert sorted(line for line in running.lines if "end" in line)[0].startswith("[0]<stdout>:end 0 ")


def test_every_name_is_a_host(job):
    with job("-np", "3", "--min-np", "3", "-H", "127.0.0.1:1,127.0.0.2:2") as running:
        members = running.world(3)
        places = [(member.host, member.local_rank, member.local_size, member.cross_size) for member in members]
        assert places == [("127.0.0.1", 0, 1, 2), ("127.0.0.2", 0, 2, 2), ("127.0.0.2", 1, 2, 1)]
        assert running.finish() == 0


def test_slots_beyond_np_are_used_up_to_max_np(job):
    with job("-np", "1", "--min-np", "1", "--max-np", "3", "-H", "localhost:5") as running:
        running.world(3)
        assert running.finish() == 0


@pytest.mark.parametrize("hosts", ["localhost:3", "127.0.0.1:2,127.0.0.2:1"], ids=["one-host", "two-hosts"])
def test_a_killed_worker_is_replaced(job, hosts):
    with job("-np", "3", "--min-np", "2", "-H", hosts) as running:
        first = running.world(3)
        kill(first[1])
        second = running.world(3, without=[first[1].pid])
        survivors = [member.pid for member in second if member.pid in (first[0].pid, first[2].pid)]
        assert survivors == [first[0].pid, first[2].pid], "survivors keep their order"
        assert second[0].pid == first[0].pid
        assert running.finish() == 0
    assert "was killed by signal 9" in running.said()


def test_a_stopped_worker_is_noticed_and_replaced(job):
    with job("-np", "2", "--min-np", "1") as running:
        first = running.world(2)
        with watched(first[1:]) as gone:
            kill(first[1], signal.SIGSTOP)
            assert running.world(1)[0].pid == first[0].pid
            assert gone()
        running.world(2)
        assert running.finish() == 0


def test_rank_0_is_no_exception(job):
    with job("-np", "2", "--min-np", "1") as running:
        first = running.world(2)
        kill(first[0])
        assert running.world(2, without=[first[0].pid])[0].pid == first[1].pid
        assert running.finish() == 0


def test_a_worker_that_fails_is_replaced(job):
    with job("-np", "2", "--min-np", "1") as running:
        first = running.world(2)
        running.ask("exit", 1)
        running.world(1)
        (running.folder / "exit.1").unlink()
        assert running.world(2)[0].pid == first[0].pid
        assert running.finish() == 0
    assert "[1]<stderr>:this one was told to fail" in running.said()


def test_a_worker_dies_while_the_others_form_a_world(job):
    with job("-np", "4", "--min-np", "2", "-H", "127.0.0.1:2,127.0.0.2:2") as running:
        first = running.world(4)
        running.ask("die", 2)
        (running.folder / "hold").touch()  # survivors that are slow would meet a newcomer
        kill(first[1])
        survivors = running.world(2)
        assert [member.pid for member in survivors] == [first[0].pid, first[3].pid]
        (running.folder / "die.2").unlink()
        (running.folder / "hold").unlink()
        running.world(4)
        assert running.finish() == 0


def test_hosts_come_and_go(job):
    with job("-np", "2", "--min-np", "1", hosts=["127.0.0.1:2"]) as running:
        first = running.world(2)
        running.list_hosts(["127.0.0.1:2", "127.0.0.2"])
        second = running.world(3)
        assert [member.pid for member in second[:2]] == [member.pid for member in first]
        assert second[2].host == "127.0.0.2"
        with watched(second[:2]) as gone:
            running.list_hosts(["127.0.0.2"])
            third = running.world(1)
            assert third[0].pid == second[2].pid
            assert gone()
        assert running.finish() == 0
    assert "Traceback" not in running.said()


def test_a_worker_that_leaves_is_not_missed(job):
    with job("-np", "2", "--min-np", "1", hosts=["127.0.0.1:1", "127.0.0.2:1"]) as running:
        first = running.world(2)
        with watched(first[1:]) as gone:
            running.ask("leave", 1)
            assert running.world(1)[0].pid == first[0].pid
            assert gone()
        assert running.finish() == 0
    assert "its machine is taken away" in running.said()


def test_too_few_slots_for_too_long(job):
    with job("-np", "2", "--min-np", "2", "--elastic-timeout", "1", hosts=["127.0.0.1:1", "127.0.0.2:1"]) as running:
        members = running.world(2)
        with watched(members) as gone:
            running.list_hosts(["127.0.0.1:1"])
            assert running.wait() == 1
            assert gone()
    assert re.search(r"horovodrun: .*2 slots.*\n", running.said())


def test_imports_may_take_longer_than_the_elastic_timeout(job, tmp_path):
    script = f"sleep 2; exec {sys.executable} {WORKER} {tmp_path}/end"
    with job("-np", "2", "--min-np", "2", "--elastic-timeout", "1", command=["sh", "-c", script]) as running:
        running.world(2)
        assert running.finish() == 0
    assert "has not asked for a place" not in running.said()


def test_too_few_slots_from_the_start(job):
    with job("-np", "4", "--elastic-timeout", "1", hosts=["127.0.0.1:2"]) as running:
        assert running.wait() == 1
    assert "4 slots" in running.said()


def test_reset_limit(job):
    with job("-np", "2", "--min-np", "1", "--reset-limit", "0") as running:
        members = running.world(2)
        with watched(members) as gone:
            kill(members[1])
            assert running.wait() == 1
            assert gone()
    assert "--reset-limit" in running.said() or "reset limit" in running.said()


def test_when_all_fail_the_last_words_are_shown(job, python):
    command = python("import sys; print('no data here', file=sys.stderr); sys.exit(4)")
    with job("-np", "2", "--min-np", "1", "--elastic-timeout", "30", command=command) as running:
        assert running.wait() == 1
    assert "exit code 4" in running.said()
    assert running.said().endswith("The last lines of its stderr:\n    no data here\n")


def test_a_program_that_does_not_exist(job):
    with job("-np", "2", "--min-np", "1", "--elastic-timeout", "1", command=["/no/such/program"]) as running:
        assert running.wait() == 1
    assert "/no/such/program" in running.said()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_ends_the_job(job, number):
    with job("-np", "2", "--min-np", "1") as running, watched(running.world(2)) as gone:
        running.process.send_signal(number)
        assert running.wait() == 128 + number
        assert gone()
    assert f"got {number.name}, stopping 2 workers" in running.said()


def test_launcher_killed_leaves_no_worker(job):
    with job("-np", "2", "--min-np", "1", hosts=["127.0.0.1:2"]) as running, watched(running.world(2)) as gone:
        running.process.kill()
        assert gone()


def test_files_are_named_after_workers(job, tmp_path):
    with job("-np", "2", "--min-np", "1", "--output-filename", str(tmp_path / "out")) as running:
        running.world(2)
        assert running.finish() == 0
    files = sorted((tmp_path / "out").glob("*/stdout"))
    assert [file.parent.name for file in files] == ["worker.1", "worker.2"]
    assert all("world" in file.read_text() for file in files)


def test_workers_that_fail_before_they_join_leave_nothing_in_the_launcher(job, tmp_path):
    """No generation begins meanwhile, and every one of them has files of its own."""
    flapping = [f"127.0.0.{number}:1" for number in range(2, 8)]
    script = f'if [ "$HOROVOD_WORKER_ID" -gt 1 ]; then exit 3; fi; exec {sys.executable} {WORKER} {tmp_path}/end'
    options = ["-np", "1", "--min-np", "1", "--blacklist-cooldown-range", "1", "1"]
    options += ["--output-filename", str(tmp_path / "out")]
    with job(*options, hosts=["127.0.0.1:1"], command=["sh", "-c", script]) as running:
        running.world(1)
        running.list_hosts(["127.0.0.1:1", *flapping])
        usage = Growth()
        for number in range(9, 37, 3):
            running.wait_for(f"worker {number} (host ")
            usage.measure(launchers_of(running.process.pid))
        usage.check()
        assert running.finish() == 0


def test_generations_leave_nothing_in_launcher_and_survivor(job, tmp_path):
    hosts = [f"127.0.0.{number}:1" for number in range(1, 6)]
    options = ["-np", "2", "--min-np", "1", "--max-np", "2", "--blacklist-cooldown-range", "1", "1"]
    with job(*options, "--output-filename", str(tmp_path / "out"), hosts=hosts) as running:
        usage, gone = Growth(), []
        for _ in range(7):
            survivor, other = running.world(2, without=gone)
            usage.measure(launchers_of(running.process.pid) | {"survivor": survivor.pid})
            gone.append(other.pid)
            kill(other)
        usage.check()
        assert running.finish() == 0
