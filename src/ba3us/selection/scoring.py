"""Accuracy, worked out after training by whoever holds target labels. Training never imports this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from ba3us.errors import require
from ba3us.training import Evaluation

LAST, ORACLE = "last", "oracle"


class Kept(Protocol):
    """What a training, or a run, has kept: its evaluations, one of them selected."""

    evaluations: list[Evaluation]
    selected: int


def accuracies(evaluations: Sequence[Evaluation], labels: Any) -> pd.DataFrame:
    """Accuracy (0 … 1) of every kept evaluation: columns phase, step, score, candidate, accuracy."""
    y = np.asarray(labels)
    for evaluation in evaluations:
        require(
            y.shape == evaluation.predictions.shape,
            f"{len(evaluation.predictions)} predictions but labels of shape {y.shape}: give one label each.",
        )
    return pd.DataFrame(
        [
            {
                "phase": e.phase,
                "step": e.step,
                "score": e.score,
                "candidate": e.candidate,
                "accuracy": float(np.mean(e.predictions == y)),
            }
            for e in evaluations
        ]
    )


def updates_before(looks: pd.DataFrame) -> pd.Series:
    """Updates before each evaluation, over all phases; `looks` has the columns phase and step."""
    ends = looks.groupby("phase", sort=False)["step"].max()
    return looks["step"] + looks["phase"].map(ends.cumsum() - ends)


def selected_accuracy(result: Kept, labels: Any) -> float:
    """Accuracy at the evaluation that the run's rule chose, without labels."""
    return float(accuracies(result.evaluations, labels)["accuracy"].iloc[result.selected])


@dataclass(frozen=True)
class Score:
    """Of one evaluation.

    `accuracy` is a share of rows; `absent` the share given to classes that the target does not hold; `lost` how
    many present classes are recognised in less than a tenth of their rows.
    """

    accuracy: float
    absent: float
    lost: int


def scored(
    predictions: np.ndarray, candidates: np.ndarray, selected: dict[str, int], labels: np.ndarray
) -> dict[str, Score]:
    """By rule: those that chose without labels, the ``last`` candidate, and the best one (``oracle``).

    `predictions` are of all evaluations, [evaluations, rows]; where none is a candidate, the last one is.
    """
    rows = np.flatnonzero(candidates) if np.any(candidates) else np.array([len(predictions) - 1])
    hits = (predictions == labels).mean(axis=1)
    chosen = {LAST: int(rows[-1]), **selected, ORACLE: int(rows[hits[rows].argmax()])}
    return {rule: _score(predictions[row], labels) for rule, row in chosen.items()}


def summary(result: Kept, labels: Any) -> dict[str, Score]:
    """Of the ``last``, the ``selected`` and, knowing the labels, the best candidate (``oracle``) of a run."""
    predictions = np.stack([e.predictions for e in result.evaluations])
    candidates = np.array([e.candidate for e in result.evaluations])
    return scored(predictions, candidates, {"selected": result.selected}, np.asarray(labels))


def _score(predictions: np.ndarray, labels: np.ndarray) -> Score:
    present = np.unique(labels)
    recall = np.array([np.mean(predictions[labels == c] == c) for c in present])
    absent = float(np.mean(~np.isin(predictions, present)))
    return Score(float(np.mean(predictions == labels)), absent, int(np.sum(recall < 0.1)))
