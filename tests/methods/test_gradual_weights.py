"""Class weights that take effect gradually (ba3us-gradual), and at once (ba3us)."""

from __future__ import annotations

import pytest
import torch
from test_ba3us import made, step_outputs

from ba3us import losses, methods
from ba3us.methods.base import Step
from toys import CLASSES, build

M = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)


def gradual(name="ba3us-gradual", **options):
    method = build(name, discriminator_dropout=0.0, **options)[1].double()
    method.class_weights.copy_(M)
    return method


@pytest.mark.parametrize("progress", [0.0, 0.25, 1.0])
def test_weights_are_mixed_with_uniform_ones_in_proportion_to_progress(progress):
    outputs, step = step_outputs(), Step(int(100 * progress), 100)
    expected = (1 - progress) / CLASSES + progress * M
    source = outputs.source
    terms = gradual().losses(outputs, step)
    by_hand = losses.weighted_cross_entropy(source.logits, source.labels, expected[source.labels])
    torch.testing.assert_close(terms["classification"], by_hand)
    at_once = made(beta=1.0)
    at_once.class_weights.copy_(expected)
    for name, value in at_once.losses(outputs, step).items():
        torch.testing.assert_close(terms[name], value, msg=name)


def test_the_published_method_uses_them_at_once():
    step = Step(1, 100)
    for options in ({}, {"form": "paper"}):
        torch.testing.assert_close(gradual("ba3us", **options).effective_class_weights(step), M)
    assert gradual().effective_class_weights(step)[3] > 0.2


def test_the_defaults_are_the_papers_and_the_gradual_variant_is_named_as_ours():
    options = methods.get("ba3us").options()
    assert (options.alpha, options.beta, options.xi, options.rho, options.gradual_weights) == (
        0.1,
        5,
        1,
        0.25,
        False,
    )
    assert (options.learning_rate, options.backbone_scale, options.batch_size) == (0.01, 0.1, 36)
    entry = methods.get("ba3us-gradual")
    assert entry.info.losses == "variant" and "Ours" in entry.info.note
    for protocol in (None, "office31"):
        options = entry.options(protocol)
        assert (options.beta, options.gradual_weights) == (1.0, True)
    others = [methods.get(n).options() for n in ("e-dann", "aus", "baa", "ba3us-closed", "ba3us+cdan")]
    assert not any(each.gradual_weights for each in others)
