"""SIGTERM as a notice, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from horovod.common.elastic.preemption import grace_seconds

PRELUDE = """
import os, signal, sys, threading
from horovod.common.elastic.preemption import Preemption
told = threading.Event()
def notify(reason):
    print("told", reason, flush=True)
    told.set()
    return True
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    source = PRELUDE + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)


def test_the_launcher_is_told_while_the_main_thread_is_busy() -> None:
    ended = run("""
        import ctypes
        with Preemption(60, notify):
            # The main thread runs no Python code while it sleeps here, as in a collective.
            watcher = threading.Thread(target=lambda: (told.wait(), os.write(writer, b"x")))
            reader, writer = os.pipe()
            watcher.start()
            os.kill(os.getpid(), signal.SIGTERM)
            buffer = ctypes.create_string_buffer(1)
            ctypes.CDLL(None).read(reader, buffer, 1)
        print("over")
    """)
    assert (ended.returncode, ended.stdout) == (0, "told it was sent SIGTERM\nover\n"), ended.stderr


def test_without_a_commit_it_ends_after_the_grace_time() -> None:
    ended = run("""
        with Preemption(0.1, notify):
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait()
    """)
    assert ended.returncode == 143
    assert "no commit within 0.1 s" in ended.stderr


def test_without_a_launcher_it_ends_at_once() -> None:
    ended = run("""
        with Preemption(60, lambda reason: False):
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait()
    """)
    assert ended.returncode == 143


def test_children_die_of_sigterm_and_the_parent_is_not_told() -> None:
    ended = run("""
        with Preemption(60, notify):
            child = os.fork()
            if child == 0:
                os.kill(os.getpid(), signal.SIGTERM)
                threading.Event().wait()
            print(os.WTERMSIG(os.waitpid(child, 0)[1]))
    """)
    assert ended.stdout == "15\n", ended.stderr


def test_afterwards_sigterm_ends_the_process() -> None:
    ended = run("""
        with Preemption(60, notify):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait()
    """)
    assert ended.returncode == -15


def test_a_script_that_handles_sigterm_keeps_it() -> None:
    ended = run("""
        os.environ |= dict(HOROVOD_ELASTIC="1", HOROVOD_WORKER_ID="0", HOROVOD_GLOO_RENDEZVOUS_ADDR="127.0.0.1")
        mine = lambda *_: None
        signal.signal(signal.SIGTERM, mine)
        with Preemption.watch():
            print(signal.getsignal(signal.SIGTERM) is mine)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with Preemption.watch():
            print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
    """)
    assert ended.stdout == "True\nFalse\n", ended.stderr


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_a_grace_time_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_PREEMPTION_GRACE_SECONDS", text)
    with pytest.raises(ValueError, match="GRACE"):
        grace_seconds()
