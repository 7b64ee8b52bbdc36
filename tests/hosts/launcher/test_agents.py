"""Agents that the launcher did not start, and the key that they share with it."""

from __future__ import annotations

import os
import pathlib
import secrets
import subprocess
from typing import Any

import pytest
from bed import Bed
from jobs import REDUCE, STUBBORN, assert_nothing_left, await_up, finish, kill_together, of_command, python


@pytest.fixture
def keys(tmp_path: pathlib.Path) -> list[str]:
    """Two files with different keys."""
    files = [tmp_path / "key", tmp_path / "other"]
    for file in files:
        file.write_text(secrets.token_hex(32) + "\n")
        file.chmod(0o600)
    return [str(file) for file in files]


@pytest.mark.parametrize("tls", [(), ("--tls",)], ids=["plain", "tls"])
def test_agents_come_in_any_order(launch: Any, keys: list[str], tls: tuple[str, ...]) -> None:
    early = launch("--agent", "--rendezvous", "hosta:4711", "--key-file", keys[0], on="hostb")
    launcher = launch(
        "-np", "3", "--agents", "2", "--rendezvous", "0.0.0.0:4711", "--key-file", keys[0], *tls, *python(REDUCE)
    )
    late = launch("--agent", "--rendezvous", "hosta:4711", on="hosta", stdin=subprocess.PIPE)
    late.stdin.write(pathlib.Path(keys[0]).read_text())
    late.stdin.flush()
    out, err = finish(launcher, 0)
    expected = ["reduced 0 of 3 on hosta", "reduced 1 of 3 on hosta", "reduced 2 of 3 on hostb"]
    assert [line.partition(":")[2] for line in sorted(out.splitlines())] == expected, err
    for agent in (early, late):
        finish(agent, 0)


def test_an_agent_with_another_key_is_refused_and_disturbs_nothing(launch: Any, keys: list[str]) -> None:
    launcher = launch("-np", "1", "--agents", "1", "--rendezvous", "0.0.0.0:4711", "--key-file", keys[0], "echo", "x")
    place = ["--rendezvous", "hosta:4711"]
    assert launcher.stderr.readline() == "horovodrun: waiting for 1 agent at 0.0.0.0:4711\n"
    _, err = finish(launch("--agent", *place, "--start-timeout", "5", "--key-file", keys[1], on="hostb"), 1)
    assert "horovodrun --agent: the launcher has a different key: " in err
    finish(launch("--agent", *place, "--key-file", keys[0], on="hostb"), 0)
    out, _ = finish(launcher, 0)
    assert out == "[0]<stdout>:x\n"


def test_agents_end_with_their_launcher(launch: Any, bed: Bed, keys: list[str]) -> None:
    launcher = launch(
        "-np", "2", "--agents", "2", "--rendezvous", "0.0.0.0:4711", "--key-file", keys[0], *python(STUBBORN)
    )
    agents = [
        launch("--agent", "--rendezvous", "hosta:4711", "--key-file", keys[0], on=on) for on in ("hosta", "hostb")
    ]
    await_up(launcher, 2)
    kill_together(of_command(bed["hosta"], b"--agents"))  # the launcher and its guard
    for agent in agents:
        _, err = finish(agent, 1)
        assert "horovodrun --agent: the launcher is gone: " in err
    assert_nothing_left(*bed)


def test_keys_that_others_may_read_are_refused(launch: Any, keys: list[str]) -> None:
    os.chmod(keys[0], 0o644)
    _, err = finish(launch("--agent", "--rendezvous", "hosta:4711", "--key-file", keys[0]), 1)
    assert f"chmod 600 {keys[0]}" in err


def test_an_agent_too_many_leaves_with_the_others(launch: Any, keys: list[str]) -> None:
    place = ["--rendezvous", "hosta:4711", "--key-file", keys[0]]
    agents = [launch("--agent", *place, on=on) for on in ("hosta", "hostb")]
    launcher = launch("-np", "1", "--agents", "2", "--rendezvous", "0.0.0.0:4711", "--key-file", keys[0], "echo", "x")
    assert finish(launcher, 0)[0] == "[0]<stdout>:x\n"
    for agent in agents:
        finish(agent, 0)
