"""Calibrated confidence, and the threshold of confidence for an error level.

Confidence is the probability of the predicted class after all logits are divided by one temperature. Two
estimates of the temperature are made, and the higher one is used:

- Held-out source samples: the temperature with the lowest cross-entropy, as in scikit-learn's
  ``CalibratedClassifierCV(method="temperature")``. It ignores the shift between domains.
- Neighbours in the target: two neighbours of one class get the same class where both are right. So κ is about
  the square of the accuracy, and the mean confidence must not be above √κ.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_softmax

from ba3us.assess.presence import MOVED
from ba3us.assess.verdict import ADAPTED, HARMED, NEAR, NO_EVIDENCE, SOURCE_ONLY, Verdict
from ba3us.errors import require

LEVEL = 0.05  # the default error level
LEVELS = (0.001, 0.002, 0.005, *(percent / 100 for percent in range(1, 51)))
_LOG_BOUNDS = math.log(0.05), math.log(50)  # of a temperature
_UNREACHABLE = 1.1  # a threshold that no confidence reaches


@dataclass(frozen=True)
class Calibration:
    """What turns logits into confidence, and an error level into a threshold.

    Attributes
    ----------
    temperature, held_out : float
        What logits are divided by, and the temperature by held-out source samples alone.
    kappa : float
        κ of the predictions that the used model was trained to give.
    levels, thresholds, proportions_kept : sequences of float
        Error levels, and for each the confidence below which the model abstains and the proportion of the run's
        target that remains.
    cautions : sequence of str
        Reasons why no error level can be promised; empty if there are none.
    """

    temperature: float
    held_out: float
    kappa: float
    levels: Sequence[float]
    thresholds: Sequence[float]
    proportions_kept: Sequence[float]
    cautions: Sequence[str] = ()

    def confidence(self, logits: np.ndarray) -> np.ndarray:
        """Compute the confidence of each prediction, [n, C] → [n]."""
        return confidence(logits, self.temperature)

    def threshold(self, level: float) -> float:
        """Return the confidence below which to abstain, for at most a proportion `level` of errors."""
        return self.thresholds[self._index(level)]

    def proportion_kept(self, level: float) -> float:
        """Return the proportion of the run's own target that remains at an error level."""
        return self.proportions_kept[self._index(level)]

    def summary(self, level: float = LEVEL) -> list[str]:
        """Say in sentences what to expect at an error level, and whether it can be promised."""
        start, threshold = f"At an error level of {100 * level:g} %", self.threshold(level)
        if threshold > 1:
            sentences = [f"{start} no target sample has enough confidence to be kept."]
        else:
            sentences = [
                f"{start}, {100 * self.proportion_kept(level):.1f} % of the target samples are kept: those "
                f"with a confidence of at least {threshold:.3f}. Only labels can prove it."
            ]
        if self.cautions:
            sentences.append(f"No error level can be promised here. {' '.join(self.cautions)}")
        return sentences

    def _index(self, level: float) -> int:
        """Index of the largest known level that is not above `level`."""
        check_level(level)
        return int(np.searchsorted(self.levels, level + 1e-9, side="right")) - 1

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return dataclasses.asdict(self)


def check_level(level: float) -> None:
    """Raise an error unless `level` is a proportion of errors that a threshold can be given for."""
    require(
        LEVELS[0] <= level < 1,
        f"The error level is {level:g}: give a proportion from {LEVELS[0]} to below 1, such as {LEVEL}.",
    )


def calibrate(target: np.ndarray, held_out: np.ndarray, labels: np.ndarray, verdict: Verdict) -> Calibration:
    """Calibrate a model by its logits for the target, and a held-out model's for source samples.

    Parameters
    ----------
    target : array [n, C]
        Logits of the model that is used.
    held_out, labels : arrays [m, C] and [m]
        Logits of the held-out model for source samples that it was not trained on, and their labels.
    verdict : Verdict
        Of the run, with κ among its figures.
    """
    figures = verdict.figures
    kappa = max(0.0, figures["kappa_source_only" if verdict.model_used == SOURCE_ONLY else "kappa"])
    cautions = []
    if figures["effective_classes"] <= 1:
        cautions.append("All target samples are predicted as one class, so neighbours say nothing.")
    elif kappa < NEAR:
        cautions.append(
            f"Neighbouring target samples often have different classes (κ {kappa:.3g}, at least {NEAR} needed)."
        )
    elif verdict.model_used == ADAPTED and figures["changed"] > MOVED:
        cautions.append(
            f"Source-only gives {100 * figures['changed']:.1f} % of the samples another class (at most "
            f"{100 * MOVED:.0f} % is allowed)."
        )
    if verdict.outcome == HARMED or (verdict.outcome == NO_EVIDENCE and verdict.model_used == ADAPTED):
        cautions.append(f"The verdict on the model is “{verdict.outcome}”.")
    if not len(labels):
        cautions.append("The source has too few samples to hold some out.")
    by_source = likeliest(held_out, labels) if len(labels) else 1.0
    return _calibration(target, by_source, kappa, cautions)


def recalibrated(calibration: Calibration, target: np.ndarray) -> Calibration:
    """Return the calibration with thresholds for changed logits of the target."""
    return _calibration(target, calibration.held_out, calibration.kappa, calibration.cautions)


def _calibration(target: np.ndarray, held_out: float, kappa: float, cautions: Sequence[str]) -> Calibration:
    temperature = max(held_out, matching(target, math.sqrt(kappa)))
    target_confidence = confidence(target, temperature)
    thresholds = [threshold_of(target_confidence, level) for level in LEVELS]
    return Calibration(
        temperature=round(temperature, 6),
        held_out=round(held_out, 6),
        kappa=round(kappa, 4),
        levels=list(LEVELS),
        thresholds=thresholds,
        proportions_kept=[round(float(np.mean(target_confidence >= each)), 6) for each in thresholds],
        cautions=cautions,
    )


def confidence(logits: np.ndarray, temperature: float) -> np.ndarray:
    """Compute the largest probability of each sample, [n, C] → [n]."""
    return np.exp(log_softmax(np.asarray(logits, np.float64) / temperature, axis=1).max(axis=1))


def likeliest(logits: np.ndarray, labels: np.ndarray) -> float:
    """Find the temperature with the lowest cross-entropy."""
    double, samples = np.asarray(logits, np.float64), np.arange(len(labels))

    def loss(log_t: float) -> float:
        return -float(log_softmax(double / math.exp(log_t), axis=1)[samples, labels].mean())

    return math.exp(minimize_scalar(loss, bounds=_LOG_BOUNDS, method="bounded").x)


def matching(logits: np.ndarray, mean_confidence: float) -> float:
    """Find the temperature with this mean confidence, or the nearest to it."""

    def gap(log_t: float) -> float:
        return float(confidence(logits, math.exp(log_t)).mean()) - mean_confidence

    low, high = _LOG_BOUNDS
    if gap(low) <= 0:
        return math.exp(low)
    return math.exp(high if gap(high) >= 0 else brentq(gap, low, high))


def threshold_of(confidences: np.ndarray, level: float) -> float:
    """Find the lowest threshold above which the expected proportion of errors is at most `level`."""
    values, counts = np.unique(
        np.floor(1e6 * confidences) / 1e6, return_counts=True
    )  # equal ones stay together
    values, counts = values[::-1], counts[::-1]
    expected_errors = np.cumsum(counts * (1 - values)) / np.cumsum(counts)  # increasing
    last = int(np.searchsorted(expected_errors, level, side="right"))
    return float(values[last - 1]) if last else _UNREACHABLE
