"""Gluon: trains a small network on pictures of digits. horovodrun -np 2 python examples/mxnet_mnist.py

The lines that Horovod adds are numbered. The pictures are drawn by this script, so that nothing is downloaded.
"""

from __future__ import annotations

import argparse
from typing import Any

import mxnet as mx
from mxnet import autograd, gluon
from mxnet_digits import digits

import horovod.mxnet as hvd


def make_net() -> Any:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(8, 3, activation="relu"), gluon.nn.MaxPool2D(), gluon.nn.Dense(32, activation="relu"))
    net.add(gluon.nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--fp16-allreduce", action="store_true")
    arguments = parser.parse_args()

    hvd.init()  # 1. Form the world.
    inputs, labels = digits(2000, seed=1)
    own = slice(hvd.rank(), None, hvd.size())  # 2. Each rank has its part of the data.
    dataset = gluon.data.ArrayDataset(mx.nd.array(inputs[own]), mx.nd.array(labels[own]))
    loader = gluon.data.DataLoader(dataset, arguments.batch_size, shuffle=True, last_batch="discard")

    net = make_net()
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)  # 3. All start with the same parameters.
    trainer = hvd.DistributedTrainer(  # 4. Gradients are averaged.
        net.collect_params(),
        "sgd",
        {"learning_rate": arguments.lr * hvd.size(), "momentum": 0.9},
        compression=hvd.Compression.fp16 if arguments.fp16_allreduce else hvd.Compression.none,
    )
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    for epoch in range(arguments.epochs):
        for batch, expected in loader:
            with autograd.record():
                loss = loss_of(net(batch), expected)
            loss.backward()
            trainer.step(arguments.batch_size)
        mean = hvd.allreduce(loss.mean(), name="loss")
        if hvd.rank() == 0:
            print(f"Epoch {epoch + 1}\tLoss: {mean.asscalar():.4f}", flush=True)

    inputs, labels = digits(500, seed=2)
    found = net(mx.nd.array(inputs)).argmax(axis=1)
    if hvd.rank() == 0:
        print(f"Accuracy: {100 * float((found.asnumpy() == labels).mean()):.1f}%")


if __name__ == "__main__":
    main()
