"""Data-parallel training of a small network on handwritten digits, with JAX and optax.

    python examples/jax_mnist.py                       # one process
    horovodrun -np 2 python examples/jax_mnist.py      # two: each takes half of the images

The lines marked (hvd) are all that makes it distributed. Trains with scikit-learn's small digits, or with the four
files of MNIST in --data-dir; nothing is downloaded.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from digits import load_digits

import horovod.jax as hvd


def load_data(folder: Path | None = None) -> Any:
    """Flat images and their digits, to train and to test with; the same on every rank."""
    return tuple((images.reshape(len(images), -1), labels) for images, labels in load_digits(folder))


def make_params(key: Any, pixels: int) -> Any:
    sizes = [pixels, 128, 64, 10]
    keys = jax.random.split(key, 3)
    return [
        {"w": jax.random.normal(each, (wide, narrow)) * (2 / wide) ** 0.5, "b": jnp.zeros(narrow)}
        for each, wide, narrow in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def scores(params: Any, x: Any) -> Any:
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss(params: Any, x: Any, y: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(scores(params, x), y).mean()


def accuracy(params: Any, x: Any, y: Any) -> float:
    return float((scores(params, x).argmax(1) == y).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step and rank (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--lr", type=float, default=0.002, help="learning rate of one rank (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=42, help="default: %(default)s")
    parser.add_argument("--data-dir", type=Path, help="folder with the files of MNIST (default: scikit-learn's digits)")
    options = parser.parse_args()

    hvd.init()  # (hvd)
    (images, labels), test = load_data(options.data_dir)
    params = make_params(jax.random.key(options.seed), images.shape[1])
    params = hvd.broadcast_parameters(params, root_rank=0)  # (hvd) the same start on every rank
    optimizer = hvd.DistributedOptimizer(optax.adam(options.lr * hvd.size()))  # (hvd) averages gradients

    @jax.jit
    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    state = optimizer.init(params)
    for epoch in range(1, options.epochs + 1):
        order = np.random.default_rng(options.seed + epoch).permutation(len(images))
        order = order[: len(order) // hvd.size() * hvd.size()]
        own = order[hvd.rank() :: hvd.size()]  # (hvd) this rank's part
        value = jnp.zeros(())
        for start in range(0, len(own), options.batch_size):
            batch = own[start : start + options.batch_size]
            params, state, value = step(params, state, images[batch], labels[batch])
        mean = hvd.allreduce(value)  # (hvd)
        if hvd.rank() == 0:  # (hvd) one report
            print(f"epoch {epoch}: loss {mean:.4f}, accuracy {accuracy(params, *test):.2%}", flush=True)


if __name__ == "__main__":
    main()
