"""A rank of torch.distributed that is killed, is stopped, raises or does not come."""

from __future__ import annotations

import re

import pytest

LOST = """
dist.init_process_group("hvd")
dist.barrier()
if dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
began = time.monotonic()
try:
    wait()
    say("no error")
except dist.DistNetworkError as error:
    say(f"after {time.monotonic() - began:.1f} s: {error}")
    try:
        dist.all_reduce(torch.ones(1))
    except dist.DistNetworkError:
        say("and later operations fail, too")
os._exit(0)
"""

WAITS = {
    "all_reduce": "def wait(): dist.all_reduce(torch.ones(1000))",
    "recv": "def wait(): dist.recv(torch.ones(3), 1)",
    "send": "def wait(): dist.send(torch.ones(3), 1)",
    "any source": "def wait(): dist.recv(torch.ones(3))",
    "future": "def wait(): dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()",
    "group": "def wait(): dist.all_reduce(torch.ones(3), group=dist.new_group())",
    "ddp": """
def wait():
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))
    for _ in range(3):
        net(torch.ones(2, 3)).sum().backward()
""",
}


@pytest.mark.parametrize("how", [pytest.param(how, id=how.replace(" ", "_")) for how in WAITS])
def test_a_killed_peer_fails_what_waits_for_it(job, how: str) -> None:  # type: ignore[no-untyped-def]
    ended = job("torchrun", 2, WAITS[how] + LOST)
    found = re.findall(r"after [\d.]+ s: (.*)", ended.stdout)
    assert len(found) == 1 and "rank 1" in found[0], ended.stdout + ended.stderr
    assert ended.stdout.count("and later operations fail, too") == 1


def test_horovodrun_names_the_rank_that_raised(job) -> None:  # type: ignore[no-untyped-def]
    script = """
dist.init_process_group("hvd")
if dist.get_rank() == 2:
    raise KeyError("lost my key")
dist.all_reduce(torch.ones(1))
"""
    ended = job("horovodrun", 3, script)
    assert ended.returncode != 0
    assert "lost my key" in ended.stderr.split("horovodrun")[-1] or "rank 2" in ended.stderr, ended.stderr


def test_a_group_whose_members_do_not_all_come_times_out(job) -> None:  # type: ignore[no-untyped-def]
    script = """
from datetime import timedelta
dist.init_process_group("hvd")
if dist.get_rank() == 0:
    try:
        dist.new_group([0, 1], timeout=timedelta(seconds=0.5))
    except dist.DistBackendError as error:
        say(str(error))
dist.barrier()
if dist.get_rank() == 1:  # the late member meets what the first one has asked for
    dist.new_group([0, 1])
say("the end")
"""
    ended = job("horovodrun", 3, script)
    assert "Timed out waiting 500ms for a group of the ranks [0, 1]" in ended.stdout, ended.stdout + ended.stderr
    assert ended.returncode == 0 and ended.stdout.count("the end") == 3, ended.stdout + ended.stderr


def test_a_world_can_be_formed_after_a_peer_was_lost_in_an_elastic_job(job, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The process group is formed again for the new world."""
    script = f"""
import horovod.torch as hvd
marker = {str(tmp_path / "killed")!r}
hvd.init()
state = hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, step=0)

@hvd.elastic.run
def train(state):
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("hvd")
    while state.step < 10:
        if state.step == 4 and dist.get_rank() == 1 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        tensor = torch.ones(10)
        dist.all_reduce(tensor)
        assert tensor[0] == dist.get_world_size()
        state.step += 1
        state.commit()

train(state)
say(f"step {{state.step}} with {{dist.get_world_size()}} ranks")
dist.destroy_process_group()
"""
    ended = job("horovodrun", 2, script, options=("--min-np", "1", "--max-np", "2", "-H", "localhost:2"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"step 10 with [12] ranks", ended.stdout), ended.stdout
    assert (tmp_path / "killed").exists()
