"""Scores of BA³US's own making: class weights, effective classes, mean entropy."""

import math

import pytest
import torch

from ba3us import scores


def test_mean_entropy_by_hand():
    logits = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()
    h = [math.log(2), -0.9 * math.log(0.9) - 0.1 * math.log(0.1)]
    assert scores.mean_entropy(logits) == pytest.approx(sum(h) / 2, abs=1e-6)


def test_mean_probabilities_average_the_predictions_not_the_logits():
    logits = torch.tensor([[0.5, 0.5, 0.0], [0.1, 0.0, 0.9]]).log()
    assert scores.mean_probabilities(logits).tolist() == pytest.approx([0.3, 0.25, 0.45])


def test_mean_probabilities_sum_to_one_for_many_rows():
    logits = torch.randn(10_001, 31, generator=torch.Generator().manual_seed(0))
    assert scores.mean_probabilities(logits).sum().item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("weights", "expected"), [([1, 1, 1, 1], 4), ([7, 0, 0], 1), ([3, 3, 0], 2), ([0, 0], 0), ([5.0], 1)]
)
def test_effective_classes(weights, expected):
    assert scores.effective_classes(torch.tensor(weights, dtype=torch.float32)) == pytest.approx(expected)


@pytest.mark.parametrize(
    "score",
    [
        scores.mean_entropy,
        scores.mean_probabilities,
        scores.diversity,
        scores.information_maximisation,
        scores.nuclear_norm,
    ],
)
def test_many_rows_are_scored_part_by_part_alike(score, monkeypatch):
    logits = 3 * torch.randn(103, 7, generator=torch.Generator().manual_seed(0))
    whole = torch.as_tensor(score(logits))
    monkeypatch.setattr(scores, "_MAX_PREDICTIONS", 25)
    parts = torch.as_tensor(score(logits))
    assert parts.dtype == whole.dtype and torch.allclose(parts, whole, rtol=1e-5)
