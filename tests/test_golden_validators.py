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
            "bench_snd": density(p, itself="farthest", eps=1e-7),
            "skada_snd": density(p, temperature, itself="farthest"),
            # skada takes the mean over classes too
            "skada_entropy": -scores.mean_entropy(logits) / classes,
            "bench_mean_entropy": scores.mean_entropy(logits),
            "bench_class_weight": scores.mean_probabilities(logits),
        }
        for name, value in found.items():
            close(value, file[f"c{j}/{name}"], what=f"c{j}/{name}")


@pytest.mark.parametrize("error", ["01", "ce"])
def test_deep_embedded_validation(golden, error):
    file = golden("validators")
    weights = tensor(file["dev/weights"])
    errors = tensor(file["dev/error01" if error == "01" else "dev/error_ce"])
    for scaling in ("none", "max", "standardize"):
        name = f"dev_err{error}_{scaling}/risk"
        close(scores.dev_risk(weights, errors, scaling), file[name], what=name)
    close(scores.dev_risk(weights, errors), file[f"dev_bench_err{error}/risk"])


def test_density_ratio(golden):
    file = golden("validators")
    domains = (tensor(file[f"lr/{name}_features"]) for name in ("source", "target", "val"))
    weights = scores.density_ratio(*domains, seed=int(file["lr/random_state"]))
    close(weights, file["lr/weights"][:, 0], 1e-6)
    close(scores.dev_risk(weights, tensor(file["dev/error01"])), file["lr/risk01"], 1e-6)


def test_errors_of_predictions(golden):
    """What DEV is given: an error of 1 where the prediction is wrong."""
    file = golden("validators")
    wrong = (tensor(file["err/logits"]).argmax(dim=1) != tensor(file["err/labels"])).double()
    close(wrong, file["err/error"][:, 0])
    close(1 - wrong.mean(), file["err/accuracy"])


def test_density_in_chunks_is_the_density(monkeypatch):
    rows = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = scores.neighbourhood_density(rows)
    monkeypatch.setattr(scores, "_CHUNK_VALUES", 350)  # seven rows at a time
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
    # constant weights leave nothing to correct
    assert scores.dev_risk(torch.ones(4), torch.tensor([1.0, 0, 0, 0])) == pytest.approx(0.25)
