"""--torch-env: workers get the variables of torchrun. Without the option they do not."""

import os
import subprocess
import sys

import pytest
from answers import by_rank

SHOW = "import json, os; print(json.dumps(dict(os.environ)))"
PLACE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
NAMES = {
    *PLACE,
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "ROLE_NAME",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_USE_AGENT_STORE",
}
# As torchrun's documentation has it: nothing of Horovod.
SCRIPT = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
assert dist.get_rank() == int(os.environ["RANK"]) and dist.is_torchelastic_launched()
print(f"rank {dist.get_rank()} of {dist.get_world_size()} has {total.item():g}")
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def places(result):
    return [" ".join(worker[name] for name in PLACE) for worker in by_rank(result)]


def test_nothing_is_set_unless_asked_for(run, python):
    (worker,) = by_rank(run("-np", "1", *python(SHOW)))
    assert not NAMES & worker.keys()


def test_places_on_one_host(run, python):
    result = run("-np", "2", "--torch-env", *python(SHOW))
    assert places(result) == ["0 2 0 2 0 1", "1 2 1 2 0 1"]
    first, second = by_rank(result)
    assert first.keys() >= NAMES
    assert first["MASTER_ADDR"] == "127.0.0.1"
    same = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "ROLE_NAME", "ROLE_WORLD_SIZE")
    assert [first[name] for name in same] == [second[name] for name in same]
    assert second["ROLE_RANK"] == "1"


def test_places_on_several_hosts(hosts, run, python):
    result = run("-np", "4", "--torch-env", "-H", "a:1,localhost:1,b:2", *python(SHOW))
    assert places(result) == ["0 4 0 1 0 3", "1 4 0 1 1 3", "2 4 0 2 2 3", "3 4 1 2 2 3"]
    workers = by_rank(result)
    assert {worker["MASTER_ADDR"] for worker in workers} == {"a"}
    assert len({worker["MASTER_PORT"] for worker in workers}) == 1


def test_the_users_master_stays_and_a_rank_of_the_launchers_own_does_not(hosts, run, python):
    """A pod of another operator, in which horovodrun is started, may say that everything in it is rank 0."""
    own = {"MASTER_ADDR": "node7", "MASTER_PORT": "4321", "RANK": "0", "WORLD_SIZE": "1"}
    result = run("-np", "2", "--torch-env", "-H", "localhost:1,b:1", *python(SHOW), env={**os.environ, **own})
    for rank, worker in enumerate(by_rank(result)):
        found = [worker[name] for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")]
        assert found == ["node7", "4321", str(rank), "2"]


@pytest.mark.parametrize("layout", ["", "localhost:1,b:1"], ids=["one host", "two hosts"])
def test_a_script_of_torchrun_runs(layout, hosts, horovodrun, tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    where = ["-H", layout] if layout else []
    command = [horovodrun, "-np", "2", "--torch-env", *where, sys.executable, str(script)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert [f"[{rank}]<stdout>:rank {rank} of 2 has 3" for rank in (0, 1)] == sorted(result.stdout.splitlines())


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        (["--min-np", "1"], "--torch-env does not go with elastic jobs"),
        (["--mpi"], "--torch-env does not go with --mpi"),
    ],
)
def test_jobs_whose_ranks_others_place_are_refused(others, reason, run):
    result = run("-np", "2", "--torch-env", *others, "true")
    assert result.returncode != 0
    assert reason in result.stderr.decode()
