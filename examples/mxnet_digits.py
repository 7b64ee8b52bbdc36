"""Pictures of digits as on a pocket calculator, at random places and with noise: data for the examples of MXNet."""

from __future__ import annotations

from typing import Any

import numpy as np

# Rows of 5 x 3 pixels for each digit.
_SHAPES = [
    "111101101101111",
    "010110010010111",
    "111001111100111",
    "111001111001111",
    "101101111001001",
    "111100111001111",
    "111100111101111",
    "111001001001001",
    "111101111101111",
    "111101111001111",
]


def digits(count: int, seed: int) -> tuple[Any, Any]:
    """Return pictures of shape (count, 1, 12, 12) and their labels."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 10, count)
    pictures = generator.normal(0, 0.2, (count, 1, 12, 12)).astype(np.float32)
    for picture, label in zip(pictures, labels, strict=True):
        shape = np.array([int(pixel) for pixel in _SHAPES[label]], np.float32).reshape(5, 3).repeat(2, 0).repeat(2, 1)
        top, left = generator.integers(0, 3), generator.integers(0, 7)
        picture[0, top : top + 10, left : left + 6] += shape
    return pictures, labels.astype(np.float32)
