"""Helpers of the parity tests: comparing, and bringing stored weights into our modules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ba3us.methods.base import DomainOutputs
from ba3us.nn import Discriminator, Network

LAYERS = ("W1", "b1", "W2", "b2", "W3", "b3")


def close(actual: Any, expected: Any, rtol: float = 1e-7, atol: float = 1e-8, what: str = "") -> None:
    """max|a-b| <= atol + rtol·max|b|, the measure of the golden README."""
    a = np.asarray(actual.detach() if isinstance(actual, Tensor) else actual, dtype=np.float64)
    b = np.asarray(expected, dtype=np.float64)
    assert a.shape == b.shape, f"{what}: shape {a.shape}, expected {b.shape}"
    error, scale = (float(np.max(np.abs(v), initial=0.0)) for v in (a - b, b))
    assert error <= atol + rtol * scale, f"{what}: off by {error:.3g} at scale {scale:.3g}"


def tensor(array: np.ndarray, dtype: torch.dtype = torch.float64, grad: bool = False) -> Tensor:
    """A leaf tensor; integers stay integers."""
    made = torch.tensor(array)
    return made.to(dtype).requires_grad_(grad) if made.is_floating_point() else made


def linears(module: nn.Module) -> list[nn.Linear]:
    return [m for m in module.modules() if isinstance(m, nn.Linear)]


def named_parameters(modules: Iterable[nn.Linear]) -> list[nn.Parameter]:
    return [p for m in modules for p in (m.weight, m.bias)]


def set_weights(parameters: Iterable[Tensor], arrays: Iterable[np.ndarray]) -> None:
    """Copy arrays into parameters, which must have their shapes."""
    for parameter, array in zip(parameters, arrays, strict=True):
        assert tuple(parameter.shape) == array.shape
        with torch.no_grad():
            parameter.copy_(torch.as_tensor(array))


def stored_discriminator(file: dict[str, np.ndarray], prefix: str = "") -> Discriminator:
    """A discriminator without dropout that holds the stored weights, in float64."""
    hidden, width = file[f"{prefix}W1"].shape
    module = Discriminator(width, hidden, dropout=0.0).double()
    set_weights(module.parameters(), [file[prefix + name] for name in LAYERS])
    return module


def feature_network(width: int, bottleneck: int | None, classes: int) -> Network:
    from ba3us.nn import Head

    return Network(nn.Identity(), width, classes, Head(bottleneck=bottleneck)).double()


def rows(features: Tensor, logits: Tensor, part: slice, labels: np.ndarray | None = None) -> DomainOutputs:
    """A slice of joint leaves as one domain's outputs."""
    f, z = features[part], logits[part]
    y = None if labels is None else torch.as_tensor(labels)
    return DomainOutputs(f, z, torch.arange(len(f)), y)
