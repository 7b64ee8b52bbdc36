"""A rank of one system that trains with PyTorch. torch_teams.py starts it and says on its standard input what to do.

    prepare train large         builds the model and takes its first steps
    prepare allreduce 4096      a tensor of so many bytes; the first result is checked
    run 20                      so many steps or operations; answers with their seconds

Every command is answered with one line of JSON. The systems: processes that do not communicate (alone), this project
(horovod), and PyTorch's own DistributedDataParallel over Gloo (ddp; ddp view: gradients that live in its buckets).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

Operation = Callable[[], object]
Trained = tuple[nn.Module, torch.optim.Optimizer]


BATCH = 32


def perceptron(layers: int, width: int) -> tuple[nn.Module, torch.Tensor]:
    """A network of equal layers, and a batch for it."""
    modules: list[nn.Module] = []
    for _ in range(layers):
        layer = nn.Linear(width, width)
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")  # gradients keep their size through many layers
        modules += [layer, nn.ReLU()]
    return nn.Sequential(*modules[:-1]), torch.randn(BATCH, width)


def small() -> tuple[nn.Module, torch.Tensor]:
    """300 parameters of at most 16 KiB: what a step costs per gradient. 0.6 M numbers."""
    return perceptron(150, 64)


def large() -> tuple[nn.Module, torch.Tensor]:
    """25 M numbers in 12 parameters, as many as ResNet-50 has: what moving 100 MB costs."""
    return perceptron(6, 2048)


MODELS = {"small": small, "large": large}


class Alone:
    """Every process trains for itself: as fast as n processes of this machine can be."""

    together = False

    def __init__(self) -> None:
        self.rank = int(os.environ["RANK"])

    def barrier(self) -> None:
        """The ranks begin on a signal."""

    def distribute(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Trained:
        return model, optimizer

    def allreduce(self, tensor: torch.Tensor) -> Operation:
        return lambda: tensor


class Horovod(Alone):
    together = True

    def __init__(self, compression: str = "none") -> None:
        super().__init__()
        import horovod.torch as hvd

        self._hvd = hvd
        self._compression = getattr(hvd.Compression, compression)
        hvd.init()

    def barrier(self) -> None:
        self._hvd.barrier()

    def distribute(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Trained:
        self._hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        wrapped = self._hvd.DistributedOptimizer(
            optimizer, named_parameters=model.named_parameters(), compression=self._compression
        )
        return model, wrapped

    def allreduce(self, tensor: torch.Tensor) -> Operation:
        name = f"allreduce.{tensor.numel()}"
        return lambda: self._hvd.allreduce_(tensor, name=name, op=self._hvd.Sum)


class Ddp(Alone):
    together = True

    def __init__(self, view: bool = False) -> None:
        super().__init__()
        import torch.distributed as dist

        self._dist = dist
        self._view = view
        dist.init_process_group("gloo")

    def barrier(self) -> None:
        self._dist.barrier()

    def distribute(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Trained:
        return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=self._view), optimizer

    def allreduce(self, tensor: torch.Tensor) -> Operation:
        return lambda: self._dist.all_reduce(tensor)


def make(system: str) -> Alone:
    match system.split():
        case ["alone"]:
            return Alone()
        case ["horovod", *compression]:
            return Horovod(*compression)
        case ["ddp", *view]:
            return Ddp(bool(view))
    raise ValueError(f"not a system: {system}")


class Bench:
    """One case at a time, so that memory is that of one model."""

    def __init__(self, system: Alone) -> None:
        self._system = system
        self._operation: Operation = lambda: None
        self._model: nn.Module | None = None

    def prepare(self, kind: str, what: str) -> None:
        self._operation, self._model = lambda: None, None  # frees the case before
        if kind == "train":
            self._prepare_training(what)
        else:
            self._prepare_allreduce(int(what))
        for _ in range(3):
            self._operation()

    def run(self, count: int) -> dict[str, float]:
        """The seconds, and a number that must be the same on all ranks that learn together."""
        self._system.barrier()
        began = time.perf_counter()
        for _ in range(count):
            self._operation()
        seconds = time.perf_counter() - began
        learnt = 0.0
        if self._model is not None:
            learnt = float(sum(p.detach().double().abs().sum() for p in self._model.parameters()))
        return {"seconds": seconds, "learnt": learnt}

    def _prepare_training(self, name: str) -> None:
        torch.manual_seed(0)
        model, _ = MODELS[name]()
        torch.manual_seed(1 + self._system.rank)  # every rank has its own data
        _, inputs = MODELS[name]()
        wanted = torch.randn_like(inputs)
        sgd = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
        trained, optimizer = self._system.distribute(model, sgd)

        def step() -> None:
            optimizer.zero_grad()
            nn.functional.mse_loss(trained(inputs), wanted).backward()
            optimizer.step()

        self._operation, self._model = step, model

    def _prepare_allreduce(self, size: int) -> None:
        tensor = torch.arange(max(1, size // 4), dtype=torch.float32).remainder_(7) + self._system.rank
        ranks = int(os.environ["WORLD_SIZE"])
        expected = (tensor - self._system.rank) * ranks + ranks * (ranks - 1) / 2
        self._operation = self._system.allreduce(tensor)
        self._operation()
        if self._system.together and not torch.equal(tensor, expected):
            raise ArithmeticError(f"a wrong sum of {size} bytes")
        tensor.zero_()  # sums of zeros stay ordinary numbers


def main() -> None:
    bench = Bench(make(sys.argv[1]))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "prepare":
            bench.prepare(*arguments)
            print(json.dumps({"ready": True}), flush=True)
        else:
            print(json.dumps(bench.run(int(arguments[0]))), flush=True)


if __name__ == "__main__":
    main()
