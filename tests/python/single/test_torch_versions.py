"""horovod.torch with the newest PyTorch, the oldest that it works with, and an older one.

`make soak` runs suites with the real PyTorch 2.1 (tools/test.sh torch21); here the present one lacks what came later.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

TRAIN = """
import os
import torch
import torch._dynamo  # PyTorch's own modules need what is removed here

torch.set_num_threads(1)
{removed}
import horovod.torch as hvd

hvd.init()
os.environ["HOROVOD_ELASTIC"] = "1"  # a world of one reduces, too
model = torch.nn.Linear(3, 2)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
hvd.ShardedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1)).step()
types = [torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.complex64, torch.bool]
assert all(hvd.allreduce(torch.ones(3).to(each), op=hvd.Max if each == torch.bool else hvd.Sum)[0] for each in types)
print("trained")
"""
LATER_THAN_2_1 = """
del torch.uint16, torch.uint32, torch.uint64, torch.amp.GradScaler
"""
LATER_THAN_2_0 = """
del torch.Tensor.register_post_accumulate_grad_hook
torch.__version__ = "2.0.1"
"""


def run(removed: str) -> subprocess.CompletedProcess[str]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    script = TRAIN.format(removed=removed)
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=outside, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("removed", ["", LATER_THAN_2_1], ids=["newest", "oldest"])
def test_training_with_the_newest_and_the_oldest(removed: str) -> None:
    done = run(removed)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr


def test_an_older_one_is_refused_in_one_sentence() -> None:
    done = run(LATER_THAN_2_0)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last == "ImportError: horovod.torch needs PyTorch 2.1 or later, and this is 2.0.1; upgrade torch"
