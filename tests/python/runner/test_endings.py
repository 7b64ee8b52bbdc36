"""However the caller of horovod.run ends, its workers and its launcher end with it."""

from __future__ import annotations

import os
import signal

import pytest
from callers import Meeting, calling

INTERRUPTED = """
try:
    horovod.run({body}, num_proc=2)
except KeyboardInterrupt:
    say("interrupted")
say(threading.active_count())
say(horovod.run(lambda: 5))
"""


@pytest.mark.parametrize("group", [False, True], ids=["process", "terminal"])
def test_interrupt(group: bool) -> None:
    """A terminal sends Ctrl-C to the whole foreground group; the launcher must see it once all the same."""
    with calling(INTERRUPTED.format(body="wait"), 2) as caller:
        (os.killpg if group else os.kill)(caller.process.pid, signal.SIGINT)
        out, err = caller.end()
        assert caller.workers.gone()
    assert out == "interrupted\n1\n[5]\n"
    assert "got SIGINT, stopping 2 ranks" in err


def test_stubborn_workers() -> None:
    with calling(INTERRUPTED.format(body="stubborn"), 2) as caller:
        caller.process.send_signal(signal.SIGINT)
        out, _ = caller.end()
        assert caller.workers.gone()
    assert out.startswith("interrupted\n")


# Another program in the place of the launcher.
REPLACED = """
from horovod.runner import program
program.find = lambda: sys.executable
program.STOP_SECONDS = {patience}
try:
    with program.Program(["-c", {code!r}], os.environ, None, None) as launcher:
        launcher.wait()
except KeyboardInterrupt:
    say("interrupted")
"""
PATIENT = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print(os.getpid(), flush=True)
os.write(2, b"ready\\n")
for number in range({limit}):
    signal.sigwait([signal.SIGINT])
    os.write(2, b"interrupt %d\\n" % number)
"""


def test_every_interrupt_is_passed_on() -> None:
    """The second one tells the launcher not to wait for its workers. This one needs three to end."""
    with calling(REPLACED.format(patience=60, code=PATIENT.format(limit=3)), 1) as caller:
        assert caller.process.stderr.readline() == "ready\n"  # so the caller waits for it, and reads what it writes
        for number in range(3):
            caller.process.send_signal(signal.SIGINT)
            assert caller.process.stderr.readline() == f"interrupt {number}\n"
        out, _ = caller.end()
    assert out == "interrupted\n"


def test_an_interrupt_while_the_launcher_is_being_started() -> None:
    early = """
import signal, subprocess
class Interrupted(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.stderr.read(6)
        signal.raise_signal(signal.SIGINT)
subprocess.Popen = Interrupted
"""
    with calling(early + REPLACED.format(patience=60, code=PATIENT.format(limit=1)), 1) as caller:
        out, _ = caller.end()
        assert caller.workers.gone()
    assert out == "interrupted\n"


def test_launcher_that_does_not_end_is_killed() -> None:
    with calling(REPLACED.format(patience=0.1, code=PATIENT.format(limit=9)), 1) as caller:
        assert caller.process.stderr.readline() == "ready\n"
        caller.process.send_signal(signal.SIGINT)
        out, _ = caller.end()
        assert caller.workers.gone()
    assert out == "interrupted\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("body", ["wait", "stubborn"])
def test_caller_killed(body: str, number: signal.Signals) -> None:
    with calling(f"horovod.run({body}, num_proc=2)", 2) as caller:
        caller.process.send_signal(number)
        assert caller.workers.gone()
        assert caller.launcher.gone()


def test_caller_killed_from_a_thread_of_its_own() -> None:
    code = """
thread = threading.Thread(target=horovod.run, args=(wait,), kwargs={"num_proc": 2})
thread.start()
thread.join()
"""
    with calling(code, 2) as caller:
        caller.process.kill()
        assert caller.workers.gone()
        assert caller.launcher.gone()


def test_children_of_workers_end_too() -> None:
    code = """
def body():
    import os, signal, subprocess, sys
    subprocess.Popen([sys.executable, "-c", "import os, signal; print(os.getpid()); signal.pause()"]).wait()
try:
    horovod.run(body, num_proc=2)
except KeyboardInterrupt:
    say("interrupted")
"""
    with calling(code, 2) as caller:
        caller.process.send_signal(signal.SIGINT)
        out, _ = caller.end()
        assert caller.workers.gone()
    assert out == "interrupted\n"


def test_forked_children_do_not_keep_the_connection(meeting: Meeting) -> None:
    """A worker dies while a child that it forked lives on: the caller is notified at once, not when the child ends."""
    code = f"""
def body():
    import os, signal
    if os.fork() == 0:
        os.setsid()
        print(os.getpid(), flush=True)
        signal.pause()
    with open({meeting.go!r}) as pipe: pipe.read()
    os._exit(3)
try:
    horovod.run(body)
except RuntimeError as error:
    say(str(error).splitlines()[0])
"""
    with calling(code, 1) as caller:
        meeting.let_go()  # now that the child is watched
        out, _ = caller.end()
        assert caller.workers.gone()
    assert out == "rank 0 on localhost ended without a result; horovodrun said:\n"
