"""Shares of the classes by EM, and the prior of a classifier put right.

The assumption is label shift: classes of source and target differ in number, not in looks. Where looks differ
as well, EM makes mistakes firm (docs/trust.md has figures), so nobody takes this step unasked.
"""

from __future__ import annotations

import numpy as np

_ROUNDS, _CLOSE = 1000, 1e-9  # of EM: at most so many, and when shares no longer move
_ROUGHLY = 1e-4  # … where 200 of them make an interval
_LEAST = 1e-12  # a share is never quite nothing, or nothing could bring it back
_RESAMPLED = 200  # targets drawn with replacement for an interval


def expected_shares(
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


def share_intervals(
    probabilities: np.ndarray, prior: np.ndarray, level: float = 0.95, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the shares' intervals: EM on targets drawn again with replacement."""
    random, rows = np.random.default_rng(seed), len(probabilities)
    near = expected_shares(probabilities, prior, close=_ROUGHLY)  # from where the others are not far
    drawn = [
        expected_shares(probabilities[random.integers(rows, size=rows)], prior, near, _ROUGHLY)
        for _ in range(_RESAMPLED)
    ]
    outside = 50 * (1 - level)
    low, high = np.percentile(drawn, [outside, 100 - outside], axis=0)
    return low, high


def prior_shift(shares: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """What to add to logits so that a classifier of classes with shares `prior` holds for `shares`, [C]."""
    return np.log(np.maximum(shares, _LEAST)) - np.log(np.maximum(prior, _LEAST))
