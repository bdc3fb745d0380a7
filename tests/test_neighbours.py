"""Neighbours: who they are, how κ is worked out, and what smoothing does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ba3us.assess.verdict import Agreement
from ba3us.scores import Neighbours

G = torch.Generator().manual_seed(0)


def clusters(sizes=(20, 20), width=5, noise=0.1):
    rows = noise * torch.randn(sum(sizes), width, generator=G)
    start = 0
    for axis, size in enumerate(sizes):
        rows[start : start + size, axis] += 3
        start += size
    return rows


def test_neighbours_are_the_nearest_by_cosine_seen_from_the_centre():
    rows, centre = torch.randn(30, 6, generator=G), torch.randn(6, generator=G)
    unit = (rows - centre) / (rows - centre).norm(dim=1, keepdim=True)
    cosine = (unit @ unit.T).fill_diagonal_(-9).numpy()
    found = Neighbours.among(rows, centre, count=4)
    assert np.array_equal(np.sort(found.index), np.sort(np.argsort(-cosine)[:, :4]))
    assert np.allclose(np.asarray(found.weights.sum(axis=1)).ravel(), 1)


def test_many_rows_are_looked_at_in_parts(monkeypatch):
    rows = torch.randn(50, 6, generator=G)
    whole = Neighbours.among(rows, torch.zeros(6))
    monkeypatch.setattr("ba3us.scores._MAX_SIMILARITIES", 7 * 50)
    assert np.array_equal(Neighbours.among(rows, torch.zeros(6)).index, whole.index)


def test_kappa_by_hand():
    near = Neighbours(np.array([[1], [0], [3], [0]]), None)
    # three of four agree; by chance (3/4)² + (1/4)² = 10/16
    assert near.kappa(np.array([0, 0, 1, 0])) == pytest.approx((0.75 - 0.625) / 0.375)
    assert near.beyond_chance(np.array([0, 0, 1, 0])) == pytest.approx(0.75 - 0.625)
    assert near.beyond_chance(np.zeros(4, int)) == 0.0


def test_kappa_tells_order_from_chance_and_says_nothing_of_one_class():
    near = Neighbours.among(clusters(), torch.zeros(5))
    truth = np.repeat([0, 1], 20)
    assert near.kappa(truth) == pytest.approx(1.0)
    assert abs(near.kappa(np.tile([0, 1], 20))) < 0.2
    assert near.kappa(np.zeros(40, int)) == 0.0


def test_evidence_is_kappa_times_the_entropy_of_the_shares():
    near = Neighbours(np.array([[1], [0], [3], [2]]), None)
    # two pairs that agree: κ = 1, two even classes have an entropy of log 2; one class says nothing
    assert Agreement.of(np.array([0, 0, 1, 1]), near).evidence == pytest.approx(np.log(2))
    assert Agreement.of(np.array([1, 1, 1, 1]), near).evidence == 0.0
    assert Agreement.of(np.array([0, 1, 0, 1]), near).evidence == 0  # neighbours that never agree


def test_a_collapse_has_the_larger_kappa_but_less_agreement_beyond_chance_and_less_evidence():
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 50)
    near = Neighbours(np.stack([np.flatnonzero(truth == c)[:10] for c in truth]), None)
    right = np.where(rng.random(200) < 0.2, rng.integers(0, 4, 200), truth)  # four classes, some rows astray
    collapsed = np.minimum(truth, 1)  # two classes, none astray
    assert near.kappa(collapsed) > near.kappa(right)
    assert near.beyond_chance(collapsed) < near.beyond_chance(right)
    assert Agreement.of(collapsed, near).evidence < Agreement.of(right, near).evidence


def test_smoothing_puts_strays_right_and_keeps_sums():
    near = Neighbours.among(clusters(), torch.zeros(5))
    truth = np.repeat([0, 1], 20)
    stray = truth.copy()
    stray[[3, 30]] = 1 - stray[[3, 30]]
    smooth = near.smoothed(np.eye(2)[stray] * 0.8 + 0.1)
    assert np.array_equal(smooth.argmax(axis=1), truth)
    assert np.allclose(smooth.sum(axis=1), 1)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_hardly_any_rows(rows):
    near = Neighbours.among(torch.randn(rows, 4, generator=G), torch.zeros(4))
    p = np.full((rows, 3), 1 / 3)
    assert near.index.shape == (rows, min(rows - 1, 1))
    assert np.allclose(near.smoothed(p), p)
    assert near.kappa(np.zeros(rows, int)) == 0.0


@pytest.mark.parametrize("rows", [6, 9, 11])
def test_of_few_rows_kappa_still_tells_right_from_strewn(rows):
    truth = np.arange(rows) % 2
    spread = 0.01 * torch.randn(rows, 4, generator=G)
    near = Neighbours.among(torch.eye(4)[truth] + spread, torch.zeros(4))
    assert near.kappa(truth) > 0.5 > near.kappa(np.arange(rows) // 2 % 2)
