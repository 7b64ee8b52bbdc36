"""How many examples per second do the ranks of a job train together? Random data, so that only computing and
communication count.

    horovodrun -np 2 python examples/jax_synthetic_benchmark.py --layers 4 --width 512

Prints the rate of one process and of all together, with 1.96 standard deviations of the iterations.
"""

import argparse
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import optax

import horovod.jax as hvd


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=8, help="default: %(default)s")
    parser.add_argument("--width", type=int, default=1024, help="of each layer (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="examples per step and rank (default: %(default)s)")
    parser.add_argument("--num-warmup-batches", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--num-batches-per-iter", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--num-iters", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    options = parser.parse_args()

    hvd.init()
    key = jax.random.key(0)
    params = [
        jax.random.normal(each, (options.width, options.width)) / options.width**0.5
        for each in jax.random.split(key, options.layers)
    ]
    params = hvd.broadcast_parameters(params)
    compression = hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.001), compression=compression)
    x = jax.random.normal(hvd.fold_in_rank(key), (options.batch_size, options.width))

    def loss(params: Any) -> Any:
        values = x
        for each in params:
            values = jnp.tanh(values @ each)
        return jnp.square(values).mean()

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for _ in range(options.num_warmup_batches):
        params, state = step(params, state)
    rates = []
    for number in range(options.num_iters):
        jax.block_until_ready(params)
        began = time.perf_counter()
        for _ in range(options.num_batches_per_iter):
            params, state = step(params, state)
        jax.block_until_ready(params)
        rates.append(options.batch_size * options.num_batches_per_iter / (time.perf_counter() - began))
        if hvd.rank() == 0:
            print(f"Iter #{number}: {rates[-1]:.1f} examples/sec per process", flush=True)
    if hvd.rank() == 0:
        mean, spread = statistics.mean(rates), 1.96 * statistics.pstdev(rates)
        print(f"Examples/sec per process: {mean:.1f} +-{spread:.1f}")
        print(f"Total examples/sec on {hvd.size()} process(es): {hvd.size() * mean:.1f} +-{hvd.size() * spread:.1f}")


if __name__ == "__main__":
    main()
