"""Predicting a whole domain, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ba3us.data import Target
from ba3us.methods.base import DomainOutputs
from ba3us.training.team import Team

if TYPE_CHECKING:
    from ba3us.training.step import TrainingStep


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
    module: TrainingStep, read: Callable[[slice], Tensor], rows: range, batch_size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Features and logits, one batch of rows after the other; nothing of a batch is kept."""
    device = next(module.parameters()).device
    for start in range(rows.start, rows.stop, batch_size):
        with evaluating(module):
            x = read(slice(start, min(start + batch_size, rows.stop))).to(device)
            features, logits = module.method.predict(module.network, x)
        yield _wide(features), _wide(logits)


def predict_domain(
    module: TrainingStep,
    domain: Target,
    batch_size: int,
    views: bool = False,
    team: Team | None = None,
    features: bool = True,
) -> DomainOutputs:
    """Features and logits for every row; with `views`, logits of each extra view under ``extra["views"]``.

    A `team` shares the rows, and every process is given the outputs for all of them. Without `features`, which
    take more room than all else where rows are many, their place is empty ([n, 0]).
    """
    parameter, team = next(module.parameters()), team or Team()
    mine = range(len(domain))[team.share(len(domain))]

    def run(batch: Callable[[slice], Tensor], features: bool = False) -> list[Tensor]:
        # a process without rows looks at one too, to know how many columns the others send
        made = mine or range(1)
        kept: list[Tensor] = []
        for start, pair in zip(made[::batch_size], predict_batches(module, batch, made, batch_size)):
            if not kept:  # room for all, so that nothing is held twice
                widths = (pair[0].shape[1] if features else 0, pair[1].shape[1])
                kept = [part.new_empty(len(made), width) for part, width in zip(pair, widths)]
            for place, part in zip(kept, pair):
                at = start - made.start
                place[at : at + len(part)] = part[:, : place.shape[1]]
        return [
            team.whole(place[: len(mine)], len(domain)) if place.shape[1] else place.new_empty(len(domain), 0)
            for place in kept
        ]

    with evaluating(module):
        seen_features, logits = run(lambda rows: domain.batch(rows, parameter.dtype), features)
        extra = {}
        if views and domain.views:
            seen = [
                run(lambda rows, v=v: domain.view_batch(v, rows, parameter.dtype))[1]  # type: ignore[misc]
                for v in range(len(domain.views))
            ]
            extra["views"] = torch.stack(seen)
    index = torch.arange(len(domain), device=logits.device)
    return DomainOutputs(seen_features, logits, index, extra=extra)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.element_size() < 4 else x
