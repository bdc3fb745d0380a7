"""How far the class weights are believed."""

from __future__ import annotations

import pytest
import torch
from test_ba3us import made, step_outputs

from ba3us import losses, methods
from ba3us.errors import UserError
from ba3us.methods.base import Step
from toys import CLASSES, build

M = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)


def cautious(**options):
    method = build(discriminator_dropout=0.0, **options)[1].double()
    method.class_weights.copy_(M)
    return method


@pytest.mark.parametrize("progress", [0.0, 0.25, 1.0])
def test_weights_are_mixed_with_uniform_ones_in_proportion_to_progress(progress):
    outputs, step = step_outputs(), Step(int(100 * progress), 100)
    expected = (1 - progress) / CLASSES + progress * M
    source = outputs.source
    terms = cautious().losses(outputs, step)
    by_hand = losses.weighted_cross_entropy(source.logits, source.labels, expected[source.labels])
    torch.testing.assert_close(terms["classification"], by_hand)
    believing = made()
    believing.class_weights.copy_(expected)
    for name, value in believing.losses(outputs, step).items():
        torch.testing.assert_close(terms[name], value, msg=name)


def test_published_settings_and_printed_formulas_believe_at_once():
    step = Step(1, 100)
    for options in ({"trust": "full"}, {"form": "paper"}):
        torch.testing.assert_close(cautious(**options).effective_class_weights(step), M)
    assert methods.get("ba3us").options(protocol="office-home").trust == "full"
    assert cautious().effective_class_weights(step)[3] > 0.2


def test_unknown_trust_is_a_sentence():
    with pytest.raises(UserError, match=r"trust.*'progress' or 'full'"):
        methods.get("ba3us").options(trust="blind")
