"""One BA³US step in the plain form of the released program, for the benchmarks to compare with.

Three passes, everything computed domain by domain from probabilities, plain dropout, SGD that is not fused.
It uses none of the package's losses, so that what is done for their speed does not change what we compare with.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ba3us.nn import Network, reverse_gradient
from ba3us.schedules import ramp


class PlainStep:
    """A network and a method's discriminator, trained step by step."""

    def __init__(self, network: Network, method: nn.Module, groups: list[dict]) -> None:
        self.network, self.discriminator = network, method.discriminator
        for i, layer in enumerate(self.discriminator):
            if isinstance(layer, nn.Dropout):
                self.discriminator[i] = nn.Dropout(layer.p)
        self.optimizer = torch.optim.SGD(
            groups, lr=0.01, momentum=0.9, weight_decay=1e-3, nesterov=True, foreach=False
        )
        self.m = torch.full((network.num_classes,), 1 / network.num_classes)

    def __call__(self, number: int, xs: Tensor, ys: Tensor, xt: Tensor, xm: Tensor, ym: Tensor) -> float:
        """Update `number`, from source, target and borrowed rows."""
        passes = [self.network(x) for x in (xs, xt, xm)]
        features, logits = (torch.cat(parts) for parts in zip(*passes))
        ms, mm = self.m[ys], self.m[ym]
        losses = nn.functional.cross_entropy(passes[0][1], ys, reduction="none")
        loss = (ms * losses).sum() / (1e-8 + ms.sum())
        loss = loss + self.alignment(features, logits, ms, mm, ramp(number, 2000))
        loss = loss + 0.1 * _entropy(passes[1][1].softmax(dim=1)).mean()
        loss = loss + 5 * _uncertainty(passes[0][1], ys, ms)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def alignment(self, features: Tensor, logits: Tensor, ms: Tensor, mm: Tensor, reversal: float) -> Tensor:
        """The weighted mean of binary cross-entropies over source, target and borrowed rows."""
        s, t, k = len(ms), len(features) - len(ms) - len(mm), len(mm)
        domain = torch.sigmoid(self.discriminator(reverse_gradient(features, reversal)))
        truth = torch.cat([torch.ones(s), torch.zeros(t + k)])
        w = 1 + torch.exp(-reverse_gradient(_entropy(logits.softmax(dim=1)), reversal))
        lent = torch.cat([w[:s] * ms, w[s + t :] * mm])
        lent = (1 + k / s) * lent / lent.sum().detach()
        target = w[s : s + t] / w[s : s + t].sum().detach()
        a = torch.cat([lent[:s], target, lent[s:]])
        losses = nn.functional.binary_cross_entropy(domain, truth, reduction="none")
        return (a * losses).sum() / (1e-8 + a.sum().detach())


def _entropy(p: Tensor) -> Tensor:
    return -(p * torch.log(p + 1e-7)).sum(dim=1)


def _uncertainty(logits: Tensor, labels: Tensor, m: Tensor) -> Tensor:
    p = logits.softmax(dim=1)
    right = p.gather(1, labels[:, None])
    wrong = 1 - right + 1e-7
    ratio = p / wrong
    others = torch.ones_like(p).scatter(1, labels[:, None], 0.0)
    flatness = (ratio * torch.log(ratio + 1e-10) * others).sum(dim=1) / math.log(p.shape[1] - 1)
    confidence = wrong.squeeze(1).detach()
    v = m * confidence / confidence.sum()
    return (v * flatness).sum() / v.sum()
