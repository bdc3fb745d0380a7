"""Gradient reversal."""

from __future__ import annotations

import torch
from torch import Tensor


def reverse_gradient(x: Tensor, coefficient: float | Tensor) -> Tensor:
    """Identity forward; backward, the gradient is multiplied by ``-coefficient`` (GRL), itself a constant.

    It is x̄ - coefficient·(x - x̄) with x̄ = x held constant: one native operation, no hook into Python.
    """
    return torch.lerp(x.detach(), x, -coefficient)
