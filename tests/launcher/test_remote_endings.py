"""How jobs on several hosts end, whichever way the hosts are reached."""

import contextlib
import os
import re
import signal

import pytest
from waiting import DEADLINE, RUNAWAY, STUBBORN, WAIT, agents_of, started


@pytest.fixture(params=["ssh", "kubexec"])
def way(request):
    """How the hosts are reached: with a stdin of the agent, or without."""
    if request.param == "ssh":
        request.getfixturevalue("hosts")
    else:
        request.getfixturevalue("kubexec")()
    return request.param


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_launcher_stops_all_hosts(way, horovodrun, python, stop):
    with started([horovodrun, "-np", "3", "-H", "a:2,b:1", *python(WAIT)], 3) as (process, workers):
        process.send_signal(stop)
        _, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 128 + stop
        assert workers.gone()
    assert f"got {stop.name}, stopping 3 ranks".encode() in err


@pytest.mark.parametrize("code", [WAIT, RUNAWAY, STUBBORN], ids=["plain", "runaway", "stubborn"])
def test_a_killed_launcher_leaves_nothing_on_any_host(way, horovodrun, python, code):
    with started([horovodrun, "-np", "2", "-H", "a:1,b:1", *python(code)], 2) as (process, workers):
        process.kill()
        assert workers.gone()


@pytest.mark.parametrize("which", [0, 1], ids=["agent", "guard"])
@pytest.mark.parametrize("code", [WAIT, RUNAWAY], ids=["plain", "runaway"])
def test_a_killed_agent_is_a_lost_host_and_leaves_nothing(way, horovodrun, python, code, which):
    with started([horovodrun, "-np", "2", "-H", "a:1,localhost:1", *python(code)], 2) as (process, workers):
        (victim,) = agents_of(process)[which]
        os.kill(victim, signal.SIGKILL)
        _, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 1
        assert workers.gone()
    assert b"horovodrun: lost host a: " in err
    if way == "ssh":
        # Reset: a sign of life came from the launcher after the end of the agent, before that of its guard.
        closed = r"connection (closed by the peer|lost: Connection reset by peer)"
        reason = closed if which == 0 else "the agent got SIGTERM and is stopping its workers"
        assert re.search(f"horovodrun: lost host a: {reason}".encode(), err)


def test_a_silent_agent_is_a_lost_host(way, horovodrun, python):
    with started([horovodrun, "-np", "2", "-H", "a:1,b:1", *python(WAIT)], 2) as (process, workers):
        agents, _ = agents_of(process)
        os.kill(agents[0], signal.SIGSTOP)
        _, err = process.communicate(timeout=DEADLINE)
        with contextlib.suppress(ProcessLookupError):  # the kernel may have woken it: it lost its session's leader
            os.kill(agents[0], signal.SIGCONT)
        assert process.returncode == 1
        assert workers.gone()
    after = "" if way == "ssh" else r"[^(]*\n"  # kubexec itself has not ended, so nothing is said of it
    assert re.search(rf"horovodrun: lost host [ab]: silent for 10 s{after}".encode(), err)
