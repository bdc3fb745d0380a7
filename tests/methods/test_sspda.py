"""SSPDA: permutations, tiles, and images only."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from ba3us.data import Source, Target
from ba3us.errors import UserError
from ba3us.methods.sspda import distant_permutations, shuffle_tiles
from ba3us.training import Execution
from toys import blobs, build, fit, trainer


def test_permutations_are_valid_distinct_and_far_apart():
    chosen = distant_permutations(30)
    assert torch.equal(chosen.sort(dim=1).values, torch.arange(9).expand(30, 9))
    distances = (chosen[:, None] != chosen[None]).sum(dim=2)[~torch.eye(30, dtype=torch.bool)]
    assert distances.min() >= 7  # JiGen's released set: at least 4
    assert (chosen != torch.arange(9)).sum(dim=1).min() >= 7  # none looks ordered
    assert torch.equal(distant_permutations(5), chosen[:5])


def test_tiles_move_and_can_be_put_back():
    images = torch.arange(2 * 1 * 6 * 6, dtype=torch.float32).reshape(2, 1, 6, 6)
    order = torch.tensor([[8, 1, 2, 3, 4, 5, 6, 7, 0], list(range(9))])
    shuffled = shuffle_tiles(images, order)
    assert torch.equal(shuffled[0, :, :2, :2], images[0, :, 4:, 4:])
    assert torch.equal(shuffled[0, :, 4:, 4:], images[0, :, :2, :2])
    assert torch.equal(shuffled[1], images[1])
    assert torch.equal(shuffle_tiles(shuffled, order.argsort(dim=1)), images)


def test_what_three_tiles_do_not_cover_stays():
    images = torch.rand(1, 3, 8, 7)
    shuffled = shuffle_tiles(images, torch.tensor([[8, 7, 6, 5, 4, 3, 2, 1, 0]]))
    assert torch.equal(shuffled[:, :, 6:], images[:, :, 6:])
    assert torch.equal(shuffled[:, :, :, 6:], images[:, :, :, 6:])


def test_grey_tiles_are_whole_tiles_of_colour_images():
    method = build("sspda", grey=0.5)[1]
    images = torch.rand(4, 3, 7, 7)
    grey = method._greyed(images)
    changed = (grey != images).any(dim=1)
    assert torch.equal(changed[:, 0, 0], changed[:, 1, 1]) and torch.equal(changed[:, 4, 6], changed[:, 6, 4])
    assert changed[:, ::3, ::3].any() and not changed.all()
    tile = grey.permute(0, 2, 3, 1)[changed]
    torch.testing.assert_close(tile[:, 0], tile[:, 2])
    ink = torch.rand(2, 1, 6, 6)
    assert method._greyed(ink) is ink


def picture_domains(n=24):
    """Two classes of small images: a bright corner, here or there."""
    g = np.random.default_rng(0)
    y = np.arange(n) % 2
    x = 0.1 * g.standard_normal((n, 3, 12, 12)).astype(np.float32)
    for i, label in enumerate(y):
        x[i, :, :4, :4] += 1 - label
        x[i, :, 8:, 8:] += label
    return Source(x, y), Target(x[:10] + 0.1), y[:10]


def test_it_learns_from_small_images():
    source, target, labels = picture_domains()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        backbone = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    result = fit(
        "sspda",
        source,
        target,
        options={"steps": 40, "batch_size": 8, "permutations": 3},
        backbone=backbone,
        backbone_dim=4 * 144,
        config=Execution(n_threads=1, log_every=1),
    )
    assert (result.predict(target).logits.argmax(dim=1).numpy() == labels).mean() > 0.9
    jigsaw = result.history["jigsaw"]
    assert jigsaw.tail(5).mean() < jigsaw.head(5).mean()


@pytest.mark.parametrize("shape", [(6,), (3, 2, 2)])
def test_features_and_tiny_images_are_refused_in_a_sentence(shape):
    source, target, _ = blobs()
    fitted = trainer("sspda", backbone=nn.Flatten())
    if len(shape) == 3:
        rows = np.zeros((8, *shape), dtype=np.float32)
        source, target = Source(rows, np.arange(8) % 4), Target(rows)
    with pytest.raises(
        UserError, match=r"^SSPDA cuts images into 3×3 tiles but a sample has shape .*: give it"
    ):
        fitted.fit(source, target)
