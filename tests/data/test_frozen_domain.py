"""Kept activations: the same as running the frozen part, made once, within a budget."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ba3us.data import activations, store
from ba3us.data.activations import FrozenSource, FrozenTarget
from ba3us.errors import UserError
from image_toys import MEAN, STD, image_domains


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BA3US_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "_SHARD_ROWS", 5)
    return tmp_path / "cache"


class Front(nn.Module):
    """A convolution with batch norm that notes the batches it is shown; no layer that could be fused."""

    def __init__(self, scale=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.norm = nn.Parameter(0.2 * torch.randn(5, 3, 4, 4)), nn.BatchNorm2d(5)
        nn.init.constant_(self.norm.weight, scale)
        self.batches, self.n_threads = [], []

    @property
    def images(self):
        return sum(self.batches)

    def forward(self, x):
        assert not self.training and not torch.is_grad_enabled()
        self.batches.append(len(x))
        self.n_threads.append(torch.get_num_threads())
        return self.norm(F.conv2d(x, self.weight, stride=4))


class Pooled(nn.Module):
    """The mean of each channel: a vector."""

    def forward(self, x):
        return x.mean((2, 3))


def test_activations_are_those_of_the_front():
    source, target = image_domains(views=3)
    front = Front()
    frozen = FrozenSource(source, front, activations="float32", batch_size=4)
    assert frozen.shape == (5, 8, 8) and len(frozen) == 12
    assert frozen.labels.tolist() == source.labels.tolist() and frozen.num_classes == 3
    made, rows, draws = front.images, np.array([3, 0, 3, 11]), np.array([5, 6, 7, 8])
    assert made == 1 + 12 * 4
    x, y = frozen.batch(slice(2, 9)), frozen.training_batch(rows, draws)
    assert front.images == made  # nothing was computed again
    with torch.no_grad():
        torch.testing.assert_close(x, front(source.batch(slice(2, 9))))
        torch.testing.assert_close(y, front(source.training_batch(rows, draws)))
    assert x.is_contiguous(memory_format=torch.channels_last) and x.dtype == torch.float32
    assert frozen.batch(np.empty(0, dtype=int), torch.float64).shape == (0, 5, 8, 8)
    again = FrozenSource(image_domains(views=3)[0], Front(), activations="float32")
    assert again.front.images == 1 and torch.equal(again.batch(slice(2, 9)), x)
    assert FrozenTarget(target, Front(), activations="float32").front.images == 1 + 7 * 4


def test_other_weights_normalisation_or_views_are_computed_anew():
    FrozenTarget(image_domains(views=2)[1], Front())
    assert FrozenTarget(image_domains(views=2)[1], Front(2.0)).front.images == 1 + 7 * 3
    assert FrozenTarget(image_domains(views=4)[1], Front()).front.images == 1 + 7 * 2  # two views are there
    assert FrozenTarget(image_domains(size=28)[1], Front()).front.images == 1 + 7


def test_half_precision_rounds_kept_and_unkept_alike():
    domain = image_domains(views=2)[1]
    kept, unkept = FrozenTarget(domain, Front()), FrozenTarget(domain, Front(), cache_gb=0)
    rows, draws = np.arange(7), np.arange(7)
    torch.testing.assert_close(
        kept.training_batch(rows, draws), unkept.training_batch(rows, draws), rtol=1e-3, atol=1e-3
    )
    assert torch.equal(unkept.batch(slice(0, 7)).half().float(), unkept.batch(slice(0, 7)))


@pytest.mark.parametrize("rows_kept", [0, 4])
def test_beyond_the_budget(rows_kept, own_cache):
    domain = image_domains(views=2)[1]
    size = 5 * 8 * 8 * 4
    frozen = FrozenTarget(
        domain, Front(), activations="float32", cache_gb=(rows_kept + 0.5) * size / 1e9 if rows_kept else 0
    )
    assert sum(p.stat().st_size for p in own_cache.rglob("*.rows")) == rows_kept * size
    with torch.no_grad():
        expected = Front().eval()(domain.batch(slice(0, 7)))
    torch.testing.assert_close(frozen.batch(slice(0, 7)), expected)


def test_endless_views_and_ten_crops_are_computed_when_asked_for():
    domain = image_domains(ten_crop=True)[1]
    frozen = FrozenTarget(domain, Front(), activations="float32")
    assert frozen.front.images == 1 + 7 and len(frozen.views) == 10
    rows, draws = np.arange(3), np.arange(3)
    with torch.no_grad():
        front = Front().eval()
        torch.testing.assert_close(
            frozen.training_batch(rows, draws), front(domain.training_batch(rows, draws))
        )
        torch.testing.assert_close(frozen.view_batch(7, slice(0, 3)), front(domain.view_batch(7, slice(0, 3))))


def test_vectors():
    frozen = FrozenTarget(image_domains()[1], Pooled())
    assert frozen.shape == (3,) and frozen._store.dtype == np.float32  # not halved, as maps are
    colour = frozen.images.pixels.array[:, 2:34, 2:34].mean((1, 2)) / 255
    np.testing.assert_allclose(frozen.batch(slice(0, 7)), (colour - MEAN) / STD, atol=1e-5)
    np.testing.assert_array_equal(frozen.centres(), frozen.batch(slice(0, 7)))


@pytest.mark.parametrize("cache_gb", [0, 1])
def test_the_number_of_workers_does_not_matter(cache_gb, monkeypatch, tmp_path):
    seen = []
    for workers in (1, 2, 5):
        monkeypatch.setenv("BA3US_CACHE", str(tmp_path / f"cache{workers}"))
        domain = image_domains(views=2)[0]
        frozen = FrozenTarget(domain, Front(), workers=workers, batch_size=4, cache_gb=cache_gb)
        draws = np.arange(12)
        seen.append(torch.cat([frozen.batch(slice(0, 12)), frozen.training_batch(draws, draws)]))
    assert torch.equal(seen[0], seen[1]) and torch.equal(seen[0], seen[2])


def test_torch_computes_with_few_threads_in_each_worker_and_is_given_them_back(monkeypatch):
    monkeypatch.setattr(activations, "cpu_count", lambda: 4)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        front = FrozenTarget(image_domains()[0], Front(), workers=2, batch_size=4).front
        assert front.images == 1 + 12 and front.n_threads == [2] * len(front.batches)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_no_views_are_the_centre():
    domain = image_domains(views=0)[1]
    frozen = FrozenTarget(domain, Front())
    assert frozen.front.images == 1 + 7
    rows, draws = np.array([4, 2, 4]), np.arange(3)
    for one in (domain, frozen):
        assert torch.equal(one.training_batch(rows, draws), one.batch(rows))


def test_convolutions_of_other_strides_are_other_fronts():
    """What a front computes on a CPU has its layers fused: they must not be told apart by weights alone."""
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    conv = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1, stride=2), nn.ReLU(), pooled)
    first = FrozenTarget(image_domains()[1], conv).centres()
    conv[0].stride = (1, 1)
    assert np.abs(FrozenTarget(image_domains()[1], conv).centres() - first).max() > 1e-4


def test_precision_is_part_of_what_is_kept():
    exact = FrozenTarget(image_domains()[1], Front()).batch(slice(0, 7))
    rounded = FrozenTarget(image_domains()[1], Front(), precision="bfloat16").batch(slice(0, 7))
    assert not torch.equal(exact, rounded)
    torch.testing.assert_close(exact, rounded, rtol=0.05, atol=0.05)


def test_reads_ahead_only_what_is_not_kept(monkeypatch):
    told = []
    for options in ({"views": 2}, {}):
        domain = image_domains(**options)[1]
        frozen = FrozenTarget(domain, Front())
        monkeypatch.setattr(domain, "expect", lambda rows: told.append(rows.tolist()))
        frozen.expect(np.array([1, 2]))
    assert told == [[1, 2]]  # of endless views


def test_refusals():
    domain = image_domains()[1]
    with pytest.raises(UserError, match="'int8': choose float16 or float32"):
        FrozenTarget(domain, Front(), activations="int8")
    for options, message in (
        ({"cache_gb": -1}, "cache_gb is -1"),
        ({"cache_gb": float("inf")}, "cache_gb is inf"),
        ({"precision": "half"}, "Unknown precision 'half'"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"workers": -1}, "workers is -1"),
    ):
        with pytest.raises(UserError, match=message):
            FrozenTarget(domain, Front(), **options)
    with pytest.raises(UserError, match="keep them as float32"):
        FrozenTarget(domain, Front(1e6))
