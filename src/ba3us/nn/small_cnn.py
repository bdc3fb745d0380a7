"""A small convolutional network for small pictures in arrays (the demo's digits)."""

from __future__ import annotations

from torch import nn

from ba3us.errors import require

_WIDTH, _FEATURES = 16, 256


def small_cnn(shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """[n, c, h, w] → [n, 256]: two convolutions with max pooling and a hidden layer, no batch norm.

    Returns the network, to be trained from scratch, and the length of its features.
    """
    require(
        len(shape) == 3 and min(shape[1:]) >= 4,
        f"A sample has shape {shape}, but the network small-cnn takes pictures [channels, height, width] of at "
        f"least 4×4: reshape the arrays.",
    )
    channels, height, width = shape
    layers = nn.Sequential(
        nn.Conv2d(channels, _WIDTH, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(_WIDTH, 2 * _WIDTH, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * _WIDTH * (height // 4) * (width // 4), _FEATURES),
        nn.ReLU(inplace=True),
    )
    return layers, _FEATURES


SMALL = {"small-cnn": small_cnn}  # networks for arrays, by name
