"""Scripts for torchrun, started by horovodrun and by torchrun, with the backend "hvd" and with Gloo."""

from __future__ import annotations

import re

import pytest
import tomllib
from ranks import ROOT

SUM = """
dist.init_process_group(sys.argv[1])
tensor = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(tensor)
say(f"rank {dist.get_rank()} of {dist.get_world_size()}: {float(tensor)} by {dist.get_backend()}")
dist.destroy_process_group()
"""


def sums(ended) -> list[str]:  # type: ignore[no-untyped-def]
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return sorted(re.findall(r"rank \d of \d: [\d.]+ by \w+", ended.stdout))


@pytest.mark.parametrize(
    ("launcher", "options", "backend"),
    [
        ("horovodrun", (), "hvd"),
        ("horovodrun", (), "gloo"),
        ("horovodrun", ("--torch-env",), "hvd"),
        ("horovodrun", ("--torch-env",), "gloo"),
        ("torchrun", (), "hvd"),
    ],
)
def test_scripts_run_as_they_are(job, launcher: str, options: tuple[str, ...], backend: str) -> None:  # type: ignore[no-untyped-def]
    found = sums(job(launcher, 3, SUM, backend, options=options))
    assert found == [f"rank {rank} of 3: 6.0 by {backend}" for rank in range(3)]


def test_an_installed_horovod_is_found_without_an_import(job, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Where pip has installed Horovod, `import torch` alone makes the backend known."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "installed" / "horovod_of_a_test-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: horovod-of-a-test\nVersion: 1.0\n")
    entries = project["entry-points"]["torch.backends"].items()
    (folder / "entry_points.txt").write_text("[torch.backends]\n" + "".join(f"{a} = {b}\n" for a, b in entries))
    script = tmp_path / "plain.py"
    prelude = "import sys\nimport torch\nimport torch.distributed as dist\nsay = print\n"
    script.write_text(prelude + 'assert "horovod.torch" not in sys.modules' + SUM)
    found = sums(job("torchrun", 2, script, "hvd", PYTHONPATH=f"{ROOT}/python:{folder.parent}"))
    assert found == [f"rank {rank} of 2: 3.0 by hvd" for rank in range(2)]


def test_hosts_of_horovodrun(job) -> None:  # type: ignore[no-untyped-def]
    """Two pretended hosts: what one rank sends to the other goes over TCP."""
    script = """
dist.init_process_group("hvd")
peer = 1 - dist.get_rank()
received = torch.zeros(100000)
for work in dist.batch_isend_irecv([
    dist.P2POp(dist.isend, torch.full((100000,), float(peer)), peer), dist.P2POp(dist.irecv, received, peer)
]):
    work.wait()
assert received.eq(dist.get_rank()).all()
group = dist.new_group([dist.get_rank()], use_local_synchronization=True)
pair = dist.new_group([0, 1])
dist.all_reduce(received, group=pair)
say(f"sum {float(received.sum())}")
"""
    ended = job("horovodrun", 2, script, options=("-H", "localhost:1,127.0.0.1:1"))
    if "ssh" in ended.stderr and ended.returncode != 0:
        pytest.skip("this machine has no ssh to itself")
    assert ended.stdout.count("sum 100000.0") == 2, ended.stdout + ended.stderr


def test_the_group_can_be_made_again_after_it_was_destroyed(job) -> None:  # type: ignore[no-untyped-def]
    script = """
for turn in range(3):
    dist.init_process_group("hvd")
    for members in ([0, 1], [0, 2], [1, 2]):
        group = dist.new_group(members)
        if dist.get_rank() in members:
            tensor = torch.ones(3)
            dist.all_reduce(tensor, group=group)
            assert tensor.sum() == 6
    dist.destroy_process_group()
say("again and again")
"""
    assert job("horovodrun", 3, script).stdout.count("again and again") == 3


def test_five_hundred_groups_do_not_leak(job) -> None:  # type: ignore[no-untyped-def]
    script = """
import resource
def pages():
    return int(open("/proc/self/statm").read().split()[1])
dist.init_process_group("hvd")
counts = []
for turn in range(500):
    members = [[0, 1], [1, 2], [0, 2]][turn % 3]
    group = dist.new_group(members)
    if dist.get_rank() in members:
        tensor = torch.ones(1000)
        dist.all_reduce(tensor, group=group)
        assert tensor[0] == 2
        dist.destroy_process_group(group)
    if turn in (100, 499):
        counts.append((pages(), len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))))
grown = (counts[1][0] - counts[0][0]) * 4
assert grown < 8000, f"{grown} KiB"
assert counts[1][1:] == counts[0][1:], counts
say("no leak")
"""
    ended = job("horovodrun", 3, script)
    assert ended.stdout.count("no leak") == 3, ended.stdout + ended.stderr


@pytest.mark.parametrize("launcher", ["horovodrun", "torchrun"])
def test_the_example_learns_the_digits(job, launcher: str) -> None:  # type: ignore[no-untyped-def]
    ended = job(launcher, 2, ROOT / "examples/pytorch_ddp.py")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (accuracy,) = re.findall(r"Accuracy: ([\d.]+)% on 2 ranks, hvd", ended.stdout)
    assert float(accuracy) > 88


def test_accelerate(job) -> None:  # type: ignore[no-untyped-def]
    """A script of accelerate trains what one process would train."""
    pytest.importorskip("accelerate")
    script = """
from accelerate import Accelerator
from torch import nn
dist.init_process_group("hvd")
accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == 2, accelerator.num_processes
torch.manual_seed(3)
data = torch.utils.data.TensorDataset(torch.randn(64, 5), torch.randn(64, 1))
net = nn.Linear(5, 1)
loader = torch.utils.data.DataLoader(data, batch_size=8)
net, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1), loader)
assert isinstance(net, nn.parallel.DistributedDataParallel)
for inputs, wanted in loader:
    optimizer.zero_grad()
    accelerator.backward(nn.functional.mse_loss(net(inputs), wanted))
    optimizer.step()
weights = accelerator.gather(net.module.weight.detach())
assert torch.equal(weights[0], weights[1])
say(f"weights {weights[0].sum():.5f}")
"""
    ended = job("horovodrun", 2, script, options=("--torch-env",), ACCELERATE_USE_CPU="true")
    assert len(set(re.findall(r"weights (\S+)", ended.stdout))) == 1, ended.stdout + ended.stderr
