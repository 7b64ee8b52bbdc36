"""Trains a network of Gluon's model zoo on random pictures and prints the speed: a starting point for ImageNet.

horovodrun -np 2 python examples/mxnet_imagenet_resnet50.py --batches 20
"""

from __future__ import annotations

import argparse
import time

import mxnet as mx
from mxnet import autograd, gluon

import horovod.mxnet as hvd


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet50_v1", help="a name in mxnet.gluon.model_zoo.vision")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--lr", type=float, default=0.0125)
    parser.add_argument("--warmup-batches", type=int, default=2)
    parser.add_argument("--num-groups", type=int, default=0, help="reduce gradients in so many groups")
    parser.add_argument("--fp16-allreduce", action="store_true")
    arguments = parser.parse_args()

    hvd.init()
    mx.random.seed(hvd.rank())
    size = arguments.image_size
    data = mx.nd.random.uniform(shape=(arguments.batch_size, 3, size, size))
    labels = mx.nd.random.randint(0, 1000, (arguments.batch_size,)).astype("float32")

    net = gluon.model_zoo.vision.get_model(arguments.model, classes=1000)
    net.initialize(mx.init.MSRAPrelu())
    net.hybridize(static_alloc=True)
    # Parameters whose shapes are not known yet are broadcast in the first forward pass.
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    scheduler = mx.lr_scheduler.CosineScheduler(
        max_update=arguments.batches, base_lr=arguments.lr * hvd.size(), warmup_steps=arguments.warmup_batches
    )
    trainer = hvd.DistributedTrainer(
        net.collect_params(),
        "sgd",
        {"momentum": 0.9, "wd": 1e-4, "lr_scheduler": scheduler},
        compression=hvd.Compression.fp16 if arguments.fp16_allreduce else hvd.Compression.none,
        num_groups=arguments.num_groups,
    )
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    began = time.perf_counter()
    for number in range(arguments.batches):
        with autograd.record():
            loss = loss_of(net(data), labels)
        loss.backward()
        trainer.step(arguments.batch_size)
        if number == 0:
            mx.nd.waitall()
            began = time.perf_counter()
    mx.nd.waitall()
    seconds = time.perf_counter() - began
    pictures = hvd.size() * arguments.batch_size * (arguments.batches - 1)
    mean = hvd.allreduce(loss.mean(), name="loss")
    if hvd.rank() == 0:
        print(f"Loss: {mean.asscalar():.4f}")
        print(f"{pictures / seconds:.1f} images/s on {hvd.size()} ranks")


if __name__ == "__main__":
    main()
