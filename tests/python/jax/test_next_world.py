"""What is left of a world must not disturb the next one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import horovod.jax as hvd
from horovod.common.exceptions import HorovodInternalError
from horovod.jax import elastic


@pytest.mark.usefixtures("numbered_anew")
def test_programs_that_have_not_run_fail_with_their_world() -> None:
    """One waits for other ranks when its world ends; behind it are a long one, and one whose name is used again."""
    if hvd.size() == 1:
        pytest.skip("needs a rank to wait for")
    unanswered = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="never answered") / 2)
    used_again = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="used again") / 2)
    long = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, each: each @ x, x))
    # So large that JAX runs all in the background, and the long one for longer than the ranks take to meet again.
    x, matrix = jnp.ones(200_000), jnp.eye(1000)
    jax.block_until_ready((unanswered(x), used_again(x), long(jnp.zeros((1000, 1000)))))
    left: list[Any] = []
    between = None
    if hvd.rank() == 0:
        first, between, second = unanswered(x), long(matrix), used_again(100 * x)
        left = [first, second]
    elastic._form_new_world()
    np.testing.assert_array_equal(used_again(x), hvd.size() / 2)
    jax.block_until_ready(between)
    for each in left:
        with pytest.raises(HorovodInternalError), hvd.raising_horovod_errors():
            jax.block_until_ready(each)
