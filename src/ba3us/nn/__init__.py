"""Networks: backbones, the bottleneck-and-classifier head, discriminators, gradient reversal."""

from ba3us.nn.depth import Frozen
from ba3us.nn.discriminator import Conditional, Discriminator, DiscriminatorBank, Perceptron, Product
from ba3us.nn.network import Head, Network
from ba3us.nn.reversal import reverse_gradient
from ba3us.nn.small_cnn import SMALL
from ba3us.nn.transnorm import TransNorm1d, TransNorm2d, swap_batch_norm

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
