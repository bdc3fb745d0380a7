"""Gradient reversal."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, coefficient: float | Tensor) -> Tensor:
        ctx.coefficient = coefficient
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] * -ctx.coefficient, None


def reverse_gradient(x: Tensor, coefficient: float | Tensor) -> Tensor:
    """Identity forward; backward, the gradient is multiplied by ``-coefficient`` (GRL), itself a constant."""
    return _Reversal.apply(x, coefficient)
