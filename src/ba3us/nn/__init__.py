"""Networks: backbones, the bottleneck-and-classifier head, discriminators, gradient reversal."""

from ba3us.nn.backbones import SMALL, Frozen
from ba3us.nn.discriminator import (
    Conditional,
    Discriminator,
    DiscriminatorBank,
    Perceptron,
    Product,
    reverse_gradient,
)
from ba3us.nn.network import Head, Network
from ba3us.nn.norms import TransNorm1d, TransNorm2d, swap_batch_norm

__all__ = [
    "SMALL",
    "Conditional",
    "Discriminator",
    "DiscriminatorBank",
    "Frozen",
    "Head",
    "Network",
    "Perceptron",
    "Product",
    "TransNorm1d",
    "TransNorm2d",
    "reverse_gradient",
    "swap_batch_norm",
]
