"""MCC: class confusion by hand."""

from __future__ import annotations

import pytest
import torch

from ba3us import losses


def test_sure_rows_confuse_nothing():
    sure = torch.tensor([[50.0, 0.0, 0.0], [0.0, 50.0, 0.0], [0.0, 0.0, 50.0]])
    assert losses.class_confusion(sure, 1.0) == pytest.approx(0.0, abs=1e-6)


def test_unsure_rows_confuse_every_class_with_every_other():
    """Uniform rows: each row of M is 1/C, so (C - 1)/C of it lies off the diagonal."""
    assert losses.class_confusion(torch.zeros(5, 4), 2.5) == pytest.approx(0.75)


def test_temperature_counts_confusion_that_sharp_predictions_hide():
    logits = torch.tensor([[4.0, 2.0, 0.0], [0.0, 4.0, 2.0]])
    assert losses.class_confusion(logits, 2.5) > losses.class_confusion(logits, 1.0)


@pytest.mark.parametrize("scale", [40.0, 1e4])
def test_saturated_logits_and_absent_classes_stay_finite(scale):
    logits = torch.tensor([[scale, -scale, -scale], [scale, -scale, -scale]], requires_grad=True)
    loss = losses.class_confusion(logits, 1.0)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.isfinite(loss) and torch.isfinite(gradient).all()
