"""Data-parallel training of a small network on scikit-learn's handwritten digits, with nothing but NumPy.

    python examples/numpy_digits.py                       # one process
    horovodrun -np 2 python examples/numpy_digits.py      # two, same global batch, same result

The lines marked (hvd) are all that makes it distributed.
"""

import argparse
import itertools
import json
import pathlib
import time

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import horovod.numpy as hvd

Array = NDArray[np.float32]
Parameters = dict[str, Array]


def load_data() -> tuple[Array, NDArray[np.int64], Array, NDArray[np.int64]]:
    """Training and test images (8x8 pixels, 0 to 1) and their digits; the same split on every rank."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = (digits.data[order] / 16).astype(np.float32)
    labels = digits.target[order].astype(np.int64)
    return images[:1437], labels[:1437], images[1437:], labels[1437:]


def make_parameters(sizes: list[int], seed: int) -> Parameters:
    random = np.random.default_rng(seed)
    parameters: Parameters = {}
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        parameters[f"weight.{layer}"] = random.normal(0, (2 / inputs) ** 0.5, (inputs, outputs)).astype(np.float32)
        parameters[f"bias.{layer}"] = np.zeros(outputs, np.float32)
    return parameters


def forward(parameters: Parameters, images: Array) -> list[Array]:
    """The activations of all layers, input first; the last are the scores of the ten digits."""
    layers = len(parameters) // 2
    activations = [images]
    for layer in range(layers):
        values = activations[-1] @ parameters[f"weight.{layer}"] + parameters[f"bias.{layer}"]
        activations.append(np.maximum(values, 0) if layer < layers - 1 else values)
    return activations


def train_step(
    parameters: Parameters, velocity: Parameters, images: Array, labels: NDArray[np.int64], rate: float
) -> float:
    """One step of SGD with momentum; returns the loss on this rank's part of the batch."""
    activations = forward(parameters, images)
    scores = activations[-1] - activations[-1].max(axis=1, keepdims=True)
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float(-np.log(chances[rows, labels] + 1e-9).mean())

    delta = chances
    delta[rows, labels] -= 1
    delta /= len(labels)
    pending = {}
    for layer in reversed(range(len(activations) - 1)):
        weight = parameters[f"weight.{layer}"]
        gradients = {f"weight.{layer}": activations[layer].T @ delta, f"bias.{layer}": delta.sum(axis=0)}
        for name, gradient in gradients.items():  # (hvd) averaged while the layers below are still being computed
            pending[name] = hvd.allreduce_async_(gradient, name=name, op=hvd.Average)
        if layer > 0:
            delta = (delta @ weight.T) * (activations[layer] > 0)
    for name, handle in pending.items():
        gradient = hvd.synchronize(handle)  # (hvd)
        velocity[name] *= 0.9
        velocity[name] -= rate * gradient
        parameters[name] += velocity[name]
    return loss


def accuracy(parameters: Parameters, images: Array, labels: NDArray[np.int64]) -> float:
    return float((forward(parameters, images)[-1].argmax(axis=1) == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=256, help="images per step, over all ranks")
    parser.add_argument("--width", type=int, default=1024, help="units of each hidden layer")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate")
    parser.add_argument("--report", type=pathlib.Path, help="write accuracy and speed to this JSON file")
    options = parser.parse_args()

    hvd.init()  # (hvd)
    images, labels, test_images, test_labels = load_data()
    parameters = make_parameters([64, options.width, options.width, 10], seed=hvd.rank())
    hvd.broadcast_parameters(parameters, root_rank=0)  # (hvd) start from the same weights everywhere
    velocity = {name: np.zeros_like(value) for name, value in parameters.items()}

    share = options.batch // hvd.size()  # (hvd) this rank's part of every batch
    steps_per_epoch = len(images) // options.batch
    train_seconds = 0.0
    for epoch in range(options.epochs):
        order = np.random.default_rng(epoch).permutation(len(images))  # the same on every rank
        begin = time.perf_counter()
        for step in range(steps_per_epoch):
            first = step * options.batch + hvd.rank() * share
            mine = order[first : first + share]
            loss = train_step(parameters, velocity, images[mine], labels[mine], options.rate)
        seconds = time.perf_counter() - begin
        if epoch > 0:  # the first epoch warms up
            train_seconds += seconds
        loss = float(hvd.allreduce(np.array(loss), name="loss", op=hvd.Average))  # (hvd)
        if hvd.rank() == 0:
            speed = steps_per_epoch / seconds
            print(f"epoch {epoch + 1}/{options.epochs}  loss {loss:.4f}  {speed:6.1f} steps/s", flush=True)

    if hvd.rank() == 0:
        result = {
            "ranks": hvd.size(),
            "accuracy": accuracy(parameters, test_images, test_labels),
            "steps_per_second": steps_per_epoch * max(1, options.epochs - 1) / train_seconds if train_seconds else 0.0,
        }
        print(
            f"test accuracy {result['accuracy']:.3f}, {result['steps_per_second']:.1f} steps/s with {hvd.size()} ranks"
        )
        if options.report:
            options.report.write_text(json.dumps(result))
    hvd.shutdown()  # (hvd)


if __name__ == "__main__":
    main()
