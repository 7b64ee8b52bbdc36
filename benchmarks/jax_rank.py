"""A rank of one system that runs JAX. jax_train.py starts it and says on its standard input what to do, in the words of
torch_rank.py:

    prepare train large         builds the model and takes its first steps
    prepare allreduce 1024      an array of so many bytes
    run 20                      so many steps or operations; answers with their seconds

The systems: processes that do not communicate (alone), this project (horovod), and JAX's own collectives between
processes (gloo: jax.distributed, and pmean in shard_map). All run the same few lines in one jitted function.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BATCH = 32
RATE = 1e-4
MODELS = {"small": (150, 64), "large": (6, 2048)}  # layers, width: 300 small arrays; 25 M numbers in 12
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Alone:
    """Every process trains for itself: as fast as n processes of this machine can be."""

    def barrier(self) -> None:
        """The ranks begin on a signal."""

    def mean(self, tree: Any) -> Any:
        return tree

    def common(self, tree: Any) -> Any:
        """Values that all ranks have."""
        return jax.tree.map(jnp.asarray, tree)

    own = common  # values of this rank

    def jit(self, function: Callable[..., Any], own_arguments: int) -> Callable[..., Any]:
        """`function(state, *own)`, compiled; the state is donated."""
        return jax.jit(function, donate_argnums=0)


class Horovod(Alone):
    def __init__(self) -> None:
        import horovod.jax as hvd

        self._hvd = hvd
        hvd.init()

    def barrier(self) -> None:
        self._hvd.barrier()

    def mean(self, tree: Any) -> Any:
        from horovod.jax.gradients import GradientReduction

        return GradientReduction().run(tree)[0]


class Gloo(Alone):
    def __init__(self) -> None:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{os.environ['MASTER_PORT']}", RANKS, RANK)
        self._mesh = jax.make_mesh((RANKS,), ("ranks",))
        self._barrier = self.jit(lambda state: (state, self.mean(state)), 0)

    def barrier(self) -> None:
        jax.block_until_ready(self._barrier(self.common(np.zeros(1, np.float32))))

    def mean(self, tree: Any) -> Any:
        return jax.lax.pmean(tree, "ranks")

    def _place(self, tree: Any, spec: Any) -> Any:
        sharding = jax.sharding.NamedSharding(self._mesh, spec)
        return jax.tree.map(lambda each: jax.make_array_from_process_local_data(sharding, np.asarray(each)), tree)

    def common(self, tree: Any) -> Any:
        return self._place(tree, jax.sharding.PartitionSpec())

    def own(self, tree: Any) -> Any:
        return self._place(tree, jax.sharding.PartitionSpec("ranks"))

    def jit(self, function: Callable[..., Any], own_arguments: int) -> Callable[..., Any]:
        common, own = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec("ranks")
        specs = (common, *[own] * own_arguments)
        spread = jax.shard_map(function, mesh=self._mesh, in_specs=specs, out_specs=common, check_vma=False)
        return jax.jit(spread, donate_argnums=0)


SYSTEMS: dict[str, Callable[[], Alone]] = {"alone": Alone, "horovod": Horovod, "gloo": Gloo}


class Bench:
    """One case at a time, so that memory is that of one."""

    def __init__(self, system: Alone) -> None:
        self._system = system
        self._step: Callable[..., Any] = lambda state: state
        self._state: Any = None
        self._own: list[Any] = []

    def prepare(self, kind: str, what: str) -> None:
        self._state, self._own = None, []  # frees the memory of the case before
        if kind == "train":
            self._prepare_training(*MODELS[what])
        else:
            values = np.ones(max(1, int(what) // 4), np.float32)
            self._state = self._system.common(values)
            self._step = self._system.jit(self._system.mean, 0)
        for _ in range(3):
            self._state = self._step(self._state, *self._own)

    def _prepare_training(self, layers: int, width: int) -> None:
        random = np.random.default_rng(0)
        params = [
            (random.standard_normal((width, width), np.float32) * np.sqrt(2 / width, dtype=np.float32), np.zeros(width))
            for _ in range(layers)
        ]
        params = jax.tree.map(np.float32, params)
        momenta = jax.tree.map(np.zeros_like, params)
        random = np.random.default_rng(1 + RANK)  # every rank has its own data
        data = [random.standard_normal((BATCH, width), np.float32) for _ in range(2)]

        def loss(params: Any, inputs: Any, wanted: Any) -> Any:
            values = inputs
            for number, (kernel, bias) in enumerate(params):
                values = values @ kernel + bias
                values = values if number == layers - 1 else jax.nn.relu(values)
            return jnp.square(values - wanted).mean()

        def step(state: Any, inputs: Any, wanted: Any) -> Any:
            params, momenta = state
            gradients = self._system.mean(jax.grad(loss)(params, inputs, wanted))
            momenta = jax.tree.map(lambda momentum, gradient: 0.9 * momentum + gradient, momenta, gradients)
            return jax.tree.map(lambda each, momentum: each - RATE * momentum, params, momenta), momenta

        self._state, self._own = self._system.common((params, momenta)), self._system.own(data)
        self._step = self._system.jit(step, 2)

    def run(self, count: int) -> dict[str, float]:
        """The seconds, and a number that must be the same on all ranks that learn together."""
        jax.block_until_ready(self._state)
        self._system.barrier()
        began = time.perf_counter()
        for _ in range(count):
            self._state = self._step(self._state, *self._own)
        jax.block_until_ready(self._state)
        seconds = time.perf_counter() - began
        leaves = [np.asarray(each.addressable_data(0)) for each in jax.tree.leaves(self._state)]
        return {"seconds": seconds, "learnt": sum(float(np.abs(each).sum(dtype=np.float64)) for each in leaves)}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Gloo writes to standard output
    bench = Bench(SYSTEMS[sys.argv[1]]())
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "prepare":
            bench.prepare(*arguments)
            print(json.dumps({"ready": True}), file=answers, flush=True)
        else:
            print(json.dumps(bench.run(int(arguments[0]))), file=answers, flush=True)


if __name__ == "__main__":
    main()
