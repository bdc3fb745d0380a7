"""The ensemble of candidates: their weighted average, and the predictions that are chosen without labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import softmax

from ba3us.assess.verdict import SOURCE_ONLY, Agreement, rejection_reason
from ba3us.auto.candidates import ROBUST, CandidateResult
from ba3us.scores import Neighbours

WEIGHTED_AVERAGE, TOP = "weighted average", "best three"
_ROBUST_METHODS = {candidate.method for candidate in ROBUST}


class Combination(NamedTuple):
    """Class probabilities for the target samples, by a candidate or several, and their agreement."""

    name: str
    agreement: Agreement
    probabilities: np.ndarray


def half_weighted_average(probabilities: Sequence[np.ndarray]) -> np.ndarray:
    """Geometric mean of class probabilities, [n, C] each, with half of the weight on the first."""
    first, *others = (np.log(each + 1e-6) for each in probabilities)
    return softmax((first + np.mean(others, axis=0)) / 2 if others else first, axis=1)


class Ensemble:
    """Candidates as they are added, and the best combination of them, by κ among the target's neighbours.

    Robust candidates are averaged with source-only. If candidates that minimise entropy were added as well (a
    mild shift), the mean of the three candidates with the largest κ is used where its κ is larger.

    Attributes
    ----------
    source_only : Agreement
        Of source-only's predictions.
    best : Combination
        The chosen one.
    alternatives : list of arrays
        Other plausible predictions: smoothed, of source-only and of each robust method that was not rejected.
    """

    def __init__(self, neighbours: Neighbours, source_only: np.ndarray) -> None:
        self.neighbours = neighbours
        self.best = self._combination(SOURCE_ONLY, source_only)
        self.source_only = self.best.agreement
        self.alternatives = [neighbours.smoothed(source_only).argmax(axis=1)]
        self._averaged = [source_only]
        self._accepted: list[Combination] = []
        self._sharpened = False
        self._rows = [_row(SOURCE_ONLY, self.source_only)]

    def add(self, result: CandidateResult) -> None:
        """Add a candidate and choose anew."""
        candidate, probabilities, failure = result
        if probabilities is None:
            self._rows.append(_row(candidate.name, None, failure))
            return
        combination = self._combination(candidate.name, probabilities)
        rejected_because = rejection_reason(combination.agreement, self.source_only)
        self._rows.append(_row(candidate.name, combination.agreement, rejected_because))
        robust = candidate.method in _ROBUST_METHODS
        self._sharpened |= not robust
        if not rejected_because:
            self._accepted.append(combination)
            if robust:
                self._averaged.append(probabilities)
                if candidate.seed == 0:
                    self.alternatives.append(self.neighbours.smoothed(probabilities).argmax(axis=1))
        self.best = max(self._combinations(), key=lambda each: each.agreement.kappa)

    def labels(self) -> np.ndarray:
        """The chosen classes, smoothed over neighbours."""
        return self.neighbours.smoothed(self.best.probabilities).argmax(axis=1)

    def leaderboard(self) -> pd.DataFrame:
        """One row per candidate and combination, the largest κ first, and why one is not used."""
        combined = [
            _row(each.name, each.agreement) for each in self._combinations() if each.name != SOURCE_ONLY
        ]
        table = pd.DataFrame(self._rows + combined)
        table["chosen"] = np.where(table["candidate"] == self.best.name, "yes", "")
        return table.sort_values("kappa", ascending=False, kind="stable", na_position="last")

    def _combination(self, name: str, probabilities: np.ndarray) -> Combination:
        return Combination(name, Agreement.of(probabilities.argmax(axis=1), self.neighbours), probabilities)

    def _combinations(self) -> list[Combination]:
        name = WEIGHTED_AVERAGE if len(self._averaged) > 1 else SOURCE_ONLY
        combinations = [self._combination(name, half_weighted_average(self._averaged))]
        if self._sharpened and len(self._accepted) >= 3:
            top = sorted(self._accepted, key=lambda each: -each.agreement.kappa)[:3]
            combinations.append(self._combination(TOP, np.mean([each.probabilities for each in top], axis=0)))
        return combinations


def _row(name: str, agreement: Agreement | None, rejected_because: str = "") -> dict[str, Any]:
    return {
        "candidate": name,
        "kappa": math.nan if agreement is None else round(agreement.kappa, 4),
        "effective_classes": math.nan if agreement is None else round(agreement.effective, 2),
        "rejected_because": rejected_because,
    }
