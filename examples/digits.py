"""Handwritten digits for the TensorFlow and Keras examples: scikit-learn's small ones, or MNIST's four files."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = tuple[NDArray[np.float32], NDArray[Any]]
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def read_idx(path: Path) -> NDArray[np.uint8]:
    """A file of MNIST: two zero bytes, the type (8: bytes), the number of dimensions, each as 4 bytes, the values."""
    packed = path.with_name(path.name + ".gz")
    content = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def load_digits(folder: Path | None = None) -> tuple[Arrays, Arrays]:
    """Images (one channel, 0 to 1) and their digits, to train and to test with; the same on every rank."""
    if folder is not None:
        images, labels, test_images, test_labels = (read_idx(folder / name) for name in FILES)
        train = (images[..., None] / 255).astype(np.float32), labels.astype(np.int64)
        return train, ((test_images[..., None] / 255).astype(np.float32), test_labels.astype(np.int64))
    from sklearn.datasets import load_digits as load

    digits = load()
    order = np.random.default_rng(0).permutation(len(digits.target))
    pixels = (digits.images[order] / 16).astype(np.float32)[..., None]
    numbers = digits.target[order].astype(np.int64)
    return (pixels[:1437], numbers[:1437]), (pixels[1437:], numbers[1437:])
