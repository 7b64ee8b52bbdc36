"""Residual networks (He et al. 2015) for the PyTorch examples: resnet18 to resnet152, without torchvision.

The stride of a bottleneck sits in its 3 x 3 convolution, and the last normalisation of every block starts at zero,
which makes large batches easier to train.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn


def convolve(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """A convolution and its normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class Block(nn.Module):
    """Layers whose result is added to their input."""

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        outputs = width * 4 if bottleneck else width
        relu = nn.ReLU(inplace=True)
        if bottleneck:
            layers = [convolve(inputs, width, 1), relu, convolve(width, width, 3, stride), relu]
            layers += [convolve(width, outputs, 1)]
        else:
            layers = [convolve(inputs, width, 3, stride), relu, convolve(width, width, 3)]
        self.layers = nn.Sequential(*layers)
        self.shortcut = convolve(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else nn.Identity()
        self.relu = relu
        nn.init.zeros_(self.layers[-1][-1].weight)  # type: ignore[index]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.relu(self.layers(inputs) + self.shortcut(inputs))
        return outputs


class ResNet(nn.Module):
    def __init__(self, blocks: list[int], bottleneck: bool, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [convolve(3, 64, 7, stride=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
        inputs = 64
        for stage, count in enumerate(blocks):
            width = 64 << stage
            for block in range(count):
                layers.append(Block(inputs, width, 2 if stage > 0 and block == 0 else 1, bottleneck))
                inputs = width * 4 if bottleneck else width
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classes = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.classes(self.features(images))
        return scores


# Each is called with the number of classes.
MODELS: dict[str, Callable[[int], ResNet]] = {
    "resnet18": partial(ResNet, [2, 2, 2, 2], False),
    "resnet34": partial(ResNet, [3, 4, 6, 3], False),
    "resnet50": partial(ResNet, [3, 4, 6, 3], True),
    "resnet101": partial(ResNet, [3, 4, 23, 3], True),
    "resnet152": partial(ResNet, [3, 8, 36, 3], True),
}
