"""Label-free scores of features and predictions: pure functions, no target label anywhere."""

from __future__ import annotations

import torch
from torch import Tensor

from ba3us import losses


def mean_entropy(logits: Tensor) -> float:
    """Mean entropy of the predictions; the paper's selection score, lower is surer."""
    return float(losses.entropy(logits).mean())


def mean_probabilities(logits: Tensor) -> Tensor:
    """Mean prediction over all rows, [n, C] → [C]; sums to one. BA³US's class weights m."""
    p = logits.softmax(dim=1).mean(dim=0)
    return p / p.sum()


def effective_classes(weights: Tensor) -> float:
    """How many classes a weight vector spreads over: exp of its entropy (1 … C)."""
    p = weights.double() / weights.double().sum()
    return float(torch.exp(-torch.special.xlogy(p, p).sum()))
