"""Windows by hash, cutting and normalising."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ba3us.data import image_domains


def test_windows_depend_on_seed_row_and_view_only():
    rows, views = np.arange(500) % 50, np.arange(500) // 50
    a = image_domains.random_windows(3, rows, views, 32)
    order = np.random.default_rng(0).permutation(500)
    b = image_domains.random_windows(3, rows[order], views[order], 32)
    for one, other in zip(a, b):
        assert np.array_equal(one[order], other)
    for changed in (
        image_domains.random_windows(4, rows, views, 32),
        image_domains.random_windows(3, rows + 50, views, 32),
        image_domains.random_windows(3, rows, views + 10, 32),
    ):
        assert (changed.top == a.top).mean() < 0.1 and (changed.flip == a.flip).mean() < 0.6


def test_windows_are_uniform_and_independent():
    n = 33 * 33 * 20
    top, left, flip = image_domains.random_windows(0, np.arange(n), np.zeros(n, dtype=int), 32)
    for values in (top, left):
        counts = np.bincount(values, minlength=33)
        assert len(counts) == 33
        assert ((counts - n / 33) ** 2 / (n / 33)).sum() < 65  # chi², 32 degrees of freedom: p = 0.0005
    assert abs(flip.mean() - 0.5) < 0.02
    assert abs(np.corrcoef(np.stack([top, left, flip]))[np.triu_indices(3, 1)]).max() < 0.03


def test_no_margin():
    assert image_domains.random_windows(0, np.arange(5), np.arange(5), 0).top.tolist() == [0] * 5


def test_chosen_views_are_uniform():
    views = image_domains.chosen_views(1, np.arange(4000) << 24, 4)
    assert np.bincount(views, minlength=4).min() > 900
    assert (views != image_domains.chosen_views(2, np.arange(4000) << 24, 4)).mean() > 0.6


def test_cutting_by_hand():
    pixels = torch.arange(2 * 4 * 4 * 3, dtype=torch.uint8).view(2, 4, 4, 3)
    windows = image_domains.Windows(np.array([1, 0]), np.array([2, 1]), np.array([True, False]))
    out = image_domains.cut(pixels, windows, 2)
    assert torch.equal(out[0], pixels[0, 1:3, 2:4].flip(1))
    assert torch.equal(out[1], pixels[1, 0:2, 1:3])
    assert image_domains.cut(pixels[:0], image_domains.central_windows(0, 2), 2).shape == (0, 2, 2, 3)


def test_ten_crop_by_hand():
    pixels = torch.arange(36, dtype=torch.uint8).view(1, 6, 6, 1)
    seen = [
        image_domains.cut(pixels, image_domains.ten_crop_windows(1, view, 2), 4)[0, :, :, 0]
        for view in range(10)
    ]
    corners = [pixels[0, t : t + 4, left : left + 4, 0] for t, left in [(0, 0), (0, 2), (2, 0), (2, 2), (1, 1)]]
    for view in range(5):
        assert torch.equal(seen[view], corners[view])
        assert torch.equal(seen[view + 5], corners[view].flip(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_normalised_by_hand(dtype):
    pixels = torch.randint(0, 256, (2, 3, 3, 3), dtype=torch.uint8)
    x = image_domains.normalised(pixels, (0.5, 0.4, 0.3), (0.5, 0.25, 0.2), dtype)
    by_hand = (pixels.permute(0, 3, 1, 2) / 255 - torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) / torch.tensor(
        [0.5, 0.25, 0.2]
    ).view(3, 1, 1)
    torch.testing.assert_close(
        x,
        by_hand.to(dtype),
        rtol=1e-2 if dtype == torch.bfloat16 else 1e-5,
        atol=1e-2 if dtype == torch.bfloat16 else 1e-5,
    )
    assert x.is_contiguous(memory_format=torch.channels_last) and x.dtype == dtype
