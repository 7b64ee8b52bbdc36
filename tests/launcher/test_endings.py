"""However a job ends, its processes end with it and the user learns why."""

import contextlib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import time

import pytest
from child import Child
from waiting import DEADLINE, HEADLESS, RUNAWAY, STUBBORN, WAIT, Processes, parent_of, started

# Workers that never ask for a place make no difference.
both_kinds = pytest.mark.parametrize("kind", [[], ["--min-np", "1"]], ids=["static", "elastic"])


def test_success(run):
    result = run("-np", "3", "true")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


def test_first_failure_stops_the_others_and_is_explained(run, python):
    code = """
import os, signal, sys
if os.environ["HOROVOD_RANK"] != "1":
    signal.pause()
for line in range(30):
    print("line", line, file=sys.stderr)
sys.exit(3)
"""
    result = run("-np", "4", *python(code))
    assert result.returncode == 1
    text = re.sub(rb"(?m)^\[\d\]<stderr>:.*\n", b"", result.stderr).decode()
    assert re.match(
        r"horovodrun: rank 1 on localhost failed: pid \d+, exit code 3, \d+\.\d s after the start; "
        r"the job was stopped with 3 ranks still running\n",
        text,
    )
    assert text.endswith("The last lines of its stderr:\n" + "".join(f"    line {line}\n" for line in range(10, 30)))


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL", "SIGABRT"])
def test_worker_killed_by_a_signal(run, name):
    number = getattr(signal, name)
    result = run("-np", "1", "sh", "-c", f"kill -{int(number)} $$")
    assert result.returncode == 1
    assert f"killed by {name} (exit code {128 + number}), " in result.stderr.decode()
    assert b"It wrote nothing to stderr.\n" in result.stderr


def test_failure_of_the_last_one_running(run):
    result = run("-np", "2", "sh", "-c", "exit $HOROVOD_RANK")
    assert result.returncode == 1
    assert b"rank 1 on localhost failed" in result.stderr


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_to_the_launcher_stops_the_job(horovodrun, python, stop):
    with started([horovodrun, "-np", "3", *python(WAIT)], 3) as (process, workers):
        process.send_signal(stop)
        _, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 128 + stop
        assert workers.gone()
    assert f"got {stop.name}, stopping 3 ranks".encode() in err


@both_kinds
def test_workers_may_leave_in_good_order(horovodrun, python, kind):
    code = f"""
import signal, sys
def leave(*_): print("saved"); sys.exit(0)
signal.signal(signal.SIGTERM, leave)
{WAIT}
"""
    with started([horovodrun, "-np", "2", *kind, *python(code)], 2) as (process, _):
        process.terminate()
        out, _ = process.communicate(timeout=DEADLINE)
    assert out.count(b"saved\n") == 2


@both_kinds
def test_stubborn_workers_are_killed_after_five_seconds(horovodrun, python, kind):
    with started([horovodrun, "-np", "2", *kind, *python(STUBBORN)], 2) as (process, workers):
        begin = time.monotonic()
        process.terminate()
        process.communicate(timeout=DEADLINE)
        assert 4.5 < time.monotonic() - begin < 10
        assert workers.gone()


@both_kinds
def test_second_signal_kills_at_once(horovodrun, python, kind):
    """By the clock of the workers, which stops with a machine that stalls: each would tick 50 times in the grace."""
    code = """
import os, signal, time
told = []
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: told.append(True))
print(os.getpid())
while True:
    time.sleep(0.1)
    if told: print("tick")
"""
    with started([horovodrun, "-np", "2", *kind, *python(code)], 2) as (process, workers):
        process.send_signal(signal.SIGINT)
        while not process.stderr.readline().startswith(b"horovodrun: got SIGINT, stopping 2 "):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=DEADLINE)
        assert out.count(b"tick") < 2 * 40
        assert workers.gone()


def test_terminal_interrupt_reaches_workers_once(horovodrun, python):
    """Ctrl-C goes to the whole foreground group; a worker must see one SIGTERM, not signals from both sides."""
    code = f"""
import signal
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: print("signal", number))
{WAIT}
"""
    command = [horovodrun, "-np", "1", *python(code)]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=DEADLINE)
    assert out == b"[0]<stdout>:signal 15\n"
    assert process.returncode == 130


@both_kinds
@pytest.mark.parametrize("code", [WAIT, RUNAWAY, STUBBORN, HEADLESS], ids=["plain", "runaway", "stubborn", "headless"])
def test_launcher_killed_leaves_no_worker(horovodrun, python, code, kind):
    with started([horovodrun, "-np", "2", *kind, *python(code)], 2) as (process, workers):
        process.kill()
        assert workers.gone()


@pytest.mark.parametrize("code", [WAIT, RUNAWAY, HEADLESS], ids=["plain", "runaway", "headless"])
def test_inner_process_killed_leaves_no_worker(horovodrun, python, code):
    with started([horovodrun, "-np", "2", *python(code)], 2) as (process, workers):
        (inner,) = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(inner), signal.SIGKILL)
        _, err = process.communicate(timeout=DEADLINE)
        assert workers.gone()
    assert process.returncode == 137
    assert b"the launcher was killed by SIGKILL" in err


