"""Which source classes the target holds, and in which proportions, judged from its predictions alone.

:func:`presence` counts predictions. EM (:func:`em_proportions`) estimates proportions from probabilities, and
assumes label shift: source and target differ in class proportions only. Where samples of a class look different
as well, EM reinforces mistakes (docs/trust.md has figures), so it is only used on request.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ba3us.scores import effective_classes

PRESENT, ABSENT, UNCERTAIN = "present", "absent", "uncertain"
MOVED = 0.15  # a larger proportion of samples that adapting gave another class is much
MOST_UNCERTAINTY = 0.375  # above it no class is called present
_SMALLEST = 0.01  # a class with a smaller proportion of the target can't be told from mistakes
_NEVER_ABSENT = 0.05  # a class with this proportion is never called absent, even if it is one sample
_Z = 1.959964  # of 95 %
_MAX_ITERATIONS, _CLOSE = 1000, 1e-9  # of EM; it stops when proportions change by less
_INTERVAL_CLOSE, _RESAMPLES = 1e-4, 200  # the same for an interval, and how many resampled targets it takes
_EPSILON = 1e-12  # the lowest proportion, because EM can't raise 0


def class_proportions(predictions: np.ndarray, num_classes: int) -> np.ndarray:
    """Compute the proportion of samples that are predicted as each class, [n] → [C]; sums to one."""
    return np.bincount(predictions, minlength=num_classes) / len(predictions)


def presence(
    predictions: np.ndarray, others: Sequence[np.ndarray], num_classes: int, uncertainty: float = 0.0
) -> pd.DataFrame:
    """Judge each class: its proportion of the target, an interval around it, and whether it is present.

    Parameters
    ----------
    predictions : integer array [n]
        Of the model that is used.
    others : sequence of integer arrays
        Other plausible predictions for the same samples or some of them.
    num_classes : int
        C.
    uncertainty : float
        How far off all of them may be together, as a proportion of the samples (:func:`presence_uncertainty`).

    The interval, `low` to `high`, spans Wilson's 95 % intervals of all predictions, widened by the uncertainty.
    Whether a class is present depends on the samples at hand, so sampling plays no part in it.

    Without uncertainty, a class is ``present`` if all predictions give it more than 1 % and more than one
    sample, ``absent`` if none does, else ``uncertain``. With uncertainty, half of it is subtracted or added. A
    class is then present above 0.3 of an even proportion, and absent below 0.2. With an uncertainty above
    3/8 (κ below a half) no class is called present.
    """
    every = (predictions, *others)
    proportions = [class_proportions(each, num_classes) for each in every]
    ends = [_wilson(p, len(each)) for p, each in zip(proportions, every)]
    low = np.clip(np.min([low for low, _ in ends], axis=0) - uncertainty, 0, 1)
    high = np.clip(np.max([high for _, high in ends], axis=0) + uncertainty, 0, 1)
    present_above = max(_SMALLEST, 1.5 / len(predictions))
    absent_below = min(present_above, _NEVER_ABSENT)
    if uncertainty:
        even = 1 / effective_classes(proportions[0])
        absent_below, present_above = max(absent_below, 0.2 * even), max(present_above, 0.3 * even)
    is_present = np.min(proportions, axis=0) - uncertainty / 2 > present_above
    is_absent = np.max(proportions, axis=0) + uncertainty / 2 < absent_below
    calls = np.where(is_present & (uncertainty <= MOST_UNCERTAINTY), PRESENT, UNCERTAIN)
    calls = np.where(is_absent, ABSENT, calls)
    return pd.DataFrame({"proportion": proportions[0], "low": low, "high": high, "present": calls})


def presence_uncertainty(kappa: float, trusted: float, changed: float) -> float:
    """Estimate which proportion of the samples may be wrong unnoticed.

    Below a κ of `trusted` it is ¾ (1 - κ). From there on neighbours agree. But if source-only gives a large
    proportion `changed` of the samples another class, all candidates may agree on as many wrong ones.
    """
    if kappa < trusted:
        return 0.75 * (1 - max(kappa, 0.0))
    return changed if changed > MOVED else 0.0


def _wilson(proportions: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's 95 % interval of proportions of n samples."""
    middle = (proportions + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z * np.sqrt(proportions * (1 - proportions) / n + _Z**2 / (4 * n**2)) / (1 + _Z**2 / n)
    return np.where(proportions == 0, 0.0, middle - half), middle + half


def em_proportions(
    probabilities: np.ndarray, prior: np.ndarray, start: np.ndarray | None = None, close: float = _CLOSE
) -> np.ndarray:
    """Estimate the target's class proportions by EM (Saerens, Latinne and Decaestecker 2002), [n, C] → [C].

    `probabilities` come from a classifier that was trained with the proportions `prior`. EM starts from `start`
    (the prior) and stops when the proportions together change by less than `close`.
    """
    prior = np.maximum(prior, _EPSILON)
    proportions = prior / prior.sum() if start is None else start
    for _ in range(_MAX_ITERATIONS):
        before = proportions
        weighted = probabilities * (proportions / prior)
        proportions = np.maximum((weighted / weighted.sum(axis=1, keepdims=True)).mean(axis=0), _EPSILON)
        proportions /= proportions.sum()
        if np.abs(proportions - before).sum() < close:
            break
    return proportions


def proportion_intervals(
    probabilities: np.ndarray, prior: np.ndarray, level: float = 0.95, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate intervals of the proportions by EM on bootstrap resamples of the target."""
    rng, n = np.random.default_rng(seed), len(probabilities)
    start = em_proportions(probabilities, prior, close=_INTERVAL_CLOSE)
    resampled = [
        em_proportions(probabilities[rng.integers(n, size=n)], prior, start, _INTERVAL_CLOSE)
        for _ in range(_RESAMPLES)
    ]
    outside = 50 * (1 - level)
    low, high = np.percentile(resampled, [outside, 100 - outside], axis=0)
    return low, high


def prior_shift(proportions: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Compute what to add to the logits of a classifier with this prior, for other proportions, [C]."""
    return np.log(np.maximum(proportions, _EPSILON)) - np.log(np.maximum(prior, _EPSILON))
