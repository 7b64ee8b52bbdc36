"""Jobs on several hosts, which a stand-in for ssh pretends (fake_ssh.py); tests/hosts has real ones."""

import contextlib
import hashlib
import os
import re
import signal
import subprocess

import pytest
from answers import by_rank
from child import Child
from waiting import DEADLINE, WAIT, started

SHOW = "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))"


def test_ranks_are_placed_on_their_hosts(hosts, run, python):
    workers = [environment for environment, _ in by_rank(run("-np", "4", "-H", "a:1,localhost:1,b:4", *python(SHOW)))]
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME")
    places = [" ".join(worker[f"HOROVOD_{name}"] for name in names) for worker in workers]
    assert places == ["0 4 0 1 0 3 a", "1 4 0 1 1 3 localhost", "2 4 0 2 2 3 b", "3 4 1 2 0 1 b"]
    assert [worker.get("FAKE_HOST") for worker in workers] == ["a", None, "b", "b"]


def test_the_environment_arrives_whatever_is_in_it(hosts, run, python):
    odd = "a 'b' \"c\" $HOME `id` \\ * ;\n\té=\x7f"
    kept = {"COLOUR": odd, "EMPTY": "", "HOME": "/of/the/launcher", "HOROVOD_CYCLE_TIME": "3"}
    left = {
        "BASH_FUNC_x%%": "() { :; }",
        "OLDPWD": "/old",
        "CUDA_VISIBLE_DEVICES": "0",
        "NV_CUDA_VISIBLE_DEVICES": "0",
        "_HOROVOD_SECRET_KEY": "11" * 32,
        "SSH_CONNECTION": "x",
        "HOSTNAME": "here",
    }
    result = run("-np", "1", "-H", "a:1", *python(SHOW), env={**os.environ, **kept, **left})
    ((environment, directory),) = by_rank(result)
    assert {name: environment.get(name) for name in kept} == kept
    assert {name for name in left if environment.get(name) == left[name]} == set()
    assert re.fullmatch("[0-9a-f]{64}", environment["_HOROVOD_SECRET_KEY"])
    assert directory == os.getcwd()


def test_programs_are_found_as_here_or_else_as_there(hosts, run, tmp_path):
    """A virtual environment that is active here is one there, too; and hosts may have programs of their own."""
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        for name in ("everywhere", folder):
            program = tmp_path / folder / name
            program.write_text(f"#!/bin/sh\necho that of {folder}\n")
            program.chmod(0o755)
    (hosts / "a.sh").write_text(f'PATH={tmp_path}/there:/usr/bin:/bin eval "$1"')
    here = {**os.environ, "PATH": f"{tmp_path}/here:{os.environ['PATH']}"}
    for name, found in [("everywhere", "here"), ("here", "here"), ("there", "there")]:
        assert run("-np", "1", "-H", "a:1", name, env=here).stdout == f"[0]<stdout>:that of {found}\n".encode()


def test_another_users_home_stays(hosts, run, python):
    ((environment, _),) = by_rank(run("-np", "1", "-H", "ada@a:1", *python(SHOW), env={**os.environ, "HOME": "/mine"}))
    assert environment["HOME"] == "/"
    assert " ada@a " in (hosts / "calls").read_text()


def test_a_missing_directory_is_told(hosts, run, tmp_path, horovodrun):
    gone = tmp_path / "gone"
    gone.mkdir()
    (hosts / "a.sh").write_text(f'rmdir {gone}; cd /; eval "$1"')
    result = run("-np", "1", "-H", "a:1", "pwd", cwd=gone)
    assert result.stdout == b"[0]<stdout>:/\n"
    assert f"a: there is no directory {gone}; the workers start in /".encode() in result.stderr


def test_nothing_secret_is_on_a_command_line(hosts, run, python):
    ((environment, _),) = by_rank(run("-np", "1", "-H", "a:1", "--verbose", *python(SHOW)))
    calls = (hosts / "calls").read_text()
    assert environment["_HOROVOD_SECRET_KEY"] not in calls
    assert "COLOUR" not in calls


