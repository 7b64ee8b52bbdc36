"""However the caller of horovod.run ends, its workers and its launcher end with it."""

from __future__ import annotations

import os
import signal
import time

import pytest
from callers import calling

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


def test_second_interrupt_is_in_a_hurry() -> None:
    """Nothing is left of workers that are deaf to SIGTERM, long before the launcher would lose its patience."""
    with calling(INTERRUPTED.format(body="stubborn"), 2) as caller:
        begin = time.monotonic()
        caller.process.send_signal(signal.SIGINT)
        assert "got SIGINT" in caller.process.stderr.readline()
        caller.process.send_signal(signal.SIGINT)
        out, _ = caller.end()
        assert caller.workers.gone()
        assert time.monotonic() - begin < 4.5
    assert out.startswith("interrupted\n")


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


def test_forked_children_do_not_keep_the_connection() -> None:
    """A worker dies while a child that it forked lives on: the caller hears of it at once, not when the child ends."""
    code = """
def body():
    import os, signal
    read, write = os.pipe()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.write(write, b"x")
        os.setsid()
        signal.pause()
    os.read(read, 1)
    os._exit(3)
try:
    horovod.run(body)
except RuntimeError as error:
    say(str(error).splitlines()[0])
"""
    with calling(code, 1) as caller:
        out, _ = caller.end()
        assert caller.workers.gone()
    assert out == "rank 0 on localhost ended without a result; horovodrun said:\n"
