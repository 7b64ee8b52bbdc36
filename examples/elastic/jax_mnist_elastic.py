"""Elastic training of a small network on handwritten digits, with JAX: hosts may come and go.

    horovodrun -np 2 --min-np 1 --max-np 4 -H localhost:4 python examples/elastic/jax_mnist_elastic.py

Kill one of the processes and see it go on. What is more than in examples/jax_mnist.py is marked (elastic);
docs/elastic.md explains it.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import jax
import optax

import horovod.jax as hvd

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from jax_mnist import accuracy, load_data, loss, make_params


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step and rank (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--lr", type=float, default=0.002, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=42, help="default: %(default)s")
    parser.add_argument("--data-dir", type=Path, help="folder with the files of MNIST (default: scikit-learn's digits)")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    hvd.init()
    (images, labels), test = load_data(options.data_dir)
    optimizer = hvd.DistributedOptimizer(optax.adam(options.lr))

    @jax.jit  # stays compiled when the number of ranks changes: allreduce does not depend on it
    def step(params: Any, opt_state: Any, x: Any, y: Any) -> Any:
        updates, opt_state = optimizer.update(jax.grad(loss)(params, x, y), opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    @hvd.elastic.run  # (elastic) called again whenever the world has changed
    def train(state: Any) -> None:
        while state.epoch < options.epochs:
            own = list(state.sampler)  # (elastic) what is left of the epoch, divided over the ranks there are
            for start in range(0, len(own), options.batch_size):
                batch = own[start : start + options.batch_size]
                state.params, state.opt_state = step(state.params, state.opt_state, images[batch], labels[batch])
                state.sampler.record_batch(start // options.batch_size, options.batch_size)
                state.commit()  # (elastic) what a failure goes back to; copies nothing
            state.epoch += 1
            state.sampler.set_epoch(state.epoch)  # (elastic) at the end of an epoch
            if hvd.rank() == 0:
                print(
                    f"epoch {state.epoch}: {hvd.size()} ranks, accuracy {accuracy(state.params, *test):.2%}", flush=True
                )
            state.commit()

    params = make_params(jax.random.key(options.seed), images.shape[1])
    # (elastic) what survives; no broadcast of parameters: the state is the same everywhere before training begins
    train(
        hvd.elastic.JaxState(
            params=params,
            opt_state=optimizer.init(params),
            sampler=hvd.elastic.ElasticSampler(images, seed=options.seed),
            epoch=0,
        )
    )


if __name__ == "__main__":
    main()
