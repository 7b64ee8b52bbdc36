"""horovodrun --doctor on this machine, and on hosts that a stand-in for ssh pretends, some of them ill."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest
from waiting import DEADLINE, Processes

FAKE_SSH = pathlib.Path(__file__).parent / "fake_ssh.py"
CHECKS = [
    "contact",
    "launcher",
    "versions",
    "addresses",
    "clock",
    "limits",
    "shm",
    "cpus",
    "memory",
    "kernel",
    "allreduce",
]
# What the machine of the test has too little of is none of the test's business.
MACHINE = {"limits", "shm", "cpus", "memory"}


@pytest.fixture(autouse=True)
def python_that_has_horovod(monkeypatch):
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    """The directory of fake_ssh.py."""
    folder = tmp_path / "hosts"
    folder.mkdir()
    monkeypatch.setenv("FAKE_SSH", str(folder))
    monkeypatch.setenv("HOROVOD_SSH_COMMAND", f"{sys.executable} {FAKE_SSH}")
    return folder


@pytest.fixture
def examine(run):
    """The exit code and the report of --doctor --json."""

    def call(*arguments, code=0, **options):
        result = run("--doctor", "--json", *arguments, **options)
        assert result.returncode == code, (result.stdout, result.stderr)
        report = json.loads(result.stdout)
        assert report["ok"] == (code == 0)
        return report

    return call


@pytest.fixture
def other_program(horovodrun, hosts, tmp_path):
    """Gives a host a horovodrun of its own, with a Python beside it that says what is wanted."""

    def give(host, python):
        folder = tmp_path / f"{host}-bin"
        folder.mkdir()
        shutil.copy(horovodrun, folder / "horovodrun")  # a link would lead back
        (folder / "python3").write_text(f"#!/bin/sh\n{python}\n")
        (folder / "python3").chmod(0o755)
        (hosts / f"{host}.sh").write_text(f'eval "$(echo "$1" | sed "s,/[^ ]*horovodrun\',{folder}/horovodrun\',")"')

    return give


def problems(report, severity=("warn", "fail")):
    return [
        (finding["severity"], finding["check"], finding["hosts"], finding["text"])
        for finding in report["findings"]
        if finding["severity"] in severity and finding["check"] not in MACHINE
    ]


def facts(report, name):
    (host,) = [host for host in report["hosts"] if host["name"] == name]
    return host["facts"]


# ---- this machine


def test_this_machine_is_well(run):
    result = run("--doctor")
    assert result.returncode == 0, result.stderr.decode()
    text = result.stdout.decode()
    assert text.startswith("Horovod v1.0.0 on 1 host:\n\n  ok    contact    localhost  it answers\n")
    assert re.search(r"\n  ok    allreduce  localhost  1 MiB over 1 host in \d+\.\d\d ms \(\d+ MB/s\)\n", text)
    assert re.search(r"\n(All is well\.|\d+ warnings?; jobs on these hosts will work\.)\n$", text)
    assert result.stderr == b""


def test_json_has_the_facts(examine):
    report = examine()
    (host,) = report["hosts"]
    resources = host["facts"]["resources"]
    assert resources["cores"] == len(os.sched_getaffinity(0))
    assert resources["kernel"] == os.uname().release
    assert host["facts"]["installation"]["horovodrun"] == host["facts"]["installation"]["library_version"] == "1.0.0"
    assert host["facts"]["allreduce"]["seconds"] > 0
    assert problems(report, ["fail"]) == []


def test_limits_of_the_caller_are_seen(horovodrun):
    limits = "ulimit -n 300 && ulimit -l 64 && exec "
    result = subprocess.run(
        ["sh", "-c", f"{limits} {horovodrun} --doctor --json"], capture_output=True, timeout=DEADLINE
    )
    assert result.returncode == 0, result.stderr.decode()
    report = json.loads(result.stdout)
    resources = facts(report, "localhost")["resources"]
    assert (resources["open_files"], resources["locked_memory"]) == (300, 64 << 10)
    (finding,) = [finding for finding in report["findings"] if finding["check"] == "limits"]
    assert (
        finding["severity"] == "warn" and "may open 300 files" in finding["text"] and "ulimit -n" in finding["advice"]
    )


def test_the_link_that_was_called_leads_to_its_python(horovodrun, tmp_path):
    (tmp_path / "horovodrun").symlink_to(horovodrun)
    (tmp_path / "python3").write_text('#!/bin/sh\necho \'{"python": "3.98.7", "folder": "", "version": "1.0.0"}\'\n')
    (tmp_path / "python3").chmod(0o755)
    result = subprocess.run([tmp_path / "horovodrun", "--doctor"], capture_output=True, timeout=DEADLINE)
    assert b"Python 3.98.7, horovod 1.0.0\n" in result.stdout


def test_a_missing_library_fails(examine):
    report = examine(code=1, env={**os.environ, "HOROVOD_LIBRARY": "/no/such/libhorovod.so"})
    (library, trial) = problems(report)
    assert library[:2] == ("fail", "versions") and "/no/such/libhorovod.so cannot be used: " in library[3]
    assert trial == ("warn", "allreduce", ["localhost"], "not tried: libhorovod.so cannot be used on localhost")


def test_wrong_usage(run):
    assert run("--doctor", "-H", "a:0").returncode == 2
    assert run("--doctor-probe").returncode == 2


def test_a_bad_knob_is_named_by_the_probe(examine):
    report = examine(code=1, env={**os.environ, "HOROVOD_CYCLE_TIME": "soon"})
    (probe,) = [finding for finding in problems(report) if finding[1] == "probe"]
    assert "HOROVOD_CYCLE_TIME" in probe[3]


# ---- several hosts


def test_healthy_hosts(hosts, examine, run):
    report = examine("-H", "a:1,localhost:1,b:1")
    assert problems(report) == []
    assert [finding["check"] for finding in report["findings"]] == CHECKS
    for name in ("a", "localhost", "b"):
        own = facts(report, name)
        assert {attempt["host"] for attempt in own["attempts"]} == {"a", "localhost", "b"} - {name}
        assert all(attempt["time"] > 0 for attempt in own["attempts"] if not attempt["error"])
        assert abs(own["clock"]["seconds"]) <= own["clock"]["uncertainty"] + 0.1
    text = run("--doctor", "-H", "a,b").stdout.decode()
    assert re.search(r"\n        a     b\n  a     -     (\d)/\1\n  b     (\d)/\2   -\n", text), text


def test_tls_is_tried_as_the_job_would_use_it(hosts, examine):
    assert problems(examine("-H", "a,b", "--tls")) == []


def test_hosts_that_cannot_be_contacted_are_rows(hosts, examine):
    (hosts / "b.sh").write_text("echo 'ssh: connect to host b port 22: Connection refused' >&2; exit 255")
    (hosts / "d.sh").write_text("exec sleep 1000")
    report = examine("-H", "a,b,c,d", "--start-timeout", "20", code=1)
    assert problems(report) == [
        ("fail", "contact", ["b"], "connect to host b port 22: Connection refused"),
        ("fail", "contact", ["d"], "no answer within 20 s (--start-timeout)"),
    ]
    (allreduce,) = [finding for finding in report["findings"] if finding["check"] == "allreduce"]
    assert allreduce["severity"] == "ok" and allreduce["hosts"] == ["a", "c"]
    assert [host["name"] for host in report["hosts"]] == ["a", "b", "c", "d"]
    assert facts(report, "b") is None


def test_no_host_can_be_contacted(hosts, run):
    (hosts / "a.sh").write_text("exit 255")
    result = run("--doctor", "-H", "a")
    assert result.returncode == 1
    assert b"\n  fail  contact  a  " in result.stdout
    assert f"-> try by hand: {sys.executable} {FAKE_SSH} a true\n".encode() in result.stdout
    assert b"1 problem and 0 warnings: jobs on these hosts will not work.\n" in result.stdout


def test_another_python_and_another_horovod(hosts, examine, other_program, horovodrun):
    answer = {"python": "3.8.1", "folder": str(pathlib.Path(horovodrun).parents[1]), "version": "0.28.1"}
    other_program("b", f"echo '{json.dumps(answer)}'")
    installation = facts(report := examine("-H", "a,b,c", code=1), "a")["installation"]
    assert [finding[3] for finding in problems(report) if finding[:3] == ("fail", "versions", ["b"])] == [
        "the package horovod differs: 0.28.1 on b; 1.0.0 on a, c",
        f"Python differs: {installation['python_version']} on a, c; 3.8.1 on b",
    ]


def test_a_python_that_is_none(hosts, examine, other_program):
    other_program("b", "echo Welcome")
    report = examine("-H", "a,b", code=1)  # without Python, its library is not found
    found = [finding for finding in problems(report) if "did not print its version" in finding[3]]
    assert [finding[:3] for finding in found] == [("warn", "versions", ["b"])]


def test_a_probe_that_dies_is_a_row(hosts, examine, other_program, tmp_path):
    # Its Python kills the probe that asks it.
    other_program("b", "kill -SEGV $PPID; exec sleep 1000")
    report = examine("-H", "a,b", "--start-timeout", "20", code=1)
    (probe,) = [finding for finding in problems(report) if finding[1] == "probe"]
    assert probe == ("fail", "probe", ["b"], "it ended with killed by SIGSEGV (exit code 139)")
    assert facts(report, "a") is not None
    assert facts(report, "b") is None


def test_a_probe_that_hangs_is_a_row(hosts, examine, other_program):
    other_program("b", "kill -STOP $PPID; exec sleep 1000")
    report = examine("-H", "a,b", "--start-timeout", "20", code=1)
    (probe,) = [finding for finding in problems(report) if finding[1] == "probe"]
    assert probe == ("fail", "probe", ["b"], "it had not ended after 20 s (--start-timeout)")
    (trial,) = [finding for finding in problems(report) if finding[1] == "allreduce"]
    assert trial == ("warn", "allreduce", ["a"], "not tried: 1 of 2 hosts did not take part in time")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_leaves_nothing(hosts, horovodrun, other_program, tmp_path, stop):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    other_program("b", f"echo $PPID $$ >{fifo}; exec sleep 1000")
    process = subprocess.Popen([horovodrun, "--doctor", "-H", "a,b"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    started = Processes([int(pid) for pid in fifo.read_text().split()])
    process.send_signal(stop)
    out, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 128 + stop
    assert out == b""
    assert started.gone()


def test_many_hosts(hosts, examine):
    names = [f"n{number}" for number in range(20)]
    report = examine("-H", ",".join(names), "--start-timeout", "50")
    assert problems(report) == []
    assert len(facts(report, "n7")["attempts"]) >= 19