def test_options_of_ssh(hosts, run):
    assert run("-np", "1", "-H", "a:1", "-p", "2222", "-i", "/my/key", "true").returncode == 0
    (call,) = (hosts / "calls").read_text().splitlines()
    assert " -p 2222 -i /my/key a exec sh -c " in call
    for option in ("BatchMode=yes", "ConnectTimeout=10", "StrictHostKeyChecking=accept-new", "ServerAliveInterval="):
        assert option in call
    (hosts / "calls").unlink()
    run("-np", "1", "-H", "a:1", "--start-timeout", "9", "true")  # whether it answers in time or not
    assert "ConnectTimeout=9 " in (hosts / "calls").read_text()
    (hosts / "calls").unlink()
    assert run("-np", "1", "-H", "a:1", "--ssh-strict", "true").returncode == 0
    call = (hosts / "calls").read_text()
    assert "StrictHostKeyChecking=yes" in call and "accept-new" not in call


def test_what_a_login_shell_prints_is_skipped(hosts, run):
    (hosts / "a.sh").write_text('echo "Welcome to a"; head -c 100000 /dev/zero; eval "$1"')
    assert run("-np", "1", "-H", "a:1", "echo", "x").stdout == b"[0]<stdout>:x\n"


def test_hosts_that_cannot_be_used_are_listed_and_nothing_is_started(hosts, run, tmp_path):
    (hosts / "a.sh").write_text("echo 'ssh: connect to host a port 22: Connection refused' >&2; exit 255")
    (hosts / "b.sh").write_text("echo 'b: Permission denied (publickey).' >&2; exit 255")
    (hosts / "c.sh").write_text("echo '@@ REMOTE HOST IDENTIFICATION HAS CHANGED! @@' >&2; exit 255")
    (hosts / "d.sh").write_text("echo no such shell; exit 3")
    command = ["-np", "6", "-H", "a:1,b:1,c:1,d:1,g:1,localhost:1", "touch", str(tmp_path / "started")]
    result = run(*command)
    assert result.returncode == 1
    assert not (tmp_path / "started").exists()
    text = result.stderr.decode()
    assert text.startswith("horovodrun: 4 of 6 hosts cannot be used, so nothing was started:\n")
    for line in (
        "    a  connect to host a port 22: Connection refused\n",
        "    b  ssh requires an interactive login (b: Permission denied (publickey).",
        "    c  its host key has changed",
        "remove the old key with: ssh-keygen -R c",
        "    d  ",
        "the login shell printed: no such shell",
        f"    try: {os.environ['HOROVOD_SSH_COMMAND']} a true\n",
    ):
        assert line in text, line


