"""Accuracy of kept predictions, worked out after training by whoever holds the target's labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LAST, ORACLE = "last", "oracle"


@dataclass(frozen=True)
class Score:
    """Of the evaluation a rule chose.

    `accuracy` is a share of rows; `absent` the share given to classes that the target does not hold; `lost` how
    many present classes are recognised in less than a tenth of their rows.
    """

    accuracy: float
    absent: float
    lost: int


def scored(
    predictions: np.ndarray, candidates: np.ndarray, selected: dict[str, int], labels: np.ndarray
) -> dict[str, Score]:
    """By rule: those that chose without labels, the ``last`` candidate, and the best one (``oracle``)."""
    rows = np.flatnonzero(candidates)
    hits = (predictions == labels).mean(axis=1)
    chosen = {LAST: int(rows[-1]), **selected, ORACLE: int(rows[hits[rows].argmax()])}
    return {rule: _score(predictions[row], labels) for rule, row in chosen.items()}


def _score(predictions: np.ndarray, labels: np.ndarray) -> Score:
    present = np.unique(labels)
    recall = np.array([np.mean(predictions[labels == c] == c) for c in present])
    absent = float(np.mean(~np.isin(predictions, present)))
    return Score(float(np.mean(predictions == labels)), absent, int(np.sum(recall < 0.1)))
