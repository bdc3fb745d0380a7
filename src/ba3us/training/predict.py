"""Predicting a whole domain, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ba3us.data import Target
from ba3us.methods.base import DomainOutputs

if TYPE_CHECKING:
    from ba3us.training.loop import TrainingStep


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode and no gradients; afterwards every submodule has the mode it had."""
    modes = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for m, mode in modes:
            m.training = mode


def predict_domain(module: TrainingStep, domain: Target, batch_size: int, views: bool = False) -> DomainOutputs:
    """Features and logits for every row; with `views`, logits of each extra view under ``extra["views"]``."""
    parameter = next(module.parameters())

    def run(batch: Callable[[slice], Tensor]) -> tuple[Tensor, Tensor]:
        features, logits = [], []
        for start in range(0, len(domain), batch_size):
            x = batch(slice(start, start + batch_size)).to(parameter.device)
            f, z = module.method.predict(module.network, x)
            features.append(f.float() if f.dtype == torch.bfloat16 else f)
            logits.append(z.float() if z.dtype == torch.bfloat16 else z)
        return torch.cat(features), torch.cat(logits)

    with evaluating(module):
        features, logits = run(lambda rows: domain.batch(rows, parameter.dtype))
        extra = {}
        if views and domain.views:
            seen = [
                run(lambda rows, v=v: domain.view_batch(v, rows, parameter.dtype))[1]  # type: ignore[misc]
                for v in range(len(domain.views))
            ]
            extra["views"] = torch.stack(seen)
    index = torch.arange(len(domain), device=logits.device)
    return DomainOutputs(features, logits, index, extra=extra)
