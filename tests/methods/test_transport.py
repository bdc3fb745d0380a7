"""JUMBOT and m-POT: what their plans move and what they leave behind."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ba3us.methods.base import DomainOutputs, Outputs, Step
from toys import CLASSES, build, trainer


def test_mpot_moves_its_share_and_the_cheapest_pairs_first():
    cost = np.array([[0.0, 9.0, 9.0], [9.0, 0.0, 9.0], [9.0, 9.0, 9.0]])  # the last row fits nothing
    method = build("m-pot", regularisation=0.0, mass=0.5)[1]
    plan = method.plan(cost, Step(10, 10))
    assert plan.sum() == pytest.approx(0.5)
    assert plan[0, 0] + plan[1, 1] == pytest.approx(0.5)
    assert plan[2].sum() == pytest.approx(0.0)


def test_mpot_mass_rises_over_the_first_half():
    method = build("m-pot", mass=0.5, first_mass=0.1)[1]
    assert [method.mass(Step(i, 100)) for i in (0, 25, 50, 100)] == pytest.approx([0.1, 0.3, 0.5, 0.5])


@pytest.mark.parametrize("regularisation", [0.0, 0.5])
def test_mpot_can_move_everything(regularisation):
    """The weights of 49 rows add up to a bit less than 1."""
    method = build("m-pot", mass=1.0, first_mass=1.0, regularisation=regularisation)[1]
    cost = np.random.default_rng(0).random((49, 49))
    assert method.plan(cost, Step(0, 10)).sum() == pytest.approx(1.0, abs=1e-3)


@pytest.mark.filterwarnings("ignore:If reg_type")
def test_jumbot_leaves_far_rows_out():
    cost = np.array([[0.0, 2.0], [0.01, 2.0]])  # no source row is near the second target row
    plan = build("jumbot")[1].plan(cost, Step(0, 1))
    assert plan[:, 1].sum() < 1e-3 < plan[:, 0].sum()


def test_jumbot_wants_balanced_source_batches():
    assert trainer("jumbot").recipe.balanced_source
    assert not trainer("m-pot").recipe.balanced_source


def outputs(scale):
    g = torch.Generator().manual_seed(0)

    def domain(labels=None):
        logits = scale * torch.randn(6, CLASSES, generator=g).sign()
        features = torch.randn(6, 5, generator=g).requires_grad_()
        return DomainOutputs(features, logits.requires_grad_(), torch.arange(6), labels)

    return Outputs(domain(torch.arange(6) % CLASSES), domain(), domain(torch.arange(6) % CLASSES))


@pytest.mark.parametrize("scale", [1.0, 40.0, 1e4])
@pytest.mark.parametrize("name", ["jumbot", "m-pot"])
def test_costs_beyond_the_reach_of_exp_stay_finite(name, scale):
    out, method = outputs(scale), build(name)[1]
    loss = method.losses(out, Step(1, 10))["transport"]
    gradients = torch.autograd.grad(loss, [out.source.features, out.target.features, out.target.logits])
    assert torch.isfinite(loss)
    assert all(torch.isfinite(g).all() for g in gradients)


def test_the_plan_is_held_fixed():
    """The gradient of Σ π∘M is that of M under a constant π."""
    out, method = outputs(1.0), build("m-pot")[1]
    loss = method.losses(out, Step(5, 10))["transport"]
    (gradient,) = torch.autograd.grad(loss, out.target.features)
    c, f, g = method.options, out.source.features.detach(), out.target.features
    squares = ((f[:, None] - g[None]) ** 2).sum(dim=2)
    labels = -out.target.logits.log_softmax(dim=1)[:, out.source.labels].T
    cost = c.feature_weight * squares + c.label_weight * labels
    plan = torch.as_tensor(method.plan(cost.detach().double().numpy(), Step(5, 10))).float()
    (expected,) = torch.autograd.grad((plan * cost).sum(), g)
    torch.testing.assert_close(gradient, expected)
