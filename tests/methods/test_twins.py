"""TWINs: two networks, their own batches, one prediction."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ba3us import losses
from ba3us.methods.base import Batch, Inputs, Step
from ba3us.training import loop
from toys import CLASSES, WIDTH, blobs, build, same_state, trainer


def inputs(n=6):
    g = torch.Generator().manual_seed(0)

    def batch(labelled):
        labels = torch.randint(CLASSES, (n,), generator=g) if labelled else None
        return Batch(torch.randn(n, WIDTH, generator=g), torch.arange(n), labels)

    return Inputs(batch(True), batch(False), batch(True))


def test_the_twins_start_apart_and_each_learns_from_its_own_batch():
    network, method = build("twins")
    assert not torch.equal(network.classifier.weight, method.twin.classifier.weight)
    data = inputs()
    out = method.outputs(network, data)
    torch.testing.assert_close(out.source.logits, network(data.source.x)[1])
    torch.testing.assert_close(out.borrowed.logits, method.twin(data.borrowed.x)[1])
    torch.testing.assert_close(out.target.extra["twin"], method.twin(data.target.x)[1])


def test_the_prediction_is_the_mean_of_both():
    network, method = build("twins")
    x = inputs().target.x
    both = (network(x)[1].softmax(dim=1) + method.twin(x)[1].softmax(dim=1)) / 2
    torch.testing.assert_close(method.predict(network, x)[1].exp(), both)


def test_disagreement_is_zero_for_equal_and_two_for_opposite_predictions():
    sure = torch.tensor([[50.0, 0.0], [0.0, 50.0]])
    assert losses.disagreement(sure, sure) == 0
    assert losses.disagreement(sure, sure.flip(1)) == pytest.approx(2.0)


def test_agreement_comes_in_slowly():
    network, method = build("twins")
    out = method.outputs(network, inputs())
    terms = [method.losses(out, Step(i, 10))["agreement"] for i in (0, 1, 10)]
    assert terms[0] == 0 < terms[1] < terms[2]


def test_a_warmup_teaches_both():
    source, target, _ = blobs()
    fitted = trainer("twins", warmup_steps=4)
    before = {k: v.clone() for k, v in fitted.method.state_dict().items()}
    history = fitted.fit(source, target).history
    assert history.loc[history["phase"] == "warmup", "classification_twin"].notna().all()
    assert not same_state(before, fitted.method.state_dict())


def test_a_shared_backbone_exists_once_and_learns_at_the_backbones_rate():
    backbone = nn.Linear(WIDTH, WIDTH)
    shared, apart = (trainer("twins", backbone=backbone, shared_backbone=s) for s in (True, False))
    names = {n for n, _ in shared.module.named_parameters()}
    assert not any(n.startswith("method.twin.backbone") for n in names)
    optimizer = loop.optimizer(apart.module, apart.recipe, apart.recipe.phases[0])
    slow = sum(len(g["params"]) for g in optimizer.param_groups if g["lr_scale"] == 0.1)
    assert slow == 4  # weight and bias, twice
    source, target, _ = blobs()
    assert torch.isfinite(shared.fit(source, target).predict(target).logits).all()
