"""Parity of the label-free scores with pytorch-adapt, skada and BenchmarkPDA."""

from __future__ import annotations

import math

import pytest
import torch

from ba3us import scores
from golden_tools import close, tensor


def test_scores_of_predictions(golden):
    file = golden("validators")
    features, temperature = tensor(file["features"]), float(file["T"])
    for j in range(int(file["n_cases"])):
        logits = tensor(file[f"c{j}/logits"])
        p, classes = logits.softmax(dim=1), logits.shape[1]
        density = scores.neighbourhood_density
        found = {
            "entropy_score": scores.entropy_score(logits),
            "entropy_score_from_preds": scores.entropy_score(p.log()),
            "diversity_score": scores.diversity(logits),
            "im_score": scores.information_maximisation(logits),
            "bnm_score": scores.nuclear_norm(logits),
            "snd_preds": density(p, temperature),
            "snd_features": density(features, temperature),
            # skada takes the mean over classes too
            "skada_entropy": -scores.mean_entropy(logits) / classes,
            "bench_mean_entropy": scores.mean_entropy(logits),
            "bench_class_weight": scores.mean_probabilities(logits),
        }
        for name, value in found.items():
            close(value, file[f"c{j}/{name}"], what=f"c{j}/{name}")


def test_density_in_chunks_is_the_density(monkeypatch):
    rows = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = scores.neighbourhood_density(rows)
    monkeypatch.setattr(scores, "_MAX_SIMILARITIES", 350)  # seven rows at a time
    assert scores.neighbourhood_density(rows) == pytest.approx(whole, rel=1e-12)


def test_scores_by_hand():
    two = torch.tensor([[40.0, 0.0], [0.0, 40.0]])  # sure, and both classes
    assert scores.information_maximisation(two) == pytest.approx(math.log(2), abs=1e-6)
    assert scores.nuclear_norm(two) == pytest.approx(1.0, abs=1e-6)  # singular values 1, 1 over two rows
    one = torch.tensor([[1e4, -1e4], [1e4, -1e4]])  # collapsed, and saturated
    assert scores.information_maximisation(one) == 0
    # three equal rows: each sees two neighbours, equally near
    assert scores.neighbourhood_density(torch.ones(3, 2)) == pytest.approx(math.log(2))
    assert scores.neighbourhood_density(torch.ones(1, 2)) == 0
