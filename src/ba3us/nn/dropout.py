"""Dropout whose mask is cheap to draw on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# 0 or 2 for each bit of a byte, as the eight bytes of a word
_COINS = torch.tensor([[2 * (b >> i & 1) for i in range(8)] for b in range(256)], dtype=torch.int8)
_COINS = _COINS.view(torch.int64).flatten()


class Dropout(nn.Dropout):
    """``nn.Dropout``; on a CPU many decisions are cut out of every random 64-bit word.

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
            factors = _mask(x.shape, self.p).to(x.dtype).mul_(1 / (1 - self.p))
        return x.mul_(factors) if self.inplace else x * factors


def _coins(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """0 or 2 with even chances, one for every random bit."""
    count = shape.numel()
    octets = _random_words(-(-count // 64)).view(torch.uint8)
    return _COINS.index_select(0, octets.int()).view(torch.int8)[:count].to(dtype).view(shape)


def _mask(shape: torch.Size, p: float) -> Tensor:
    """True where a unit is kept."""
    dtype, per_word = (torch.int8, 8) if (256 * p).is_integer() else (torch.int16, 4)
    words = _random_words(-(-shape.numel() // per_word))
    span = 2 ** (64 // per_word)
    return (words.view(dtype)[: shape.numel()] >= round(span * p) - span // 2).view(shape)


def _random_words(count: int) -> Tensor:
    return torch.empty(count, dtype=torch.int64).random_(-(2**63), None)