WRAPPERS = {
    "reads stdin": "cat >/dev/null; exit 0",
    "hangs": "exec sleep 1000",
    "never stops talking": "exec yes",
    "leaves something behind": "sleep 1000 & exit 0",
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_called_ssh_that_does_not_know_the_question(hosts, run, monkeypatch, wrapper):
    script = hosts / "ssh"
    question = f'case " $* " in *" -G "*) {WRAPPERS[wrapper]} ;; esac'
    script.write_text(f'#!/bin/sh\n{question}\nexec {os.environ["HOROVOD_SSH_COMMAND"]} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("HOROVOD_SSH_COMMAND", str(script))
    result = run("-np", "2", "-H", "a:1,b:1", "--start-timeout", "20", "echo", "x")
    assert (result.returncode, sorted(result.stdout.splitlines())) == (0, [b"[0]<stdout>:x", b"[1]<stdout>:x"])


def test_a_host_without_horovodrun(hosts, run):
    (hosts / "a.sh").write_text('PATH=/usr/bin:/bin eval "$(echo "$1" | /bin/sed "s,/[^ ]*horovodrun\',/no/such\',")"')
    result = run("-np", "1", "-H", "a:1", "true")
    assert result.returncode == 1
    assert b"horovodrun was not found (tried /no/such and PATH)" in result.stderr


def test_horovodrun_of_the_path_is_used_if_it_is_not_at_the_same_place(hosts, run, horovodrun, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/horovodrun").symlink_to(horovodrun)
    (hosts / "a.sh").write_text(
        f'PATH={tmp_path}/bin:$PATH eval "$(echo "$1" | sed "s,/[^ ]*horovodrun\',/no/such\',")"'
    )
    assert run("-np", "1", "-H", "a:1", "echo", "x").stdout == b"[0]<stdout>:x\n"


def test_a_host_that_never_answers(hosts, run):
    (hosts / "a.sh").write_text("exec sleep 1000")
    result = run("-np", "2", "-H", "a:1,b:1", "--start-timeout", "1", "true")
    assert result.returncode == 1
    assert b"    a  no answer within 1 s (--start-timeout)\n" in result.stderr


@pytest.mark.parametrize(
    ("kind", "last"),
    [([], "nothing was started"), (["--min-np", "1"], "stopping 0 workers")],
    ids=["static", "elastic"],
)
def test_a_signal_while_hosts_are_contacted(hosts, horovodrun, kind, last):
    fifo = hosts / "fifo"
    os.mkfifo(fifo)
    (hosts / "a.sh").write_text(f"echo called >{fifo}; exec sleep 1000")
    with Child([horovodrun, "-np", "1", *kind, "-H", "a:1", "true"], stderr=subprocess.PIPE) as process:
        assert fifo.read_text() == "called\n"
        process.terminate()
        _, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 128 + signal.SIGTERM
        said = re.sub(r"horovodrun: (hosts|waiting|starting worker \d+).*\n", "", err.decode())  # by the driver
        assert re.fullmatch(f"horovodrun: got SIGTERM[;,] {last}\n", said), said


@pytest.mark.parametrize("kind", ["static", "elastic"])
def test_a_host_is_lost_while_it_starts_its_worker(hosts, run, kind):
    """A worker kills its agent, once. An elastic job calls the host again while its other worker waits. It still fails,
    because no worker ever asked for a place.
    """
    on_a = f"[ -e {hosts}/second ] || {{ touch {hosts}/second; kill -9 $PPID; sleep 1000; }}; touch {hosts}/up; echo up"
    here = f"while [ ! -e {hosts}/up ]; do sleep 0.05; done"
    options = [] if kind == "static" else ["--min-np", "2"]
    script = f'if [ "$FAKE_HOST" = a ]; then {on_a}; else {here}; fi'
    result = run("-np", "2", *options, "-H", "localhost:1,a:1", "sh", "-c", script)
    assert result.returncode == 1, result.stderr.decode()
    assert (b"horovodrun: lost host a: " if kind == "static" else b"horovodrun: host a is lost: ") in result.stderr
    assert (b":up\n" in result.stdout) == (kind == "elastic")


def test_two_hundred_and_fifty_six_hosts(hosts, horovodrun):
    """Each takes a few processes here, so it takes a while; never more than 32 are being contacted."""
    names = [f"n{number}" for number in range(256)]
    where = ",".join(f"{name}:1" for name in names)
    command = [horovodrun, "-np", "256", "-H", where, "--start-timeout", "300", "sh", "-c", "echo $FAKE_HOST"]
    result = subprocess.run(command, capture_output=True, timeout=300)
    assert result.returncode == 0, result.stderr.decode()
    lines = [line.partition(":")[2] for line in result.stdout.decode().splitlines()]
    assert sorted(lines) == sorted(names)


# ---- output


def test_output_of_remote_ranks_is_whole(hosts, run, python, tmp_path):
    code = """
import os, sys
for number in range(20000):
    print(number, "x" * (number % 997))
    if number % 10 == 0: print(number, file=sys.stderr)
"""
    result = run("-np", "2", "-H", "a:1,b:1", "--output-filename", str(tmp_path / "out"), *python(code))
    assert result.returncode == 0, result.stderr.decode()
    plain = subprocess.run(python(code), capture_output=True, check=True)
    for rank in (0, 1):
        for name, seen, expected in (("stdout", result.stdout, plain.stdout), ("stderr", result.stderr, plain.stderr)):
            prefix = b"[%d]<%s>:" % (rank, name.encode())
            lines = b"".join(line for line in seen.splitlines(keepends=True) if line.startswith(prefix))
            assert (tmp_path / f"out/rank.{rank}/{name}").read_bytes() == lines
            assert hashlib.sha256(lines.replace(prefix, b"")).digest() == hashlib.sha256(expected).digest()


def test_a_stopped_reader_does_not_hold_up_the_end(hosts, horovodrun, python):
    code = "import os\nprint(os.getpid())\nwhile True: print('x' * 1000)"
    with started([horovodrun, "-np", "2", "-H", "a:1,b:1", *python(code)], 1) as (process, workers):
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=DEADLINE) == 130
        assert workers.gone()


@pytest.mark.parametrize("where", ["localhost:1", "a:1"])
def test_a_reader_that_takes_a_break_holds_up_nobody(hosts, horovodrun, python, tmp_path, where):
    code = f"for i in range(10000): print('x' * 999)\nopen({str(tmp_path / 'done')!r}, 'w').close()"
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = [horovodrun, "-np", "1", "-H", where, "sh", "-c", f'"$@"; echo ended >{fifo}', "sh", *python(code)]
    with Child(command, stdout=subprocess.PIPE) as process:
        assert fifo.read_text() == "ended\n"  # although no line was read
        out, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    assert out == b"".join([b"[0]<stdout>:" + b"x" * 999 + b"\n"] * 10000)


# ---- endings


def test_the_first_failure_stops_all_hosts(hosts, run, python):
    code = f"""
import os, sys
if os.environ["HOROVOD_RANK"] == "2":
    print("the reason", file=sys.stderr)
    sys.exit(3)
{WAIT}
"""
    result = run("-np", "4", "-H", "a:1,localhost:1,b:2", *python(code))
    assert result.returncode == 1
    text = result.stderr.decode()
    assert re.search(r"horovodrun: rank 2 on b failed: pid \d+, exit code 3, ", text)
    assert "After that: 3 ranks killed by SIGTERM (exit code 143).\n" in text
    assert text.endswith("The last lines of its stderr:\n    the reason\n")


def test_a_command_that_is_not_on_a_host(hosts, run):
    result = run("-np", "2", "-H", "a:1,b:1", "/no/such/program")
    assert result.returncode == 1
    text = result.stderr.decode()
    assert re.match(r"horovodrun: rank \d on [ab] was not started: cannot run /no/such/program: No such file", text)
    assert re.search(r"Hint: is it installed on [ab], at the same path as here\?\n", text)


# ---- the line on a terminal


def test_a_terminal_shows_how_far_the_start_is(hosts, horovodrun):
    fifo = hosts / "fifo"
    os.mkfifo(fifo)
    (hosts / "b.sh").write_text(f'read -r line <{fifo}; eval "$1"')
    master, slave = os.openpty()
    with Child([horovodrun, "-np", "2", "-H", "a:1,b:1", "echo", "x"], stdout=slave, stderr=slave):
        os.close(slave)
        seen = b""
        while b"contacting hosts: 1 of 2 answer" not in seen:
            seen += os.read(master, 4096)
        fifo.write_text("go\n")
        with contextlib.suppress(OSError):  # how a terminal reports that it has no reader
            while part := os.read(master, 4096):
                seen += part
    os.close(master)
    shown = [line.rpartition(b"\r\x1b[K")[2] for line in seen.split(b"\r\n")]  # what stays on the screen
    assert sorted(line for line in shown if line.startswith(b"[")) == [b"[0]<stdout>:x", b"[1]<stdout>:x"]
    assert b"starting: 2 hosts, " in seen
    assert not any(b"contacting" in line or b"starting" in line for line in shown)
