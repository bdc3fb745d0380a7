"""HAFN and SAFN: which norms they ask for, and how they are trained."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ba3us import methods
from ba3us.errors import UserError
from ba3us.methods.base import WARMUP
from ba3us.training import loop
from toys import CLASSES, WIDTH, blobs, build, trainer


def test_hafn_draws_the_mean_norm_to_the_radius_and_safn_every_norm_outward():
    features = torch.tensor([[3.0, 4.0], [0.0, 1.0]], requires_grad=True)  # norms 5 and 1
    hard = build("hafn", radius=4.0)[1].norm_loss(features)
    assert hard.item() == pytest.approx(1.0)  # (3 - 4)²
    (gradient,) = torch.autograd.grad(hard, features)
    torch.testing.assert_close(gradient, -torch.tensor([[0.6, 0.8], [0.0, 1.0]]))
    (gradient,) = torch.autograd.grad(build("safn", growth=2.0)[1].norm_loss(features), features)
    torch.testing.assert_close(gradient, -2 * torch.tensor([[0.6, 0.8], [0.0, 1.0]]))


def test_dropout_keeps_the_expected_squared_norm():
    network, _ = build("safn", bottleneck=4000)
    x = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(0))
    network.bottleneck[1].momentum = 1.0  # evaluation then sees this batch's statistics
    with torch.no_grad():
        dropped = network.train()(x)[0].norm(dim=1)
        whole = network.eval()(x)[0].norm(dim=1)
    torch.testing.assert_close(dropped.mean(), whole.mean(), rtol=0.03, atol=0.0)


def test_hafn_learns_the_source_and_its_norm_first():
    source, target, _ = blobs()
    history = trainer("hafn", source_steps=3).fit(source, target).history
    warmup = history[history["phase"] == WARMUP]
    assert len(warmup) == 3 and len(history) == 8
    assert warmup["norm_source"].notna().all() and warmup["norm_target"].isna().all()
    assert history["norm_target"].notna().sum() == 5


def test_the_backbone_has_no_momentum():
    backbone = nn.Linear(WIDTH, WIDTH)
    fitted = trainer("safn", backbone=backbone)
    groups = {
        g["lr_scale"]: g["momentum"]
        for g in loop.optimizer(fitted.module, fitted.recipe, fitted.recipe.phases[0]).param_groups
    }
    assert groups == {0.1: 0.0, 1.0: 0.9}
    assert not fitted.recipe.nesterov


def test_entropy_is_a_term_of_its_own():
    source, target, _ = blobs()
    assert "entropy" in trainer("safn+ent").fit(source, target).history
    assert "entropy" not in trainer("safn").fit(source, target).history


def test_published_epochs_count_the_targets_full_batches():
    office_home = methods.get("hafn").options(protocol="office-home", task="Cl->Ar")  # 1089 target images
    assert (office_home.source_steps, office_home.steps) == (60 * 34, 180 * 34)
    assert (office_home.learning_rate, office_home.backbone_scale, office_home.decay_gamma) == (1e-3, 1.0, 0.0)
    assert methods.get("safn").options(protocol="office31", task="A->D").steps == 100 * 4


def test_a_batch_of_one_is_refused():
    with pytest.raises(UserError, match="'batch_size' is 1: it must be from 2"):
        methods.get("safn").options(batch_size=1)


def test_a_zero_feature_has_a_finite_gradient():
    features = torch.zeros(3, CLASSES, requires_grad=True)
    for name in ("hafn", "safn"):
        (gradient,) = torch.autograd.grad(build(name)[1].norm_loss(features), features)
        assert torch.isfinite(gradient).all()
