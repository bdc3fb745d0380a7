"""Networks: backbones, the bottleneck-and-classifier head, discriminators, gradient reversal."""

from ba3us.nn.discriminator import Discriminator
from ba3us.nn.network import Head, Network
from ba3us.nn.reversal import reverse_gradient
from ba3us.nn.small_cnn import SmallCNN

__all__ = ["Discriminator", "Head", "Network", "SmallCNN", "reverse_gradient"]
