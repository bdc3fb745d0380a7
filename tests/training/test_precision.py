"""Precisions: bfloat16 autocast trains with losses in float32; float64 runs in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from ba3us.training import Execution, Trainer
from toys import WIDTH, blobs, build


def dtypes_of(precision, name="ba3us", **options):
    """Train a little; the dtypes of logits and of every term, and the result."""
    source, target, _ = blobs()
    backbone = nn.Linear(WIDTH, WIDTH)
    nn.init.eye_(backbone.weight), nn.init.zeros_(backbone.bias)
    network, method = build(name, backbone, discriminator_dropout=0.0, **options)
    seen = {"logits": set(), "terms": set()}
    inner = method.losses

    def noted(outputs, step):
        seen["logits"] |= {outputs.source.logits.dtype, outputs.target.logits.dtype}
        terms = inner(outputs, step)
        seen["terms"] |= {t.dtype for t in terms.values()}
        return terms

    method.losses = noted
    run = Execution(n_threads=1, log_every=1, precision=precision, accelerator="cpu")
    result = Trainer(network, method, run).fit(source, target)
    return seen, result


@pytest.mark.parametrize("name", ["dann", "e-dann", "ba3us", "ba3us+cdan"])
def test_under_bfloat16_autocast_the_losses_are_float32(name):
    seen, result = dtypes_of("bf16-mixed", name)
    assert seen == {"logits": {torch.bfloat16}, "terms": {torch.float32}}
    assert result.history["loss"].map(math.isfinite).all()
    assert {v.dtype for v in result.states["last"].values()} == {torch.float32}


def test_bfloat16_weights_give_float32_losses_and_scores():
    seen, result = dtypes_of("bf16-true")
    assert seen == {"logits": {torch.bfloat16}, "terms": {torch.float32}}
    assert result.history["loss"].map(math.isfinite).all()
    assert all(math.isfinite(e.score) for e in result.evaluations)
    assert result.evaluations[0].mean_probabilities.dtype.name == "float32"


def test_float64_is_float64_throughout():
    seen, result = dtypes_of("64-true")
    assert seen == {"logits": {torch.float64}, "terms": {torch.float64}}
    assert result.states["last"]["network.classifier.weight"].dtype == torch.float64
    _, single = dtypes_of("32-true")
    assert result.history["loss"].iloc[0] == pytest.approx(single.history["loss"].iloc[0], rel=1e-4)
    assert torch.get_default_dtype() == torch.float32


def test_autocast_comes_close_to_float32():
    _, half = dtypes_of("bf16-mixed", steps=1)
    _, full = dtypes_of("32-true", steps=1)
    assert half.history["loss"].iloc[0] == pytest.approx(full.history["loss"].iloc[0], rel=0.02)
