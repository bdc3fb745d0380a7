"""How sure a prediction may be called, and below what it is better left out.

Confidence is the probability of the predicted class after all logits were divided by one temperature. Two
witnesses set it, and the more careful one is heard:

- source rows that a network of the same kind was not trained on: under which temperature are they likeliest?
- the target's own neighbourhoods. Two neighbours of one class are given the same class where both are right, so
  κ is about the square of the accuracy, and the mean confidence must not be above √κ.

The first is what scikit-learn's ``CalibratedClassifierCV(method="temperature")`` does, from version 1.8 on, for
estimators; here there are logits. It knows nothing of a shift, which is what the second is for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_softmax

from ba3us.assess.presence import MOVED
from ba3us.assess.verdict import ADAPTED, HARMED, NEAR, NO_EVIDENCE, SOURCE_ONLY, Verdict
from ba3us.errors import require

LEVEL = 0.05  # the error level, unless another is asked for
LEVELS = (0.001, 0.002, 0.005, *(percent / 100 for percent in range(1, 51)))
_BOUNDS = math.log(0.05), math.log(50)  # of a temperature
_NONE = 1.1  # a threshold that no confidence reaches


@dataclass(frozen=True)
class Calibration:
    """What turns logits into confidence, and an error level into a threshold.

    Attributes
    ----------
    temperature, held_out : float
        What logits are divided by; and what the held-out source rows alone would have it be.
    kappa : float
        By which the verdict was: of the vote that the model was taught, of source-only where that is served,
        or of a named system's classes.
    levels, thresholds, kept : sequences of float
        Error levels; the confidence below which a prediction is left out at each; the share of the run's
        target that remains.
    cautions : sequence of str
        Why no error level can be promised; none: nothing speaks against it.
    """

    temperature: float
    held_out: float
    kappa: float
    levels: Sequence[float]
    thresholds: Sequence[float]
    kept: Sequence[float]
    cautions: Sequence[str] = field(default_factory=tuple)

    def confidence(self, logits: np.ndarray) -> np.ndarray:
        """Of the predicted class of each row, [n, C] → [n]."""
        return confidence(logits, self.temperature)

    def threshold(self, level: float) -> float:
        """The confidence below which to abstain, so that at most a share `level` of what remains is wrong."""
        return self.thresholds[self._at(level)]

    def share_kept(self, level: float) -> float:
        """Of the run's own target."""
        return self.kept[self._at(level)]

    def said(self, level: float = LEVEL) -> list[str]:
        """What may be expected at an error level, and whether it can be promised, in sentences."""
        least, said = self.threshold(level), f"At an error level of {100 * level:g} %"
        if least > 1:
            said += " no row of the target is sure enough to be kept."
        else:
            said += (
                f", {self.share_kept(level):.1%} of the target's rows are kept: those with a confidence of at "
            )
            said += f"least {least:.3f}. Only labels can prove it."
        uncertainty = (
            [f"No error level can be promised here. {' '.join(self.cautions)}"] if self.cautions else []
        )
        return [said, *uncertainty]

    def _at(self, level: float) -> int:
        """The largest of the known levels that is not above this one."""
        check_level(level)
        return int(np.searchsorted(self.levels, level + 1e-9, side="right")) - 1

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {name: list(v) if isinstance(v, Sequence) else v for name, v in asdict(self).items()}


def calibrate(target: np.ndarray, held_out: np.ndarray, labels: np.ndarray, verdict: Verdict) -> Calibration:
    """From the model's logits for the target, and a twin's for source rows that it did not learn.

    Parameters
    ----------
    target : array [n, C]
        Logits of the model that is served.
    held_out, labels : arrays [m, C] and [m]
        Logits of its twin for held-out source rows, and their classes; m may be 0.
    verdict : Verdict
        Of the run, with κ among its figures.
    """
    served = "kappa_source_only" if verdict.model_used == SOURCE_ONLY else "kappa"
    kappa = max(0.0, verdict.figures[served])
    known = likeliest(held_out, labels) if len(labels) else 1.0
    return _calibration(target, known, kappa, _cautions(verdict, kappa, len(labels)))


def recalibrated(known: Calibration, target: np.ndarray) -> Calibration:
    """The same for a model whose logits for the target have become others."""
    return _calibration(target, known.held_out, known.kappa, known.cautions)


def _calibration(target: np.ndarray, held_out: float, kappa: float, cautions: Sequence[str]) -> Calibration:
    temperature = max(held_out, matching(target, math.sqrt(kappa)))
    sure = confidence(target, temperature)
    thresholds = [threshold_of(sure, level) for level in LEVELS]
    return Calibration(
        temperature=round(temperature, 6),
        held_out=round(held_out, 6),
        kappa=round(kappa, 4),
        levels=list(LEVELS),
        thresholds=thresholds,
        kept=[round(float(np.mean(sure >= each)), 6) for each in thresholds],
        cautions=cautions,
    )


def confidence(logits: np.ndarray, temperature: float) -> np.ndarray:
    """The largest probability of each row, [n, C] → [n]."""
    return np.exp(log_softmax(np.asarray(logits, np.float64) / temperature, axis=1).max(axis=1))


def likeliest(logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature with the lowest cross-entropy."""
    wide, rows = np.asarray(logits, np.float64), np.arange(len(labels))

    def loss(log_t: float) -> float:
        return -float(log_softmax(wide / math.exp(log_t), axis=1)[rows, labels].mean())

    return math.exp(minimize_scalar(loss, bounds=_BOUNDS, method="bounded").x)


def matching(logits: np.ndarray, share: float) -> float:
    """The temperature with this mean confidence, or the nearest to it."""

    def gap(log_t: float) -> float:
        return float(confidence(logits, math.exp(log_t)).mean()) - share

    if gap(_BOUNDS[0]) <= 0:
        return math.exp(_BOUNDS[0])
    return math.exp(_BOUNDS[1] if gap(_BOUNDS[1]) >= 0 else brentq(gap, *_BOUNDS))


def check_level(level: float) -> None:
    """A share of errors that can be asked for."""
    require(
        LEVELS[0] <= level < 1,
        f"The error level is {level:g}: give a share of at least {LEVELS[0]} and below 1, such as {LEVEL}.",
    )


def threshold_of(sure: np.ndarray, level: float) -> float:
    """The lowest confidence with which the rows above it are expected to have so many errors at most."""
    values, rows = np.unique(np.floor(1e6 * sure) / 1e6, return_counts=True)  # equal rows stay together
    values, rows = values[::-1], rows[::-1]
    expected = np.cumsum(rows * (1 - values)) / np.cumsum(rows)  # it only rises
    count = int(np.searchsorted(expected, level, side="right"))
    return float(values[count - 1]) if count else _NONE


def _cautions(verdict: Verdict, kappa: float, held_out: int) -> list[str]:
    said = []
    if verdict.figures["effective_classes"] <= 1:
        said.append("All rows of the target have one class, of which neighbours can tell nothing.")
    elif kappa < NEAR:
        said.append(
            f"Neighbouring target rows often have different classes (κ {kappa:.3g}, at least {NEAR} is asked)."
        )
    elif verdict.model_used == ADAPTED and (changed := verdict.figures["changed"]) > MOVED:
        said.append(
            f"Source-only gives {changed:.1%} of the rows another class (at most {MOVED:.0%} is asked)."
        )
    if verdict.outcome == HARMED or (verdict.outcome == NO_EVIDENCE and verdict.model_used == ADAPTED):
        said.append(f"The verdict on the model is “{verdict.outcome}”.")
    if not held_out:
        said.append("The source has too few rows to put some aside.")
    return said
