"""Predictions that fall onto few classes: noticed from what a run says of the target, without its labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ba3us import scores
from ba3us.training.hooks import Symptom
from ba3us.training.result import Evaluation

ON_COLLAPSE = ("continue", "stop")
_FEW = 2.0  # effective classes, below which predictions have collapsed, or the target holds one or two classes
_LEFT = 0.4  # of the largest number of effective classes that was seen
_LOOKS = 2  # in a row: a collapse that passes is none


def collapsed(evaluations: Sequence[Evaluation]) -> Symptom | None:
    """Whether the last looks at the target, of phases that adapt, have all but few classes lost."""
    looks = [each for each in evaluations if each.candidate]
    if len(looks) < _LOOKS:
        return None
    spread, classes = [_effective(each) for each in looks], len(looks[0].mean_probabilities)
    least = max(min(_FEW, classes / 2), _LEFT * max(spread))
    if max(spread[-_LOOKS:]) >= least:
        return None
    return Symptom(
        "predictions collapse",
        f"At update {looks[-1].step} predictions had fallen onto {spread[-1]:.1f} effective classes of "
        f"{classes} ({max(spread):.1f} at the most): unless the target holds so few, they have collapsed.",
    )


def _effective(evaluation: Evaluation) -> float:
    return scores.effective_classes(torch.from_numpy(np.bincount(evaluation.predictions)))
