"""What is left of a world must not disturb the next one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import horovod.jax as hvd
from horovod.common.exceptions import HorovodInternalError
from horovod.jax import elastic


@pytest.mark.usefixtures("numbered_anew")
def test_programs_that_have_not_run_fail_with_their_world() -> None:
    """One waits for other ranks when its world ends, and another one, with a name that is used again, behind it."""
    if hvd.size() == 1:
        pytest.skip("needs a rank to wait for")
    unanswered = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="never answered") / 2)
    used_again = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="used again") / 2)
    x = jnp.ones(200_000)  # so many that JAX runs it in the background
    jax.block_until_ready((unanswered(x), used_again(x)))
    left = [unanswered(x), used_again(100 * x)] if hvd.rank() == 0 else []
    elastic._form_new_world()
    np.testing.assert_array_equal(used_again(x), hvd.size() / 2)
    for each in left:
        with pytest.raises(HorovodInternalError), hvd.raising_horovod_errors():
            jax.block_until_ready(each)
