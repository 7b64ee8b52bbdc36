"""A worker of an elastic job: trains, and one of the workers of the first world kills itself."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import mxnet as mx
from mxnet import autograd, gluon

import horovod.mxnet as hvd

STEPS, KILLED_AT = 12, 5
killed = Path(sys.argv[1])


def train_step(state: hvd.elastic.MXNetState) -> None:
    data = mx.nd.ones((4, 3)) * (state.step + 1)
    with autograd.record():
        loss = (state.model(data) - 1).square().sum()
    loss.backward()
    state.trainer.step(4)


@hvd.elastic.run
def train(state: hvd.elastic.MXNetState) -> None:
    while state.step < STEPS:
        if state.step == KILLED_AT and hvd.rank() == 1 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        train_step(state)
        state.step += 1
        if state.step % 2 == 0:
            state.commit()


hvd.init()
mx.random.seed(1)
net = gluon.nn.Dense(2, in_units=3)
net.initialize(mx.init.Normal(0.1))
trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.001, "momentum": 0.9})
state = hvd.elastic.MXNetState(net, trainer, step=0)
train(state)
values = net.weight.data().asnumpy()
assert all((each == values).all() for each in hvd.allgather_object(values))
print(f"step {state.step}, size {hvd.size()}, updates {trainer._optimizer.num_update}, sum {values.sum():.6f}")
