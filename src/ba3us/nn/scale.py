"""Scaling by the source, as the first layer of a network: any unit of measurement will do."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_LOW, _HIGH, _APART = 0.01, 30.0, 100.0
_LEAST = 1e-6  # of a column's mean: a smaller deviation is rounding, and is not blown up


class Scale(nn.Module):
    """(x - mean) / deviation, column by column; starts as no change at all."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))

    def fit(self, rows: Tensor) -> Scale:
        """Take both from rows [n, width] of the source."""
        wide = rows.double()
        mean, deviation = wide.mean(dim=0), wide.std(dim=0, unbiased=False)
        least = _LEAST * mean.abs()
        varies = (deviation > least) & (deviation.float() > 0)  # float32 may round the smallest to nothing
        self.mean = mean.float()
        self.deviation = torch.where(varies, deviation, torch.ones_like(deviation)).float()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Scaled rows."""
        return (x - self.mean) / self.deviation


def far_from_unit(rows: Tensor) -> bool:
    """Whether columns are so large, so small or so unlike one another that a network would not learn from them.

    Features of pretrained networks are not: theirs are left as they are.
    """
    sizes = rows.double().square().mean(dim=0).sqrt()
    typical = float(sizes[sizes > 0].median()) if bool((sizes > 0).any()) else 1.0
    overall = float(sizes.square().mean().sqrt())
    return not _LOW <= overall <= _HIGH or float(sizes.max()) > _APART * typical