@both_kinds
@pytest.mark.parametrize("ending", ["exit 0", "exit 5"])
def test_runaway_children_end_with_the_job(horovodrun, python, tmp_path, ending, kind):
    script = f'setsid "$@" & read -r line < "$FIFO"; {ending}'
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = ["env", f"FIFO={fifo}", horovodrun, "-np", "1", *kind, "sh", "-c", script, "sh", *python(WAIT)]
    with started(command, 1) as (process, workers):
        fifo.write_text("go\n")
        process.communicate(timeout=DEADLINE)
        assert process.returncode == int(ending != "exit 0")
        assert workers.gone()


@both_kinds
def test_stopped_reader_does_not_hold_up_the_end(horovodrun, python, kind):
    """The console is not being read, all buffers are full; Ctrl-C must still end the job."""
    code = "import os\nprint(os.getpid())\nwhile True: print('x' * 1000)"
    with started([horovodrun, "-np", "2", *kind, *python(code)], 1) as (process, workers):
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=DEADLINE) == 130
        assert workers.gone()


@both_kinds
def test_a_missing_module_is_hinted_at(run, python, kind):
    err = run("-np", "1", *kind, *python("import no_such_module")).stderr.decode()
    assert "Hint: Python on this host cannot find the module no_such_module: " in err


@both_kinds
def test_a_kill_that_nobody_explains_is_hinted_at(run, kind):
    err = run("-np", "1", *kind, "sh", "-c", "kill -9 $$").stderr.decode()
    assert "Hint: horovodrun did not send this SIGKILL; " in err


@contextlib.contextmanager
def memory_group(limit):
    """A control group with so much memory, or a skip where none can be made."""
    for parent, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = pathlib.Path(parent, f"horovod-test-{os.getpid()}")
        with contextlib.suppress(OSError):
            group.mkdir()
            try:
                (group / name).write_text(str(limit))
                yield group
                return
            finally:
                group.rmdir()
    pytest.skip("no control group for memory can be made here")


def test_the_kernels_kill_for_lack_of_memory_is_named(horovodrun, python):
    code = "import os\nif os.environ['HOROVOD_RANK'] == '1': data = b'x' * (1 << 30)\nimport signal; signal.pause()"
    with memory_group(300 << 20) as group:
        command = ["sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', str(group), horovodrun, "-np", "2"]
        result = subprocess.run([*command, *python(code)], capture_output=True, timeout=DEADLINE)
    assert result.returncode == 1
    assert b"rank 1 on localhost failed" in result.stderr
    assert b"Hint: the kernel killed it because memory ran out" in result.stderr


def test_the_cause_among_ranks_that_end_together(horovodrun, python, tmp_path):
    """The killed one is named, although the other, which fails for it, may be heard of first."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = f"""
import os, signal, sys
if os.environ["HOROVOD_RANK"] == "0":
    open({str(fifo)!r}).read()
    sys.exit(1)
writer = open({str(fifo)!r}, "w")
os.kill(os.getpid(), signal.SIGSEGV)
"""
    result = subprocess.run([horovodrun, "-np", "2", *python(code)], capture_output=True, timeout=DEADLINE)
    assert re.search(rb"horovodrun: rank 1 on localhost failed: pid \d+, killed by SIGSEGV", result.stderr)


# A shell that has children, one of which leaves a child of its own behind, becomes the command.
BYSTANDERS = """
sleep 1000 >/dev/null 2>&1 & echo $!
sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!; while [ ! -e {go} ]; do sleep 0.01; done' &
exec {command}
"""


@pytest.mark.parametrize("end", ["by itself", "launcher killed", "guard killed"])
def test_only_what_the_job_started_is_ended(horovodrun, python, tmp_path, end):
    worker = [*python(RUNAWAY)] if end != "by itself" else ["sh", "-c", "setsid sleep 1000 >/dev/null & echo $!"]
    script = BYSTANDERS.format(go=tmp_path / "go", command=shlex.join([horovodrun, "-np", "1", *worker]))
    with Child(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        lines = sorted(process.stdout.readline() for _ in range(3))
        bystanders = [int(line) for line in lines if not line.startswith(b"[")]
        others = Processes(bystanders)
        try:
            (tmp_path / "go").touch()
            if end != "by itself":
                runaway = int(lines[-1].rpartition(b":")[2])
                workers = Processes([runaway])
                launcher = parent_of(parent_of(runaway))
                os.kill(launcher if end == "launcher killed" else parent_of(launcher), signal.SIGKILL)
                assert workers.gone()
            process.communicate(timeout=DEADLINE)
            assert process.returncode == (0 if end == "by itself" else 128 + signal.SIGKILL)
            assert others.alive()
        finally:
            for pid in bystanders:
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("wanted", [True, False])
def test_a_native_crash_shows_where(run, python, monkeypatch, wanted):
    if not wanted:
        monkeypatch.setenv("HOROVOD_CRASH_STACKS", "0")
    code = "import ctypes, horovod.numpy\ndef inner(): ctypes.string_at(0)\ninner()"
    result = run("-np", "1", *python(code))
    assert result.returncode == 1
    assert b"killed by SIGSEGV" in result.stderr
    assert (b"in inner" in result.stderr) == wanted
