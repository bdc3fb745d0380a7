"""Accuracy, worked out after training by whoever holds target labels. Training never imports this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd

from ba3us.errors import require
from ba3us.training import Evaluation


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


def selected_accuracy(result: Kept, labels: Any) -> float:
    """Accuracy at the evaluation that the run's rule chose, without labels."""
    return float(accuracies(result.evaluations, labels)["accuracy"].iloc[result.selected])


def summary(result: Kept, labels: Any) -> dict[str, float]:
    """Accuracy of the last, the selected and, knowing the labels, the best candidate (``oracle``)."""
    table = accuracies(result.evaluations, labels)
    candidates = (table[table["candidate"]] if table["candidate"].any() else table.tail(1))["accuracy"]
    return {
        "last": float(candidates.iloc[-1]),
        "min-entropy": selected_accuracy(result, labels),
        "oracle": float(candidates.max()),
    }


def confusion(result: Kept, labels: Any) -> dict[str, float]:
    """What the selected predictions mistake: why a run is bad.

    ``absent`` is the share of rows that are given to classes the target does not hold; ``lost`` is how many
    of the present classes are recognised in less than a tenth of their rows.
    """
    y, predictions = np.asarray(labels), result.evaluations[result.selected].predictions
    present = np.unique(y)
    recall = [np.mean(predictions[y == c] == c) for c in present]
    return {
        "absent": float(np.mean(~np.isin(predictions, present))),
        "lost": float(np.sum(np.array(recall) < 0.1)),
    }
