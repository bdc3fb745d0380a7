"""Dropout whose mask is cheap to draw on a CPU."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Dropout(nn.Dropout):
    """``nn.Dropout``; on a CPU many decisions are cut out of every random 64-bit word.

    The discriminator drops two wide layers in every step; drawing one random number per unit costs more
    there than the layers' own arithmetic. The probability is kept to 1/256 where that is exact, else to 2⁻¹⁶.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x with units zeroed at rate p and the rest scaled by 1/(1 - p), in training."""
        if not self.training or self.p == 0 or x.device.type != "cpu":
            return F.dropout(x, self.p, self.training)
        if self.p == 0.5:
            return x * _coins(x.shape, x.dtype)
        return x * _mask(x.shape, self.p).to(x.dtype).mul_(1 / (1 - self.p))


def _coins(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """0 or 2 with even chances: each random bit decides one unit, eight at a time by looking a byte up."""
    count = shape.numel()
    words = torch.empty(-(-count // 64), dtype=torch.int64).random_(-(2**63), None)
    rows = words.view(torch.uint8)[: -(-count // 8)].to(torch.int32)
    return _bits_of_bytes(dtype).index_select(0, rows).view(-1)[:count].view(shape)


@functools.cache
def _bits_of_bytes(dtype: torch.dtype) -> Tensor:
    """Row b: the bits of b, doubled. [256, 8]."""
    return (torch.arange(256)[:, None] >> torch.arange(8) & 1).to(dtype) * 2


def _mask(shape: torch.Size, p: float) -> Tensor:
    """True where a unit is kept."""
    dtype, per_word = (torch.int8, 8) if (256 * p).is_integer() else (torch.int16, 4)
    words = torch.empty(-(-shape.numel() // per_word), dtype=torch.int64).random_(-(2**63), None)
    span = 2 ** (64 // per_word)
    return (words.view(dtype)[: shape.numel()] >= round(span * p) - span // 2).view(shape)
