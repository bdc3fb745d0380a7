"""What is to be believed of a target's rows after several systems were heard; no label has a part in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax

from ba3us.assess import verdict as verdicts
from ba3us.assess.verdict import SOURCE_ONLY, Agreement
from ba3us.auto.candidates import ROBUST, CandidateResult
from ba3us.scores import Neighbours

WEIGHTED_AVERAGE, TOP = "weighted average", "best three"
_TOP = 3
VOTING = {candidate.method for candidate in ROBUST}


@dataclass(frozen=True, eq=False)
class Combination:
    """What could be believed of the target's rows: whose it is, how it stands, and class probabilities."""

    name: str
    standing: Agreement
    probabilities: np.ndarray


def half_weighted_average(voices: Sequence[np.ndarray]) -> np.ndarray:
    """Geometric mean of class probabilities, [n, C] each; the first voice has half of the votes."""
    first, *others = (np.log(voice + 1e-6) for voice in voices)
    mean = (first + np.mean(others, axis=0)) / 2 if others else first
    return softmax(mean, axis=1)


class Ensemble:
    """Members as they come in, and what is to be believed of the target's rows after hearing them.

    Robust members vote together with source-only. Where members that sharpen were heard as well (a mild shift),
    the three of all members whose κ is largest are believed instead, if theirs is larger than the vote's.
    """

    def __init__(self, near: Neighbours, plain: np.ndarray) -> None:
        self.near, self.plain = near, Agreement.of(plain.argmax(axis=1), near)
        self.voices, self.members = [plain], list[Combination]()
        self.sharpened = False
        self.board = [self._row(SOURCE_ONLY, self.plain, "")]
        self.smoothed = [near.smoothed(plain).argmax(axis=1)]  # what could be believed of the rows
        self.best = Combination(SOURCE_ONLY, self.plain, plain)

    def add(self, result: CandidateResult) -> None:
        """Take a member in, and settle anew what is to be believed."""
        name, p = result.candidate.name, result.probabilities
        if p is None:
            self.board.append(self._row(name, None, result.failure))
            return
        candidate, robust = self._candidate(name, p), result.candidate.method in VOTING
        against = verdicts.rejection_reason(candidate.standing, self.plain)
        self.board.append(self._row(name, candidate.standing, against))
        if not against:
            self.members.append(candidate)
        if robust and not against:
            self.voices.append(p)
            if result.candidate.seed == 0:
                self.smoothed.append(self.near.smoothed(p).argmax(axis=1))
        self.sharpened |= not robust
        self.best = max(self._blends(), key=lambda each: each.standing.kappa)

    def labels(self) -> np.ndarray:
        """The classes that are to be believed, after the neighbours were heard."""
        return self.near.smoothed(self.best.probabilities).argmax(axis=1)

    def _blends(self) -> list[Combination]:
        """What members say together."""
        found = [
            self._candidate(
                WEIGHTED_AVERAGE if len(self.voices) > 1 else SOURCE_ONLY, half_weighted_average(self.voices)
            )
        ]
        if self.sharpened and len(self.members) >= _TOP:
            top = sorted(self.members, key=lambda each: -each.standing.kappa)[:_TOP]
            found.append(self._candidate(TOP, np.mean([each.probabilities for each in top], axis=0)))
        return found

    def _candidate(self, name: str, probabilities: np.ndarray) -> Combination:
        return Combination(name, Agreement.of(probabilities.argmax(axis=1), self.near), probabilities)

    def leaderboard(self) -> pd.DataFrame:
        """A row per member and one per blend, the largest κ first; `against` says why one was passed over."""
        blends = [
            self._row(each.name, each.standing, "") for each in self._blends() if each.name != SOURCE_ONLY
        ]
        table = pd.DataFrame(self.board + blends)
        table["chosen"] = np.where(table["candidate"] == self.best.name, "yes", "")
        return table.sort_values("kappa", ascending=False, kind="stable", na_position="last")

    @staticmethod
    def _row(name: str, standing: Agreement | None, against: str) -> dict[str, Any]:
        kappa, effective = (math.nan, math.nan) if standing is None else (standing.kappa, standing.effective)
        return {
            "candidate": name,
            "kappa": round(kappa, 4),
            "effective_classes": round(effective, 2),
            "rejected_because": against,
        }
