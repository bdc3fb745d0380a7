"""Domain discriminators: gradient reversal, one or many discriminators, and conditional inputs."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ba3us import losses
from ba3us.nn.network import xavier


def reverse_gradient(x: Tensor, coefficient: float | Tensor) -> Tensor:
    """Identity forward; backward, the gradient is multiplied by ``-coefficient`` (GRL), itself a constant.

    It is x̄ - coefficient·(x - x̄) with x̄ = x held constant: one native operation, no hook into Python.
    """
    return torch.lerp(x.detach(), x, -coefficient)


# 0 or 2 for each bit of a byte, as the eight bytes of a word
_COINS = torch.tensor([[2 * (b >> i & 1) for i in range(8)] for b in range(256)], dtype=torch.int8)
_COINS = _COINS.view(torch.int64).flatten()


class Dropout(nn.Dropout):
    """``nn.Dropout`` that takes many decisions from every random 64-bit word on a CPU.

    The discriminator drops two wide layers in every step; drawing one random number per unit costs more
    there than the layers' own arithmetic. The probability is kept to 1/256 where that is exact, else to 2⁻¹⁶.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x with units zeroed at rate p and the rest scaled by 1/(1 - p), in training."""
        if not self.training or self.p == 0 or x.device.type != "cpu":
            return F.dropout(x, self.p, self.training, self.inplace)
        if self.p == 0.5:
            factors = _coins(x.shape, x.dtype)
        else:
            dtype, per_word = (torch.int8, 8) if (256 * self.p).is_integer() else (torch.int16, 4)
            span = 2 ** (64 // per_word)
            words = _random_words(-(-x.numel() // per_word)).view(dtype)[: x.numel()]
            kept = (words >= round(span * self.p) - span // 2).view(x.shape)
            factors = kept.to(x.dtype).mul_(1 / (1 - self.p))
        return x.mul_(factors) if self.inplace else x * factors


def _coins(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """0 or 2 with even chances, one for every random bit."""
    count = shape.numel()
    octets = _random_words(-(-count // 64)).view(torch.uint8)
    return _COINS.index_select(0, octets.int()).view(torch.int8)[:count].to(dtype).view(shape)


def _random_words(count: int) -> Tensor:
    return torch.empty(count, dtype=torch.int64).random_(-(2**63), None)


Product = Literal["auto", "plain", "random"]


class Perceptron(nn.Sequential):
    """in → hidden → hidden → out with ReLU and dropout.

    Units are dropped before the ReLU, which gives the same and lets both work in place.
    """

    def __init__(self, in_features: int, hidden: int, out_features: int, dropout: float) -> None:
        super().__init__(
            nn.Linear(in_features, hidden),
            Dropout(dropout, inplace=True),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, hidden),
            Dropout(dropout, inplace=True),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, out_features),
        )
        self.apply(xavier)


class Discriminator(Perceptron):
    """D: in → hidden → hidden → 1; returns logits [n] (source is positive).

    Logits, not probabilities: binary cross-entropy with logits is the same maths and stays finite where
    the sigmoid saturates.
    """

    def __init__(self, in_features: int, hidden: int = 1024, dropout: float = 0.5) -> None:
        super().__init__(in_features, hidden, 1, dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[n, in] → [n]."""
        return super().forward(x).squeeze(1)


class Conditional(nn.Module):
    """The input of a conditional discriminator: features [n, d], logits [n, C] → [n, out_features].

    ``plain``: vec(p ⊗ f). ``random``: (f R_f ∘ p R_p)/√r with fixed Gaussian R, r = `dims`. ``auto``: random
    above 4096 plain dimensions. p is detached in all of them.
    """

    random_features: Tensor
    random_classes: Tensor

    def __init__(self, features: int, classes: int, product: Product = "plain", dims: int = 1024) -> None:
        super().__init__()
        # the CDAN paper recommends the random projection above 4096 dimensions
        self.random = product == "random" or (product == "auto" and features * classes > 4096)
        self.out_features = dims if self.random else features * classes
        if self.random:
            self.register_buffer("random_features", torch.randn(features, dims))
            self.register_buffer("random_classes", torch.randn(classes, dims))

    def forward(self, features: Tensor, logits: Tensor) -> Tensor:
        """The discriminator's input."""
        p = logits.softmax(dim=1).detach()
        if not self.random:
            return losses.outer_product(features, p)
        mixed = (features @ self.random_features) * (p @ self.random_classes)
        return mixed / math.sqrt(self.out_features)


class DiscriminatorBank(nn.Module):
    """C discriminators side by side, as batched products: [C, n, in] → logits [C, n].

    `hidden` lists the sizes of the hidden layers, each with ReLU and dropout; none gives linear ones.
    """

    def __init__(self, count: int, in_features: int, hidden: tuple[int, ...], dropout: float = 0.5) -> None:
        super().__init__()
        self.dropout = dropout
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for i, o in pairwise((in_features, *hidden, 1)):
            # Xavier-normal for each discriminator on its own
            self.weights.append(torch.randn(count, o, i) * math.sqrt(2 / (i + o)))
            self.biases.append(torch.zeros(count, o))

    def forward(self, x: Tensor) -> Tensor:
        """[C, n, in] → [C, n]."""
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            x = torch.baddbmm(bias[:, None, :], x, weight.mT)
            if layer < last:
                x = F.dropout(F.relu(x), self.dropout, self.training)
        return x.squeeze(2)
