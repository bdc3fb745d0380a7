"""MWPDA: Otsu's threshold by hand, and what it does to the weights."""

from __future__ import annotations

import math

import pytest
import torch

from ba3us import scores
from ba3us.methods.base import DomainOutputs, Outputs, Step
from toys import CLASSES, build


@pytest.mark.parametrize(
    ("values", "threshold"),
    [
        ([0.1, 0.9], 0.1),
        ([0.1, 0.2, 0.8, 0.9, 1.0], 0.2),
        ([1.0, 0.05, 0.1, 0.0], 0.1),
        # between-group variance n1·n2·gap²: 1·3·4² = 48 for {0} and 2·2·4² = 64 for {0, 2}
        ([0.0, 2.0, 4.0, 6.0], 2.0),
        ([0.3, 0.3, 0.3], -math.inf),
        ([1.0], -math.inf),
    ],
)
def test_otsu_by_hand(values, threshold):
    assert scores.otsu_threshold(torch.tensor(values)) == pytest.approx(threshold)


def target(p):
    logits = torch.tensor(p).log()
    return DomainOutputs(torch.zeros(len(p), 5), logits, torch.arange(len(p)))


def test_a_refresh_lowers_outlier_classes():
    method = build("mwpda", outlier_scale=0.1)[1]
    method.refresh(target([[0.5, 0.4, 0.08, 0.02]]))
    assert method.shared.tolist() == [1, 1, 0, 0]
    torch.testing.assert_close(method.class_weights, torch.tensor([1.0, 0.8, 0.016, 0.004]))
    assert method.log_scalars(Step(0, 10))["shared_classes"] == 2


def test_classes_that_weigh_the_same_are_all_shared():
    method = build("mwpda")[1]
    method.refresh(target([[0.25] * CLASSES]))
    assert method.shared.tolist() == [1] * CLASSES


def test_the_classifier_of_shared_samples_learns_from_source_rows_and_leaves_features_alone():
    method = build("mwpda", discriminator_dropout=0.0)[1]
    method.shared.copy_(torch.tensor([1.0, 1.0, 0.0, 0.0]))
    g = torch.Generator().manual_seed(0)

    def domain(labels=None):
        features = torch.randn(4, 5, generator=g).requires_grad_()
        return DomainOutputs(features, torch.randn(4, CLASSES, generator=g), torch.arange(4), labels)

    labels = torch.tensor([0, 1, 2, 3])
    out = Outputs(domain(labels), domain(), domain(labels))
    loss = method.losses(out, Step(1, 10))["sharing"]
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        method.sharing(out.source.features).squeeze(1), torch.tensor([1.0, 1.0, 0.0, 0.0])
    )
    torch.testing.assert_close(loss, expected)
    assert torch.autograd.grad(loss, out.source.features, allow_unused=True)[0] is None
