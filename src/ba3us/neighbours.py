"""What a target's own neighbourhoods say of predictions: rows that lie close mostly share a class.

Neighbours are found among vectors that no adaptation has touched: a method can't make its own witnesses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional as F

COUNT = 10  # neighbours of a row
_WIDTH = 0.2  # of the weight exp((cosine - 1) / width)
_PULL, _ROUNDS = (
    0.8,
    20,
)  # of smoothing: how much of a row's belief is its neighbours', and how often it is asked
_CHUNK_VALUES = 1 << 24  # similarities held at a time


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest rows of every row, [n, k], and how much each counts, as a matrix whose rows sum to one."""

    index: np.ndarray
    weights: sparse.csr_matrix

    @classmethod
    def among(cls, rows: Tensor, centre: Tensor, count: int = COUNT) -> Neighbours:
        """By cosine, seen from `centre` (the source's mean); of few rows, a third are neighbours at most."""
        unit = F.normalize(rows.float() - centre.float(), dim=1)
        others = len(unit) - 1
        count = min(count, max(1, others // 3), others)  # if all were, they would agree whatever is predicted
        step, found = max(1, _CHUNK_VALUES // len(unit)), []
        for start in range(0, len(unit), step):
            similar = unit[start : start + step] @ unit.T
            similar.diagonal(start).fill_(-2.0)
            found.append(similar.topk(count, dim=1))
        cosine = torch.cat([part.values for part in found]).double().numpy()
        index = torch.cat([part.indices for part in found]).numpy()
        return cls(index, _normalised(index, np.exp((cosine - 1) / _WIDTH)))

    def agreement(self, predictions: np.ndarray) -> tuple[float, float]:
        """How often neighbours share a predicted class, and how often any two rows do, by chance."""
        shares = np.bincount(predictions) / len(predictions)
        alone = self.index.shape[1] == 0
        agreed = 0.0 if alone else float(np.mean(predictions[self.index] == predictions[:, None]))
        return agreed, float(shares @ shares)

    def kappa(self, predictions: np.ndarray) -> float:
        """How often neighbours share a predicted class, corrected for chance: 1 always, 0 as by chance.

        Where all rows have one class, nothing can be said: 0.
        """
        agreed, chance = self.agreement(predictions)
        if chance > 1 - 1e-9 or self.index.shape[1] == 0:
            return 0.0
        return (agreed - chance) / (1 - chance)

    def beyond_chance(self, predictions: np.ndarray) -> float:
        """How much more often neighbours share a predicted class than any two rows do.

        That is κ times the chance that two rows differ, so that a collapse onto few classes, of which κ thinks
        highly, is worth little, and classes that are strewn about are worth nothing.
        """
        agreed, chance = self.agreement(predictions)
        return agreed - chance

    def smoothed(self, probabilities: np.ndarray) -> np.ndarray:
        """Beliefs [n, C] after rows have heard their neighbours, again and again: F ← 0.8·W F + 0.2·P."""
        heard = probabilities
        for _ in range(_ROUNDS if self.index.shape[1] else 0):
            heard = _PULL * (self.weights @ heard) + (1 - _PULL) * probabilities
        return heard


def _normalised(index: np.ndarray, weights: np.ndarray) -> sparse.csr_matrix:
    """Either of two rows that names the other is heard by both."""
    n, count = index.shape
    places = (np.repeat(np.arange(n), count), index.ravel())
    matrix = sparse.csr_matrix((weights.ravel(), places), shape=(n, n))
    both = matrix.maximum(matrix.T).tocsr()
    total = np.asarray(both.sum(axis=1)).ravel()
    return sparse.diags(1 / np.maximum(total, 1e-300)) @ both
