"""Module: trains a small network on pictures of digits. horovodrun -np 2 python examples/mxnet_module_mnist.py"""

from __future__ import annotations

import argparse
from typing import Any

import mxnet as mx
from mxnet_digits import digits

import horovod.mxnet as hvd


def network() -> Any:
    data = mx.sym.Variable("data")
    layer = mx.sym.Activation(mx.sym.Convolution(data, kernel=(3, 3), num_filter=8), act_type="relu")
    layer = mx.sym.Pooling(layer, kernel=(2, 2), stride=(2, 2), pool_type="max")
    layer = mx.sym.Activation(mx.sym.FullyConnected(layer, num_hidden=32), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(layer, num_hidden=10), name="softmax")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    arguments = parser.parse_args()

    hvd.init()
    inputs, labels = digits(2000, seed=1)
    own = slice(hvd.rank(), None, hvd.size())
    train = mx.io.NDArrayIter(inputs[own], labels[own], arguments.batch_size, shuffle=True)

    module = mx.mod.Module(network())
    module.bind(train.provide_data, train.provide_label)
    module.init_params(mx.init.Xavier())
    args, auxs = module.get_params()
    hvd.broadcast_parameters(args, root_rank=0)
    hvd.broadcast_parameters(auxs, root_rank=0)
    module.set_params(args, auxs)
    plain = mx.optimizer.SGD(
        learning_rate=arguments.lr * hvd.size(), momentum=0.9, rescale_grad=1 / arguments.batch_size
    )
    module.fit(train, optimizer=hvd.DistributedOptimizer(plain), kvstore=None, num_epoch=arguments.epochs)

    inputs, labels = digits(512, seed=2)
    score = dict(module.score(mx.io.NDArrayIter(inputs, labels, arguments.batch_size), "acc"))
    if hvd.rank() == 0:
        print(f"Accuracy: {100 * score['accuracy']:.1f}%")


if __name__ == "__main__":
    main()
