"""Shares of the classes by EM, and the prior of a classifier put right.

The assumption is label shift: classes of source and target differ in number, not in looks. Where looks differ
as well, EM reinforces mistakes (docs/trust.md has figures), so nobody takes this step unasked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ba3us.scores import effective_classes

# --- presence ---------------------------------------------------------------------------------------------
# Which source classes the target holds, judged from its predictions alone.


PRESENT, ABSENT, UNCERTAIN = "present", "absent", "uncertain"
SMALLEST = 0.01  # a class with a smaller share of the target can't be told from mistakes
MOVED = 0.15  # a larger share of rows that adapting moved to another class is much
MOST_UNCERTAINTY = 0.375  # in which classes are called present
_TOO_MUCH = 0.05  # a share that is never called absent, be it of a single row
_Z = 1.959964  # of 95 %


def class_proportions(predictions: np.ndarray, num_classes: int) -> np.ndarray:
    """Share of the rows that are predicted as each class, [n] → [C]; sums to one."""
    return np.bincount(predictions, minlength=num_classes) / len(predictions)


def presence(
    predictions: np.ndarray, others: Sequence[np.ndarray], num_classes: int, uncertainty: float = 0.0
) -> pd.DataFrame:
    """One row per class: its share of the target, an interval around it, and whether it is present.

    Parameters
    ----------
    predictions : integer array [n]
        Of the model that is served.
    others : sequence of integer arrays
        What else could be believed of the same rows, or some of them: other systems' predictions.
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
    shares = [class_proportions(each, num_classes) for each in (predictions, *others)]
    ends = [_wilson(share, len(each)) for share, each in zip(shares, (predictions, *others))]
    low = np.clip(np.min([low for low, _ in ends], axis=0) - uncertainty, 0, 1)
    high = np.clip(np.max([high for _, high in ends], axis=0) + uncertainty, 0, 1)
    most = max(SMALLEST, 1.5 / len(predictions))
    least = min(most, max(SMALLEST, _TOO_MUCH))
    if uncertainty:
        even = 1 / effective_classes(shares[0])
        least, most = max(least, 0.2 * even), max(most, 0.3 * even)
    there = (np.min(shares, axis=0) - uncertainty / 2 > most) & (uncertainty <= MOST_UNCERTAINTY)
    calls = np.where(there, PRESENT, UNCERTAIN)
    calls = np.where(np.max(shares, axis=0) + uncertainty / 2 < least, ABSENT, calls)
    return pd.DataFrame({"proportion": shares[0], "low": low, "high": high, "present": calls})


def presence_uncertainty(kappa: float, trusted: float, changed: float) -> float:
    """What share of the rows may be off unnoticed.

    Below a κ of `trusted`, ¾ (1 - κ). From there on, neighbours agree; but where source-only gives a share
    `changed` of the rows another class, and that is much, as many may be off that all agree on. Else none.
    """
    if kappa < trusted:
        return 0.75 * (1 - max(kappa, 0.0))
    return changed if changed > MOVED else 0.0


def _wilson(shares: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's 95 % interval of shares of n rows."""
    middle = (shares + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z * np.sqrt(shares * (1 - shares) / n + _Z**2 / (4 * n**2)) / (1 + _Z**2 / n)
    return np.where(shares == 0, 0.0, middle - half), middle + half


# --- shares -----------------------------------------------------------------------------------------------
# Shares of the classes by EM, and the prior of a classifier put right.
#
# The assumption is label shift: classes of source and target differ in number, not in looks. Where looks differ
# as well, EM reinforces mistakes (docs/trust.md has figures), so nobody takes this step unasked.


_ROUNDS, _CLOSE = 1000, 1e-9  # of EM: at most so many, and when shares no longer move
_ROUGHLY = 1e-4  # … where 200 of them make an interval
_LEAST = 1e-12  # a share is never quite nothing, or nothing could bring it back
_RESAMPLED = 200  # targets drawn with replacement for an interval


def em_proportions(
    probabilities: np.ndarray, prior: np.ndarray, start: np.ndarray | None = None, close: float = _CLOSE
) -> np.ndarray:
    """Shares of the target by EM (Saerens, Latinne and Decaestecker 2002), [n, C] and [C] → [C].

    `probabilities` are a classifier's where classes have the shares `prior`. EM begins with the shares `start`
    (the prior) and ends when all of them together move by less than `close`.
    """
    prior = np.maximum(prior, _LEAST)
    shares = prior / prior.sum() if start is None else start
    for _ in range(_ROUNDS):
        before = shares
        weighted = probabilities * (shares / prior)
        shares = np.maximum((weighted / weighted.sum(axis=1, keepdims=True)).mean(axis=0), _LEAST)
        shares /= shares.sum()
        if np.abs(shares - before).sum() < close:
            break
    return shares


def proportion_intervals(
    probabilities: np.ndarray, prior: np.ndarray, level: float = 0.95, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the shares' intervals: EM on targets drawn again with replacement."""
    random, rows = np.random.default_rng(seed), len(probabilities)
    near = em_proportions(probabilities, prior, close=_ROUGHLY)  # from where the others are not far
    drawn = [
        em_proportions(probabilities[random.integers(rows, size=rows)], prior, near, _ROUGHLY)
        for _ in range(_RESAMPLED)
    ]
    outside = 50 * (1 - level)
    low, high = np.percentile(drawn, [outside, 100 - outside], axis=0)
    return low, high


def prior_shift(shares: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """What to add to logits so that a classifier of classes with shares `prior` holds for `shares`, [C]."""
    return np.log(np.maximum(shares, _LEAST)) - np.log(np.maximum(prior, _LEAST))
