"""Main and secondaries by plain scripts, on hosts of a test bed: real jobs of horovodrun over real ssh."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bed import Bed, Host, why_not
from job import Job
from secondaries import ROOT, SCRIPTS, Secondary, launch, listed

QUICK = {"HOROVOD_SILENCE_SECONDS": "2"}


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    if reason := why_not():
        pytest.skip(f"no test bed: {reason}")
    # None of them lets the others in by itself: the only keys are those of the scripts.
    with Bed([Host(name) for name in ("main", "node1", "node2", "node3")]) as bed:
        yield bed


def start(bed: Bed, horovodrun: str, folder: Path, share: Path) -> Job:
    (folder / "job").mkdir()
    env = QUICK | {"PATH": f"{Path(horovodrun).parent}:{os.environ['PATH']}"}
    return Job(horovodrun, folder / "job", {}, 2, launch=launch(share), env=env, popen=bed["main"].popen)


def test_secondaries_come_and_go_while_the_main_job_trains(bed: Bed, horovodrun: str, tmp_path: Path) -> None:
    share = tmp_path / "share"
    with start(bed, horovodrun, tmp_path, share) as job:
        job.wait_until(lambda: "waiting" in job.log(), "word that it waits")
        with Secondary(bed["node1"], share) as first, Secondary(bed["node2"], share) as second:
            job.wait_until_going(2)
            assert sorted(job.hosts_in_use()) == ["node1", "node2"], "the main job has no slot of its own"
            left = time.monotonic()
            first.give_notice(job)
            job.wait_until_going(1, left)
            came = time.monotonic()
            with Secondary(bed["node3"], share) as third:
                job.wait_until_going(2, came)
                assert sorted(job.hosts_in_use(came)) == ["node2", "node3"]
                job.finish()
                for each in (second, third):
                    each.give_notice()
    assert listed(bed, "main", share) == []


def test_a_secondary_that_loses_its_power_is_not_missed(bed: Bed, horovodrun: str, tmp_path: Path) -> None:
    share = tmp_path / "share"
    with start(bed, horovodrun, tmp_path, share) as job, Secondary(bed["node1"], share):
        with Secondary(bed["node2"], share):
            job.wait_until_going(2)
            crashed = time.monotonic()
            bed["node2"].crash()
            job.wait_until_going(1, crashed)
        bed["node2"].boot()
        job.finish()


def test_an_entry_that_is_not_kept_fresh_is_not_listed(bed: Bed, tmp_path: Path) -> None:
    entries = tmp_path / "secondaries"
    entries.mkdir()
    for name in ("dead", "living"):
        (entries / name).write_text(f"{name}:2\n[{name}]:12345 ssh-ed25519 AAAA\n")
    os.utime(entries / "dead", (time.time() - 60, time.time() - 60))
    (entries / "half").write_text("half")
    assert listed(bed, "main", tmp_path) == ["living:2"]
    assert (tmp_path / "known_hosts").read_text() == "[living]:12345 ssh-ed25519 AAAA\n"


def test_the_scripts_say_how_they_are_called() -> None:
    for script in ("main.sh", "secondary.sh"):
        result = subprocess.run([SCRIPTS / script], capture_output=True, text=True, timeout=30)
        assert result.returncode == 2
        assert f"{script} SHARE" in result.stderr


def test_shellcheck_finds_nothing() -> None:
    shellcheck = ROOT / ".venv-cloud/bin/shellcheck"
    if not shellcheck.exists():
        pytest.skip("no ShellCheck: make .venv-cloud/stamp")
    result = subprocess.run([shellcheck, *SCRIPTS.glob("*.sh")], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout
