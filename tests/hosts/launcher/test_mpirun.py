"""mpirun, started by horovodrun, over ssh to other hosts: variables arrive, nothing secret is seen, nothing is left."""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
import signal
from typing import Any

import pytest
from bed import Bed
from jobs import DEADLINE, REDUCE, assert_nothing_left, await_up, finish, python

HOSTS = ["-np", "4", "-H", "hosta:2,hostb:2"]
WAIT = "import os, signal; os.write(1, b'up\\n'); signal.pause()"
# The test bed's docker0 has the same address on every host; the others have different names.
INTERFACES = ["--network-interfaces", "eth0,ib0"]


@pytest.fixture(params=["openmpi", "mpich"])
def mpi(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> dict[str, Any]:
    """Options and variables for an MPI that only starts the ranks: they communicate without it."""
    kind = request.param
    if shutil.which(f"mpirun.{kind}") is None:
        pytest.skip(f"there is no mpirun.{kind}: tools/packages.sh mpi installs it")
    env = {"HOROVOD_MPIRUN": f"mpirun.{kind}", "HOROVOD_CONTROLLER": "gloo", "PYTHONUNBUFFERED": ""}
    return {"options": ["--mpi", *INTERFACES], "env": env}


def test_a_world_forms(launch: Any, mpi: dict[str, Any]) -> None:
    out, err = finish(launch(*HOSTS, *mpi["options"], *python(REDUCE), env=mpi["env"]), 0)
    said = sorted(re.findall(r"reduced (\d) of 4 on (\w+)", out))
    assert said == [("0", "hosta"), ("1", "hosta"), ("2", "hostb"), ("3", "hostb")], err


def test_the_ranks_meet_over_mpi(launch: Any, mpi: dict[str, Any], horovodrun: str, tmp_path: pathlib.Path) -> None:
    source = pathlib.Path(horovodrun).parents[1] / "lib/mpi/hvd_mpi_shim.c"
    if not source.exists():
        pytest.skip(f"this package has no MPI library: {source}")
    env = mpi["env"] | {"HOROVOD_CONTROLLER": "", "XDG_CACHE_HOME": str(tmp_path), "UCX_NET_DEVICES": "eth0,ib0"}
    env |= {"UCX_TLS": "tcp,self"}  # see flavours.py
    code = REDUCE.replace("hvd.shutdown()", "assert hvd.mpi_enabled()\nhvd.shutdown()")
    out, err = finish(launch("-np", "3", "-H", "hosta:1,hostb:2", *mpi["options"], *python(code), env=env), 0)
    said = sorted(re.findall(r"reduced (\d) of 3 on (\w+)", out))
    assert said == [("0", "hosta"), ("1", "hostb"), ("2", "hostb")], err


@pytest.mark.parametrize("tls", [[], ["--tls"]], ids=["plain", "tls"])
def test_the_rank_that_failed_is_named_on_whichever_host(launch: Any, mpi: dict[str, Any], tls: list[str]) -> None:
    code = """
import atexit, time, numpy as np, horovod.numpy as hvd
atexit.register(time.sleep, 1)
hvd.init()
if hvd.rank() == 2:
    raise ValueError("bad batch")
hvd.allreduce(np.ones(4))
"""
    _, err = finish(launch(*HOSTS, *tls, *mpi["options"], *python(code), env=mpi["env"]), 1)
    assert re.search(r"\nhorovodrun: rank 2 on hostb raised ValueError: bad batch: pid \d+\n", err), err
    assert err.endswith("\nAfter that: ranks 0, 1, 3 lost it.\n"), err


def test_only_other_hosts(launch: Any, mpi: dict[str, Any]) -> None:
    code = "import os, socket; os.write(1, (socket.gethostname() + os.environ['OF_THE_USER'] + '\\n').encode())"
    env = mpi["env"] | {"OF_THE_USER": "; a 'b' \"c\" $d"}
    out, err = finish(launch("-np", "2", "-H", "root@hostb:2", *mpi["options"], *python(code), env=env), 0)
    assert out.count("hostb; a 'b' \"c\" $d") == 2, err


def test_options_of_ssh_are_passed_on(launch: Any, mpi: dict[str, Any], tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log"
    script = tmp_path / "my_ssh"
    script.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec ssh "$@"\n')
    script.chmod(0o755)
    env = mpi["env"] | {"HOROVOD_SSH_COMMAND": str(script)}
    finish(launch("-np", "1", "-H", "hostb:1", "-p", "22", *mpi["options"], "true", env=env), 0)
    assert "-o BatchMode=yes -p 22" in log.read_text()


def test_the_key_is_in_no_command_line_or_log(launch: Any, bed: Bed, mpi: dict[str, Any]) -> None:
    process = launch(*HOSTS, "--verbose", "--tls", *mpi["options"], *python(WAIT), env=mpi["env"])
    await_up(process, 4)
    commands, secrets = b"", set()
    for pid in [pid for machine in bed for pid in machine.pids()]:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # an ssh whose daemon runs without it now
            commands += pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            for variable in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if variable.startswith((b"_HOROVOD_SECRET_KEY=", b"_HOROVOD_TLS_IDENTITY=", b"_HOROVOD_REPORT_STORE=")):
                    secrets.add(variable.partition(b"=")[2])
    assert len(secrets) == 3
    assert not any(secret in commands for secret in secrets)
    process.terminate()
    out, err = process.communicate(timeout=DEADLINE)
    assert not any(secret.decode() in out + err for secret in secrets)


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left(launch: Any, bed: Bed, mpi: dict[str, Any], stop: signal.Signals) -> None:
    process = launch(*HOSTS, *mpi["options"], *python(WAIT), env=mpi["env"])
    await_up(process, 4)
    process.send_signal(stop)
    process.wait(timeout=DEADLINE)
    assert_nothing_left(*bed)
