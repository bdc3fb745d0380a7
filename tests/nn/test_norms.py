"""Scaling by the source."""

from __future__ import annotations

import pytest
import torch

from ba3us.nn.norms import Standardize, far_from_unit

G = torch.Generator().manual_seed(0)


def test_starts_as_no_change_and_standardises_once_fitted():
    rows = torch.randn(200, 3, generator=G) * torch.tensor([1e4, 1.0, 1e-4]) + torch.tensor([5e4, 0.0, 1.0])
    scale = Standardize(3)
    assert torch.equal(scale(rows), rows)
    seen = scale.fit(rows)(rows)
    assert seen.mean(dim=0).abs().max() < 1e-2
    assert torch.allclose(seen.std(dim=0, unbiased=False), torch.ones(3), atol=1e-2)


def test_a_constant_column_is_left_alone():
    rows = torch.randn(50, 2, generator=G)
    rows[:, 1] = 7
    assert torch.isfinite(Standardize(2).fit(rows)(rows)).all()
    assert (Standardize(2).fit(rows)(rows)[:, 1] == 0).all()


@pytest.mark.parametrize(
    ("factor", "far"),
    [(1.0, False), (0.3, False), (3.5, True), (1e4, True), (1e-4, True), ([1.0, 1.0, 1e3], True)],
)
def test_which_columns_are_far_from_unit_scale(factor, far):
    assert far_from_unit(torch.randn(100, 3, generator=G) * torch.tensor(factor)) is far


def test_zeros_are_not_a_division_by_zero():
    assert far_from_unit(torch.zeros(5, 2)) is True
    assert torch.isfinite(Standardize(2).fit(torch.zeros(5, 2))(torch.zeros(5, 2))).all()


def test_the_smallest_deviation_is_not_rounded_to_nothing():
    """Half of the smallest number that float32 has."""
    rows = torch.tensor([[1e-45], [0.0]])
    assert torch.isfinite(Standardize(1).fit(rows)(rows)).all()
