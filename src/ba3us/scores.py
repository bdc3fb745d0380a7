"""Label-free scores of predictions, and how far predictions follow the target's neighbourhoods.

Pure functions without a target label anywhere. Neighbours are found among vectors that no adaptation has
changed, so that a method can't produce its own evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional as F

from ba3us import losses

_MAX_SIMILARITIES = 1 << 24  # held at a time
_MAX_PREDICTIONS = 1 << 18  # worked on at a time


def mean_entropy(logits: Tensor) -> float:
    """Mean entropy of the predictions; the paper's selection score, lower is more confident."""
    return float(_mean(losses.entropy, logits))


def mean_probabilities(logits: Tensor) -> Tensor:
    """Mean prediction over all samples, [n, C] → [C]; sums to one. BA³US's class weights m."""
    p = _mean(lambda part: part.softmax(dim=1), logits)
    return p / p.sum()


def effective_classes(weights: Tensor | np.ndarray) -> float:
    """How many classes weights or counts [C] spread over: exp of their entropy (1 … C); 0 if all are 0."""
    weights = torch.as_tensor(weights).double()
    if not weights.any():
        return 0.0
    p = weights / weights.sum()
    return float(torch.exp(-torch.special.xlogy(p, p).sum()))


def otsu_threshold(values: Tensor) -> float:
    """Otsu's threshold: it splits the values into the two groups with the largest between-group variance.

    Values above it form one group. If all values are the same there is one group: -inf.
    """
    ordered = values.double().sort().values
    if ordered[0] == ordered[-1]:
        return -math.inf
    n, total = len(ordered), ordered.cumsum(dim=0)
    low = torch.arange(1, n, device=ordered.device)
    gap = total[:-1] / low - (total[-1] - total[:-1]) / (n - low)
    return float(ordered[int((low * (n - low) * gap**2).argmax())])


def entropy_score(logits: Tensor) -> float:
    """Minus the exact mean entropy; larger is more confident."""
    return -float(_mean(_exact_entropy, logits))


def diversity(logits: Tensor) -> float:
    """Entropy of the mean prediction; larger means that more classes are predicted."""
    p = mean_probabilities(logits)
    return -float(torch.special.xlogy(p, p).sum())


def information_maximisation(logits: Tensor) -> float:
    """Diversity minus mean entropy (IM): confident predictions of many classes; larger is better."""
    return diversity(logits) + entropy_score(logits)


def nuclear_norm(logits: Tensor) -> float:
    """Nuclear norm of the matrix of predictions over their number (BNM); larger is better."""
    if len(logits) <= _MAX_PREDICTIONS:
        return float(torch.linalg.svdvals(logits.softmax(dim=1)).sum()) / len(logits)
    products = []
    for part in logits.split(_MAX_PREDICTIONS):
        p = part.softmax(dim=1).double()
        products.append(p.T @ p)
    squares = torch.linalg.eigvalsh(torch.stack(products).sum(dim=0))  # of the singular values
    return float(squares.clamp(min=0).sqrt().sum()) / len(logits)


def neighbourhood_density(rows: Tensor, temperature: float = 0.05) -> float:
    """Soft neighbourhood density (SND): mean entropy of similarities to the other rows; larger is denser.

    `rows` [n, d] are predictions, as published, or features; `temperature` divides the cosine similarities.
    """
    unit = F.normalize(rows, dim=1)
    step, total = max(1, _MAX_SIMILARITIES // len(unit)), 0.0
    for start in range(0, len(unit), step):
        similar = unit[start : start + step] @ unit.T / temperature
        similar.diagonal(start).fill_(-math.inf)
        p = similar.softmax(dim=1).nan_to_num(0.0)  # a row without any other has no neighbours
        total -= float(torch.special.xlogy(p, p).sum())
    return total / len(unit)


def _mean(function: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    """The mean of a function over all rows, in parts where copies of all rows would take much memory."""
    if len(logits) <= _MAX_PREDICTIONS:
        return function(logits).mean(dim=0)
    parts = [function(part).sum(dim=0, dtype=torch.float64) for part in logits.split(_MAX_PREDICTIONS)]
    return (torch.stack(parts).sum(dim=0) / len(logits)).to(logits.dtype)


def _exact_entropy(logits: Tensor) -> Tensor:
    p = logits.softmax(dim=1)
    return -torch.special.xlogy(p, p).sum(dim=1)


# --- neighbourhoods of the target ------------------------------------------------------------------------

COUNT = 10  # neighbours of a row
_WIDTH = 0.2  # of the weight exp((cosine - 1) / width)
_SMOOTHING, _ROUNDS = 0.8, 20  # weight of the neighbours' probabilities in each round of smoothing


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest neighbours of every sample, `index` [n, k], and their weights, whose rows sum to one."""

    index: np.ndarray
    weights: sparse.csr_matrix

    @classmethod
    def among(cls, rows: Tensor, centre: Tensor, count: int = COUNT) -> Neighbours:
        """By cosine similarity around `centre` (the source's mean); at most a third of few rows."""
        unit = F.normalize(rows.float() - centre.float(), dim=1)
        others = len(unit) - 1
        count = min(count, max(1, others // 3), others)  # else κ would be the same whatever is predicted
        step, parts = max(1, _MAX_SIMILARITIES // len(unit)), []
        for start in range(0, len(unit), step):
            similar = unit[start : start + step] @ unit.T
            similar.diagonal(start).fill_(-2.0)
            parts.append(similar.topk(count, dim=1))
        cosine = torch.cat([part.values for part in parts]).double().numpy()
        index = torch.cat([part.indices for part in parts]).numpy()
        places = (np.repeat(np.arange(len(index)), count), index.ravel())
        matrix = sparse.csr_matrix((np.exp((cosine - 1) / _WIDTH).ravel(), places), shape=(len(index),) * 2)
        both = matrix.maximum(matrix.T).tocsr()  # either neighbour of a pair counts for both
        total = np.asarray(both.sum(axis=1)).ravel()
        return cls(index, sparse.diags(1 / np.maximum(total, 1e-300)) @ both)

    def agreement(self, predictions: np.ndarray) -> tuple[float, float]:
        """How often neighbours have the same predicted class, and how often any two samples have, by chance."""
        proportions = np.bincount(predictions) / len(predictions)
        alone = self.index.shape[1] == 0
        agreed = 0.0 if alone else float(np.mean(predictions[self.index] == predictions[:, None]))
        return agreed, float(proportions @ proportions)

    def kappa(self, predictions: np.ndarray) -> float:
        """Agreement of neighbours, corrected for chance: 1 always, 0 as often as by chance.

        Predictions of a single class are no evidence: 0.
        """
        agreed, chance = self.agreement(predictions)
        if chance > 1 - 1e-9 or self.index.shape[1] == 0:
            return 0.0
        return (agreed - chance) / (1 - chance)

    def beyond_chance(self, predictions: np.ndarray) -> float:
        """How much more often neighbours agree than any two samples do.

        That is κ times the chance that two samples differ. So a collapse onto few classes, where κ is high,
        is worth little, and classes that are scattered are worth nothing.
        """
        agreed, chance = self.agreement(predictions)
        return agreed - chance

    def smoothed(self, probabilities: np.ndarray) -> np.ndarray:
        """Probabilities [n, C] averaged with those of the neighbours, 20 times: F ← 0.8·W F + 0.2·P."""
        smooth = probabilities
        for _ in range(_ROUNDS if self.index.shape[1] else 0):
            smooth = _SMOOTHING * (self.weights @ smooth) + (1 - _SMOOTHING) * probabilities
        return smooth
