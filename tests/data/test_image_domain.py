"""Image domains: the paper's transforms, repeatable by draw, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ba3us.data.image_domains import ImageSource, ImageTarget, PixelArray
from ba3us.errors import UserError
from image_toys import MEAN, SIDE, SIZE, STD, coloured, image_domains


def test_evaluation_sees_the_centre():
    _, target = image_domains()
    pixels = target.pixels.array[:, 2:34, 2:34].transpose(0, 3, 1, 2) / 255
    expected = (pixels - np.array(MEAN)[:, None, None]) / np.array(STD)[:, None, None]
    for indices in (slice(2, 5), np.array([2, 3, 4])):
        x = target.batch(indices)
        np.testing.assert_allclose(x, expected[2:5], atol=1e-5)
        assert x.is_contiguous(memory_format=torch.channels_last) and x.dtype == torch.float32
    assert target.batch(slice(5, 50), torch.float64).shape == (2, 3, SIZE, SIZE)
    assert target.shape == (3, SIZE, SIZE) and len(target) == 7 and target.views is None


def test_training_sees_windows_of_the_image():
    """Every training crop is some window of its image, mirrored or not, and they differ between draws."""
    _, target = image_domains()
    draws = np.arange(6) * 7919
    x = target.training_batch(np.full(6, 3), draws)
    image = torch.from_numpy(target.pixels.array[3])
    mean, std = torch.tensor(MEAN), torch.tensor(STD)
    for crop in x:
        back = ((crop.permute(1, 2, 0) * std + mean) * 255).round().to(torch.uint8)
        assert any(
            torch.equal(window, image[top : top + SIZE, left : left + SIZE])
            for window in (back, back.flip(1))
            for top in range(SIDE - SIZE + 1)
            for left in range(SIDE - SIZE + 1)
        )
    assert len({crop.numpy().tobytes() for crop in x}) > 3
    assert torch.equal(x, target.training_batch(np.full(6, 3), draws))
    assert torch.equal(x[2:4], target.training_batch(np.full(2, 3), draws[2:4]))


def test_seeds_give_other_crops():
    (_, a), (_, b) = image_domains(), image_domains(seed=1)
    rows = np.arange(7)
    assert not torch.equal(a.training_batch(rows, rows), b.training_batch(rows, rows))


def test_a_number_of_views():
    source, _ = image_domains(views=3)
    other, _ = image_domains(views=3, seed=5)
    draws = np.arange(200)
    seen = source.training_batch(np.zeros(200, dtype=int), draws)
    views = source.crop(np.zeros(3, dtype=int), np.arange(3))
    assert torch.equal(seen, views[torch.from_numpy(source.views_of(draws))])
    # another seed shows the same views in another order
    assert torch.equal(views, other.crop(np.zeros(3, dtype=int), np.arange(3)))
    assert not np.array_equal(source.views_of(draws), other.views_of(draws))
    assert torch.equal(source.crop(np.arange(4), np.full(4, -1)), source.batch(slice(0, 4)))


def test_ten_crop():
    _, target = image_domains(ten_crop=True)
    assert len(target.views) == 10
    corner = target.view_batch(0, slice(0, 2))
    assert torch.equal(target.view_batch(5, slice(0, 2)), corner.flip(3))
    assert torch.equal(target.view_batch(4, slice(0, 2)), target.batch(slice(0, 2)))


def test_no_rows():
    source, target = image_domains()
    none = np.empty(0, dtype=np.int64)
    assert target.training_batch(none, none).shape == (0, 3, SIZE, SIZE)
    assert source.batch(none).shape == (0, 3, SIZE, SIZE)


def test_reads_ahead(monkeypatch):
    _, target = image_domains()
    told = []
    monkeypatch.setattr(target.pixels, "expect", lambda rows: told.append(rows.tolist()))
    target.batch(slice(0, 3))
    target.batch(slice(3, 6))
    target.batch(slice(6, 9))
    target.batch(np.array([1]))
    target.expect(np.array([4, 2]))
    assert told == [[3, 4, 5], [6], [], [4, 2]]


def test_labels():
    source, _ = image_domains()
    assert source.labels.tolist() == [0, 1, 2] * 4 and source.num_classes == 3
    pixels = PixelArray(coloured(np.zeros(2, dtype=int)))
    assert ImageSource(pixels, [0, 1], SIZE, MEAN, STD, num_classes=5).num_classes == 5
    with pytest.raises(UserError, match="2 rows but labels of shape"):
        ImageSource(pixels, [0], SIZE, MEAN, STD)


def test_refusals():
    pixels = PixelArray(coloured(np.zeros(2, dtype=int)))
    with pytest.raises(UserError, match="crops of side 40"):
        ImageTarget(pixels, 40, MEAN, STD)
    with pytest.raises(UserError, match="views is -1"):
        ImageTarget(pixels, SIZE, MEAN, STD, views=-1)
    with pytest.raises(UserError, match="device 'nowhere'"):
        ImageTarget(pixels, SIZE, MEAN, STD, device="nowhere")
    with pytest.raises(UserError, match="target is empty"):
        ImageTarget(PixelArray(pixels.array[:0]), SIZE, MEAN, STD)
    with pytest.raises(UserError, match=r"give squares"):
        PixelArray(np.zeros((2, 3, 4, 3), dtype=np.uint8))
