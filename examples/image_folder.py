"""Pictures in one folder per class, as ImageNet is usually laid out, for the PyTorch examples; read with Pillow.

folder/n01440764/a.jpeg  folder/n01440764/b.jpeg  folder/n01443537/c.jpeg ...
"""

import math
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

KINDS = {".jpg", ".jpeg", ".png", ".bmp", ".webp"}
MEAN = torch.tensor([0.485, 0.456, 0.406])[:, None, None]  # of ImageNet's colours, and their deviation
DEVIATION = torch.tensor([0.229, 0.224, 0.225])[:, None, None]


class ImageFolder(Dataset[tuple[torch.Tensor, int]]):
    """Classes are numbered in the order of their folders' names, which is the same on every rank."""

    def __init__(self, folder: Path, size: int, training: bool) -> None:
        """`size`: pixels of each side of the squares that are cut out, at random places if `training`."""
        self.classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
        self.pictures = [
            (path, number)
            for number, name in enumerate(self.classes)
            for path in sorted((folder / name).iterdir())
            if path.suffix.lower() in KINDS
        ]
        if not self.pictures:
            raise FileNotFoundError(f"{folder} has no folders with pictures ({', '.join(sorted(KINDS))})")
        self._size = size
        self._training = training

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, number = self.pictures[index]
        with Image.open(path) as picture:
            colours = picture.convert("RGB")
        square = random_square(colours, self._size) if self._training else middle_square(colours, self._size)
        pixels = torch.from_numpy(np.array(square)).permute(2, 0, 1).float().div_(255)
        return (pixels - MEAN) / DEVIATION, number


def random_square(picture: Image.Image, size: int) -> Image.Image:
    """A part of 8 to 100 % of the area, a little wider or higher than square, mirrored every other time."""
    width, height = picture.size
    area = width * height * random.uniform(0.08, 1)
    aspect = math.exp(random.uniform(-math.log(4 / 3), math.log(4 / 3)))
    part_width = max(1, min(width, round(math.sqrt(area * aspect))))
    part_height = max(1, min(height, round(math.sqrt(area / aspect))))
    left, top = random.randint(0, width - part_width), random.randint(0, height - part_height)
    box = (left, top, left + part_width, top + part_height)
    part = picture.resize((size, size), Image.Resampling.BILINEAR, box)
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else part


def middle_square(picture: Image.Image, size: int) -> Image.Image:
    """The middle 7/8 of the shorter side, as large a part as ImageNet is usually tested with (224 of 256 pixels)."""
    width, height = picture.size
    part = min(width, height) * 7 / 8
    box = ((width - part) / 2, (height - part) / 2, (width + part) / 2, (height + part) / 2)
    return picture.resize((size, size), Image.Resampling.BILINEAR, box)
