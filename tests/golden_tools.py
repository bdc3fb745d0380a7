"""Helpers of the parity tests: comparing, and bringing stored weights into our modules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ba3us import methods
from ba3us.methods.base import DomainOutputs, Method, Outputs
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


def joint_leaves(
    file: dict[str, np.ndarray], dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Outputs]:
    """Stored features and logits [source; target] as leaves, and as outputs without borrowed rows."""
    b = int(file["B"])
    features, logits = (tensor(file[name], dtype, grad=True) for name in ("features", "logits"))
    labels = file["labels_source"]
    parts = (slice(0, b), labels), (slice(b, None), None), (slice(0, 0), labels[:0])
    return features, logits, Outputs(*(rows(features, logits, part, y) for part, y in parts))


def bare_method(
    name: str, width: int, classes: int, dtype: torch.dtype = torch.float64, **options: Any
) -> Method:
    """A registered method on features as they are, without dropout."""
    entry = methods.get(name)
    if hasattr(entry.options(), "discriminator_dropout"):
        options = {"discriminator_dropout": 0.0, **options}
    options = {"keep_classifier": False, "bottleneck_norm": False, **options, "bottleneck": None}
    return entry.create(feature_network(width, None, classes), entry.options(**options)).to(dtype)


def check_gradients(
    file: dict[str, np.ndarray], prefix: str, leaves: dict[str, Tensor], rtol: float = 1e-7
) -> None:
    """Compare the gradients that arrived in named leaves (none: zero) with the stored ``prefix + name``."""
    for name, leaf in leaves.items():
        grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        close(grad, file[prefix + name], rtol, what=prefix + name)


def check_discriminator(
    file: dict[str, np.ndarray], prefix: str, module: nn.Module, rtol: float = 1e-7
) -> None:
    """Compare the gradients of a discriminator's layers with the stored ``prefix + W1`` … ``b3``."""
    check_gradients(file, prefix, dict(zip(LAYERS, module.parameters(), strict=True)), rtol)
