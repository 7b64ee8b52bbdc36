"""A tiny transformer in Flax with compressed gradients. It learns to reverse sequences of letters.

    python examples/jax_transformer.py                                            # one process
    horovodrun -np 2 python examples/jax_transformer.py --compression int8        # two, a quarter of the bytes

The lines marked (hvd) are all that makes it distributed.
"""

import argparse
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

import horovod.jax as hvd

LETTERS, LENGTH = 26, 8
SEPARATOR = LETTERS  # after it the model is to write the letters backwards
COMPRESSIONS: dict[str, Any] = {
    "none": hvd.Compression.none,
    "bf16": hvd.Compression.bf16,
    "int8": hvd.Compression.int8,
    "topk": hvd.Compression.topk(ratio=0.05),
    "powersgd": hvd.Compression.powersgd(rank=4),
}


def make_batch(key: Any, count: int) -> tuple[Any, Any]:
    """What the model reads, `abc|cb`, and the letters it should write after the separator, `cba`."""
    letters = jax.random.randint(key, (count, LENGTH), 0, LETTERS)
    answer = letters[:, ::-1]
    return jnp.concatenate([letters, jnp.full((count, 1), SEPARATOR), answer[:, :-1]], axis=1), answer


class Transformer(nn.Module):
    """Two layers of attention to everything before."""

    width: int

    @nn.compact
    def __call__(self, letters: Any) -> Any:
        places = self.param("places", nn.initializers.normal(0.02), (2 * LENGTH, self.width))
        x = nn.Embed(LETTERS + 1, self.width)(letters) + places
        mask = nn.make_causal_mask(letters)
        for _ in range(2):
            x = x + nn.SelfAttention(4)(nn.LayerNorm()(x), mask)
            x = x + nn.Dense(self.width)(nn.relu(nn.Dense(4 * self.width)(nn.LayerNorm()(x))))
        return nn.Dense(LETTERS)(x)[:, LENGTH:]  # from the separator on


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32, help="sequences per step and rank")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--compression", choices=COMPRESSIONS, default="none")
    options = parser.parse_args()

    hvd.init()  # (hvd)
    key = jax.random.key(0)
    model = Transformer(options.width)
    params = model.init(key, make_batch(key, 1)[0])
    params = hvd.broadcast_parameters(params)  # (hvd)
    optimizer = hvd.DistributedOptimizer(optax.adam(options.lr), COMPRESSIONS[options.compression])  # (hvd)
    own_key = hvd.fold_in_rank(key)  # (hvd) every rank has sequences of its own

    def loss(params: Any, letters: Any, answer: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(model.apply(params, letters), answer).mean()

    @jax.jit
    def step(params: Any, state: Any, number: Any) -> Any:
        batch = make_batch(jax.random.fold_in(own_key, number), options.batch)
        value, gradients = jax.value_and_grad(loss)(params, *batch)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, hvd.allreduce(value)  # (hvd)

    state = optimizer.init(params)
    for number in range(1, options.steps + 1):
        params, state, value = step(params, state, number)
        if number % 50 == 0 and hvd.rank() == 0:
            print(f"step {number}: loss {value:.3f}", flush=True)


if __name__ == "__main__":
    main()
