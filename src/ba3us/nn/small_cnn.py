"""A small convolutional backbone for small grey images (the demo's)."""

from __future__ import annotations

from torch import nn


class SmallCNN(nn.Sequential):
    """[n, 1, 16, 16] → [n, 256]: two convolutions with max pooling and a hidden layer, no batch norm."""

    def __init__(self, width: int = 16) -> None:
        super().__init__(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(2 * width * 16, 256),
            nn.ReLU(inplace=True),
        )
