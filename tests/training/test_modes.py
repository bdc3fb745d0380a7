"""Batch norm, train and eval modes, frozen parts, parameter groups."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn

from ba3us.data import Source
from ba3us.errors import UserError
from ba3us.methods.base import Batch, Inputs, Phase
from ba3us.training import Callback, Execution, Trainer
from ba3us.training.evaluation import evaluating
from toys import CLASSES, WIDTH, blobs, build, trainer

RUN = Execution(n_threads=1, log_every=1)


class Noting(nn.Module):
    """A backbone with batch norm that writes down how many rows it was given, and in which mode."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)
        self.passes = []

    def forward(self, x):
        self.passes.append((len(x), self.training))
        return self.norm(x)


def batch(n, offset=0.0, labelled=True):
    g = torch.Generator().manual_seed(n)
    x = torch.randn(n, WIDTH, generator=g) + offset
    return Batch(x, torch.arange(n), torch.zeros(n, dtype=torch.long) if labelled else None)


# --- batch norm ---


def test_each_domain_has_its_own_pass_and_statistics():
    noting = Noting()
    network, method = build(backbone=noting)
    out = method.outputs(network, Inputs(batch(6), batch(5, 100.0, False), batch(3, -50.0)))
    assert noting.passes == [(6, True), (5, True), (3, True)]
    # normalised by its own mean, a domain's offset is gone: its features average to the bottleneck's bias
    for domain in (out.source, out.target, out.borrowed):
        torch.testing.assert_close(domain.features.mean(0), network.bottleneck.bias, atol=1e-3, rtol=0)


def test_running_statistics_blend_source_target_borrowed_in_that_order():
    noting = Noting()
    network, method = build(backbone=noting)
    batches = (batch(6), batch(5, 100.0, False), batch(3, -50.0))
    method.outputs(network, Inputs(*batches))
    expected = torch.zeros(WIDTH)
    for b in batches:
        expected = 0.9 * expected + 0.1 * b.x.mean(0)
    torch.testing.assert_close(noting.norm.running_mean, expected)


def test_a_borrowed_batch_of_one_row_never_meets_batch_norm():
    noting = Noting()
    network, method = build(backbone=noting)
    out = method.outputs(network, Inputs(batch(6), batch(6, labelled=False), batch(1)))
    assert noting.passes == [(6, True), (6, True)]
    assert len(out.borrowed.features) == len(out.borrowed.rows) == len(out.borrowed.labels) == 0
    assert out.borrowed.logits.shape == (0, CLASSES)
    plain, method = build()
    assert len(method.outputs(plain, Inputs(batch(6), batch(6), batch(1))).borrowed.features) == 1


def test_a_run_through_one_borrowed_row_is_finite():
    source, target, _ = blobs()
    noting = Noting()
    # 6·0.34 = 2 borrowed at first, then 1, then none
    result = trainer(backbone=noting, rho=0.34, steps=9, refresh_every=3).fit(source, target)
    assert result.history["borrowed"].tolist() == [2] * 3 + [1] * 3 + [0] * 3
    assert result.history["loss"].map(math.isfinite).all()
    assert min(n for n, training in noting.passes if training) == 2


@pytest.mark.parametrize("n_target", [1, 3])
def test_a_tiny_target_is_cycled_to_a_full_batch_for_batch_norm(n_target):
    source, target, _ = blobs(n_target=n_target)
    noting = Noting()
    result = trainer(backbone=noting).fit(source, target)
    assert result.history["loss"].map(math.isfinite).all()
    assert {n for n, training in noting.passes if training} == {6}


def test_batches_of_one_row_with_batch_norm_are_a_sentence():
    source, target, _ = blobs()
    with pytest.raises(UserError, match=r"batch_size is 1.*batch norm.*at least 2"):
        trainer(backbone=Noting(), batch_size=1).fit(source, target)
    assert trainer(batch_size=1).fit(source, target).history["loss"].map(math.isfinite).all()


# --- modes ---


def test_evaluation_restores_every_mode():
    module = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5)))
    module[1][0].eval()
    before = [m.training for m in module.modules()]
    with evaluating(module):
        assert not any(m.training for m in module.modules())
        assert not torch.is_grad_enabled()
    assert [m.training for m in module.modules()] == before == [True, True, True, False, True]
    with pytest.raises(RuntimeError), evaluating(module):
        raise RuntimeError
    assert [m.training for m in module.modules()] == before and torch.is_grad_enabled()


def test_every_update_is_in_training_mode_and_every_prediction_in_evaluation_mode():
    """No mode leak: also the update right after an evaluation trains with batch statistics."""
    source, target, _ = blobs()
    noting = Noting()
    trainer(backbone=noting, rho=0.0, steps=6, refresh_every=2).fit(source, target)
    update, look = [(6, True), (6, True)], [(18, False)]
    assert noting.passes == (2 * update + look) * 3


