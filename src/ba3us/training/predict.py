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


def predict_batches(
    module: TrainingStep, read: Callable[[slice], Tensor], rows: int, batch_size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Features and logits, one batch of rows after the other; nothing of a batch is kept."""
    device = next(module.parameters()).device
    for start in range(0, rows, batch_size):
        with evaluating(module):
            x = read(slice(start, start + batch_size)).to(device)
            features, logits = module.method.predict(module.network, x)
        yield _wide(features), _wide(logits)


def predict_domain(module: TrainingStep, domain: Target, batch_size: int, views: bool = False) -> DomainOutputs:
    """Features and logits for every row; with `views`, logits of each extra view under ``extra["views"]``."""
    parameter = next(module.parameters())

    def run(batch: Callable[[slice], Tensor]) -> tuple[Tensor, Tensor]:
        features, logits = zip(*predict_batches(module, batch, len(domain), batch_size))
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


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype == torch.bfloat16 else x
