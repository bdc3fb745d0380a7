"""EM on probabilities, its intervals, and the prior put right; QuaPy is the judge."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from ba3us.assess.presence import em_proportions, prior_shift, proportion_intervals


def label_shift(shares, rows=4000, classes=3, seed=0, sharpness=2.0):
    """Labels drawn by shares, and logits of the classifier that is right for even classes."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(classes, size=rows, p=shares)
    x = rng.normal(size=(rows, classes)) + sharpness * np.eye(classes)[labels]
    return sharpness * x, labels


EVEN = np.ones(3) / 3


def test_shares_are_found_under_label_shift():
    logits, labels = label_shift([0.7, 0.3, 0.0])
    found = em_proportions(softmax(logits, axis=1), EVEN)
    assert np.abs(found - np.bincount(labels, minlength=3) / 4000).max() < 0.02
    counted = np.bincount(logits.argmax(axis=1), minlength=3) / 4000
    assert counted[2] > 0.03 > 0.005 > found[2]  # counting predictions would have called the third one present


def test_em_by_hand():
    # one row, sure to be the first or the second by 3 : 1; only the first half of EM's fixed points is stable
    assert em_proportions(np.array([[0.75, 0.25]]), np.array([0.5, 0.5])) == pytest.approx([1, 0], abs=1e-6)
    # two rows that say the opposite leave the prior as it was
    rows = np.array([[0.75, 0.25], [0.25, 0.75]])
    assert em_proportions(rows, np.array([0.5, 0.5])) == pytest.approx([0.5, 0.5])


def test_em_agrees_with_quapy():
    quapy = pytest.importorskip("quapy", reason="QuaPy judges EM where it is installed")
    logits, _ = label_shift([0.1, 0.6, 0.3], rows=500)
    p = softmax(logits, axis=1)
    theirs, _ = quapy.method.aggregative.EMQ.EM(EVEN, p, epsilon=1e-8)
    assert em_proportions(p, EVEN) == pytest.approx(theirs, abs=1e-3)


def test_intervals_cover_the_truth_and_narrow_with_rows():
    covered, widths = 0, {}
    for rows in (200, 3200):
        for seed in range(10):
            logits, _ = label_shift([0.6, 0.3, 0.1], rows=rows, seed=seed)
            low, high = proportion_intervals(softmax(logits, axis=1), EVEN, seed=seed)
            covered += int(((low <= [0.6, 0.3, 0.1]) & (high >= [0.6, 0.3, 0.1])).sum())
            widths[rows] = (high - low).mean()
    assert covered >= 0.85 * 60
    assert widths[3200] < 0.4 * widths[200]


def test_the_prior_put_right_moves_predictions():
    logits, labels = label_shift([0.9, 0.1, 0.0])
    shares = em_proportions(softmax(logits, axis=1), EVEN)
    moved = logits + prior_shift(shares, EVEN)
    assert (moved.argmax(axis=1) == labels).mean() > (logits.argmax(axis=1) == labels).mean() + 0.03
    assert prior_shift(EVEN, EVEN) == pytest.approx(np.zeros(3))