def test_predicting_leaves_the_statistics_alone():
    source, target, _ = blobs()
    result = trainer(backbone=Noting()).fit(source, target)
    before = result.module.network.backbone.norm.running_mean.clone()
    result.predict(target)
    assert torch.equal(result.module.network.backbone.norm.running_mean, before)


# --- what a phase trains ---


def frozen_backbone_phase(method, **options):
    phase = Phase("adapt", 4, trains=("network.bottleneck", "network.classifier", "method"))
    return dataclasses.replace(method.recipe(), phases=(phase,), **options)


def test_parts_a_phase_does_not_train_stay_as_they_are_in_eval_mode():
    source, target, _ = blobs()
    noting = Noting()
    network, method = build(backbone=nn.Sequential(noting, nn.Linear(WIDTH, WIDTH)))
    before = {k: v.clone() for k, v in network.backbone.state_dict().items()}
    heads = network.classifier.weight.detach().clone()
    Trainer(network, method, RUN, recipe=frozen_backbone_phase(method)).fit(source, target)
    for name, value in network.backbone.state_dict().items():
        assert torch.equal(value, before[name]), name  # batch norm's statistics too
    assert not any(training for _, training in noting.passes)
    assert not torch.equal(network.classifier.weight, heads)


def test_a_frozen_part_needs_no_separate_passes():
    source, target, _ = blobs()
    noting = Noting()
    network, method = build(backbone=noting, rho=0.0)
    Trainer(network, method, RUN, recipe=frozen_backbone_phase(method)).fit(source, target)
    assert noting.passes[0] == (12, False)


def test_a_later_phase_trains_again_what_an_earlier_one_froze():
    source, target, _ = blobs()
    network, method = build(backbone=nn.Linear(WIDTH, WIDTH))
    head = Phase("head", 2, trains=("network.classifier",), adapts=False, target=False)
    recipe = dataclasses.replace(
        method.recipe(), phases=(dataclasses.replace(head, name="warmup"), Phase("adapt", 3))
    )
    weights = []

    class Look(Callback):
        def on_step(self, trainer, step):
            weights.append(network.backbone.weight.detach().clone())

    Trainer(network, method, RUN, recipe=recipe, callbacks=[Look()]).fit(source, target)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2]) and not torch.equal(weights[2], weights[4])


def test_parameters_frozen_by_the_caller_stay_frozen():
    source, target, _ = blobs()
    backbone = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
    before = backbone.weight.clone()
    result = trainer(backbone=backbone, warmup_steps=2).fit(source, target)
    assert torch.equal(result.module.network.backbone.weight, before)
    assert not backbone.weight.requires_grad


def test_the_backbone_learns_a_tenth_as_fast():
    """Plain SGD: Δw = -lr·scale·gradient, for every parameter group."""
    source, target, _ = blobs()
    network, method = build(
        backbone=nn.Linear(WIDTH, WIDTH), momentum=0.0, weight_decay=0.0, learning_rate=0.02, steps=1
    )
    noted = {}

    class Note(Callback):
        def on_gradients(self, trainer, step):
            for name, p in trainer.module.named_parameters():
                noted[name] = (p.detach().clone(), p.grad.clone())

    result = Trainer(network, method, RUN, callbacks=[Note()]).fit(source, target)
    assert {n.rsplit(".", 2)[0] for n in noted} >= {"network", "method.discriminator"}
    for name, (before, grad) in noted.items():
        rate = 0.002 if name.startswith("network.backbone") else 0.02
        assert grad.any(), name
        torch.testing.assert_close(result.states["last"][name], before - rate * grad, rtol=1e-5, atol=1e-7)


def test_weight_decay_and_nesterov_momentum_as_released():
    """Two updates with a constant gradient: v ← g, then 0.9 v + g; w ← w - lr (g + 0.9 v)."""
    source, _, _ = blobs()
    network, method = build("source-only", weight_decay=0.1, learning_rate=0.5, steps=2, refresh_every=2)
    w = network.classifier.bias.detach().clone().double()
    gradients = []

    class Note(Callback):
        def on_gradients(self, trainer, step):
            gradients.append(network.classifier.bias.grad.clone().double())

    result = Trainer(network, method, RUN, callbacks=[Note()]).fit(source, Source(np.zeros((1, WIDTH)), [0]))
    v = torch.zeros_like(w)
    for i, gradient in enumerate(gradients):
        g = gradient + 0.1 * w
        v = 0.9 * v + g
        w = w - 0.5 * (1 + 0.001 * i) ** -0.75 * (g + 0.9 * v)
    torch.testing.assert_close(
        result.states["last"]["network.classifier.bias"].double(), w, rtol=1e-5, atol=1e-7
    )
