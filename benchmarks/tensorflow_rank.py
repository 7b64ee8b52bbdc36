"""A rank of one system that trains with TensorFlow. tensorflow_train.py starts it and says on its standard input what
to do, in the words of torch_rank.py:

    prepare train large         builds the model and takes its first steps
    run 20                      so many steps; answers with their seconds

The systems: processes that do not communicate (alone), this project (horovod; horovod 4: in four groups), and
TensorFlow's own MultiWorkerMirroredStrategy (mirrored). All train the same variables with the same few lines, in one
tf.function; only the reduction of the gradients differs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

BATCH = 32
RATE = 1e-4
MODELS = {"small": (150, 64), "large": (6, 2048)}  # layers, width: 300 small variables; 25 M numbers in 12
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Alone:
    """Every process trains for itself: as fast as n processes of this machine can be."""

    def barrier(self) -> None:
        """The ranks begin on a signal."""

    def gradients(self, tape: tf.GradientTape, loss: Any, variables: list[Any]) -> list[Any]:
        grads: list[Any] = tape.gradient(loss, variables)
        return grads

    def function(self, step: Callable[[], Any]) -> Callable[[], Any]:
        made: Callable[[], Any] = tf.function(step)
        return made


class Horovod(Alone):
    def __init__(self, groups: str | None = None) -> None:
        import horovod.tensorflow as hvd

        self._hvd = hvd
        self._groups = None if groups is None else int(groups)
        hvd.init()

    def barrier(self) -> None:
        self._hvd.allreduce(tf.zeros([]), name="barrier")

    def gradients(self, tape: tf.GradientTape, loss: Any, variables: list[Any]) -> list[Any]:
        grads: list[Any] = self._hvd.DistributedGradientTape(tape, groups=self._groups).gradient(loss, variables)
        return grads


class Mirrored(Alone):
    """The variables are plain ones, equal on all ranks: what is compared is the reduction."""

    def __init__(self) -> None:
        workers = [f"127.0.0.1:{port}" for port in os.environ["WORKER_PORTS"].split(",")]
        task = {"type": "worker", "index": RANK}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy()
        self._barrier = self.function(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.zeros([])))

    def barrier(self) -> None:
        self._barrier()

    def gradients(self, tape: tf.GradientTape, loss: Any, variables: list[Any]) -> list[Any]:
        grads: list[Any] = tf.distribute.get_replica_context().all_reduce("MEAN", tape.gradient(loss, variables))
        return grads

    def function(self, step: Callable[[], Any]) -> Callable[[], Any]:
        made: Callable[[], Any] = tf.function(lambda: self._strategy.run(step))
        return made


SYSTEMS: dict[str, Callable[..., Alone]] = {"alone": Alone, "horovod": Horovod, "mirrored": Mirrored}


class Bench:
    """One model at a time, so that memory is that of one."""

    def __init__(self, system: Alone) -> None:
        self._system = system
        self._step: Callable[[], Any] = lambda: None
        self._variables: list[Any] = []

    def prepare(self, _kind: str, name: str) -> None:
        self._step, self._variables = lambda: None, []  # frees the model before
        layers, width = MODELS[name]
        random = np.random.default_rng(0)
        for _ in range(layers):
            kernel = random.standard_normal((width, width), np.float32) * np.sqrt(2 / width, dtype=np.float32)
            self._variables += [tf.Variable(kernel), tf.Variable(tf.zeros(width))]
        momenta = [tf.Variable(tf.zeros_like(each), trainable=False) for each in self._variables]
        random = np.random.default_rng(1 + RANK)  # every rank has its own data
        inputs, wanted = (tf.constant(random.standard_normal((BATCH, width), np.float32)) for _ in range(2))
        variables = self._variables

        def step() -> Any:
            with tf.GradientTape() as tape:
                values = inputs
                for kernel, bias in zip(variables[::2], variables[1::2], strict=True):
                    values = tf.matmul(values, kernel) + bias
                    values = values if kernel is variables[-2] else tf.nn.relu(values)
                loss = tf.reduce_mean((values - wanted) ** 2)
            grads = self._system.gradients(tape, loss, variables)
            for variable, momentum, grad in zip(variables, momenta, grads, strict=True):
                variable.assign_sub(RATE * momentum.assign(0.9 * momentum + grad))
            return loss

        self._step = self._system.function(step)
        for _ in range(3):
            self._step()

    def run(self, count: int) -> dict[str, float]:
        """The seconds, and a number that must be the same on all ranks that learn together."""
        self._system.barrier()
        began = time.perf_counter()
        for _ in range(count):
            self._step()
        seconds = time.perf_counter() - began
        learnt = sum(float(np.abs(each.numpy()).sum(dtype=np.float64)) for each in self._variables)
        return {"seconds": seconds, "learnt": learnt}


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(int(os.environ["OMP_NUM_THREADS"]))
    system, *options = sys.argv[1].split()
    bench = Bench(SYSTEMS[system](*options))
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
