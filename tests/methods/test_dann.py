"""DANN and source-only."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from ba3us.methods.base import Batch, DomainOutputs, Inputs, Outputs, Step
from toys import CLASSES, WIDTH, blobs, build, trainer


def outputs(b=5, t=5):
    g = torch.Generator().manual_seed(0)

    def domain(n, labelled):
        features = torch.randn(n, 5, generator=g).requires_grad_()
        labels = torch.arange(n) % CLASSES if labelled else None
        return DomainOutputs(features, torch.randn(n, CLASSES, generator=g), torch.arange(n), labels)

    return Outputs(domain(b, True), domain(t, False), domain(0, True))


def test_terms_are_plain_cross_entropy_and_the_mean_over_both_domains():
    out, method = outputs(), build("dann", discriminator_dropout=0.0)[1]
    terms = method.losses(out, Step(3, 10))
    scores = method.discriminator(torch.cat([out.source.features, out.target.features]))
    truth = torch.tensor([1.0] * 5 + [0.0] * 5)
    assert terms.keys() == {"classification", "alignment"}
    torch.testing.assert_close(terms["classification"], F.cross_entropy(out.source.logits, out.source.labels))
    torch.testing.assert_close(terms["alignment"], F.binary_cross_entropy_with_logits(scores, truth))


def test_lambda_reverses_the_features_gradient():
    out, method = outputs(), build("dann", discriminator_dropout=0.0)[1]
    step = Step(3, 10)
    scores = method.discriminator(torch.cat([out.source.features, out.target.features]))
    plain = F.binary_cross_entropy_with_logits(scores, torch.tensor([1.0] * 5 + [0.0] * 5))
    (expected,) = torch.autograd.grad(plain, out.target.features)
    (got,) = torch.autograd.grad(method.losses(out, step)["alignment"], out.target.features)
    torch.testing.assert_close(got, -method.log_scalars(step)["lambda"] * expected)


def test_uncertainty_suppression_can_be_added():
    out = outputs()
    assert "uncertainty" in build("dann", beta=1.0)[1].losses(out, Step(0, 10))


@pytest.mark.parametrize("option", [{"ramp_high": 0.5}, {"ramp_slope": 1.0}, {"ramp_steps": 1000}])
def test_ramp_options_lower_lambda(option):
    step = Step(5, 10)
    full = build("dann")[1].log_scalars(step)["lambda"]
    assert 0 < build("dann", **option)[1].log_scalars(step)["lambda"] < full


class Untouchable(torch.nn.Module):
    """A backbone that refuses rows of the target while it learns."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 6)

    def forward(self, x):
        assert not self.training or (x[:, 0] < 100).all(), "a target row was trained on"
        return self.layer(x)


def far_target():
    from ba3us.data import Target

    source, target, _ = blobs()
    return source, Target(target.batch(slice(0, 18)) + torch.tensor([1000.0] + [0.0] * 5))


def test_source_only_never_trains_on_the_target():
    source, target = far_target()
    result = trainer("source-only", backbone=Untouchable()).fit(source, target)
    assert result.evaluations and result.history["loss"].iloc[-1] < result.history["loss"].iloc[0]
    with pytest.raises(AssertionError, match="a target row was trained on"):  # the control
        trainer("dann", backbone=Untouchable()).fit(source, target)


def test_rows_together_follow_a_domain_that_was_replaced():
    network = build("dann")[0]
    empty = Batch(torch.empty(0, WIDTH), torch.arange(0), torch.arange(0))
    x = torch.randn(5, WIDTH)
    batches = Inputs(
        Batch(x[:3], torch.arange(3), torch.zeros(3, dtype=int)), Batch(x[3:], torch.arange(2)), empty
    )
    outputs = Outputs.split(*network(x), batches)
    torch.testing.assert_close(outputs.together()[0], network(x)[0])
    moved = dataclasses.replace(outputs.target, features=outputs.target.features + 1)
    together = dataclasses.replace(outputs, target=moved).together()[0]
    torch.testing.assert_close(together[3:], network(x)[0][3:] + 1)
