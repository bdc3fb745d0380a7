"""MCS: the closed-form solution, on a shifted toy and at its edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ba3us.data import Source, Target
from ba3us.methods.base import DomainOutputs
from ba3us.training import Execution
from toys import CLASSES, blobs, build, fit


def shifted(n=40, classes=4, width=12, seed=0):
    """Every class has moved a little, in its own direction; rows vary much where classes do not differ."""
    g = np.random.default_rng(seed)
    centres = np.zeros((classes, width))
    centres[:, :6] = 3 * g.standard_normal((classes, 6))
    noise = np.where(np.arange(width) < 6, 0.5, 2.0)
    moved = centres + 1.5 * g.standard_normal((classes, width))

    def draw(where):
        y = np.arange(n * classes) % classes
        return (where[y] + noise * g.standard_normal((len(y), width))).astype(np.float32), y

    return *draw(centres), *draw(moved)


def nearest_source_centroid(xs, ys, xt):
    unit = [F.normalize(torch.as_tensor(x), dim=1) for x in (xs, xt)]
    centroids = torch.stack([unit[0][torch.as_tensor(ys) == c].mean(dim=0) for c in np.unique(ys)])
    return torch.cdist(unit[1], centroids).argmin(dim=1).numpy()


@pytest.mark.parametrize("seed", range(3))
def test_it_improves_on_the_nearest_source_centroid(seed):
    xs, ys, xt, yt = shifted(seed=seed)
    before = (nearest_source_centroid(xs, ys, xt) == yt).mean()
    result = fit("mcs", Source(xs, ys), Target(xt), options={"steps": 5}, config=Execution(n_threads=1))
    after = (result.predict(Target(xt)).logits.argmax(dim=1).numpy() == yt).mean()
    assert after > before + 0.03, (before, after)


def solved(target_rows, seed=0):
    g = torch.Generator().manual_seed(seed)
    network, method = build("mcs", bottleneck=None)
    labels = torch.arange(40) % CLASSES
    features = 3 * F.one_hot(labels, 6) + torch.randn(40, 6, generator=g)
    method.refresh_source(DomainOutputs(features, torch.zeros(40, CLASSES), torch.arange(40), labels))
    x = features[:target_rows] + 0.5
    method.refresh(DomainOutputs(x, torch.zeros(target_rows, CLASSES), torch.arange(target_rows)))
    return network, method, x


def test_rows_lie_as_near_to_their_centroids_in_every_direction():
    """P scales its directions by what is minimised: Pᵀ(within + α·shift + β)P = I."""
    method = build("mcs", bottleneck=None, pull=2.0, ridge=0.5)[1]
    g = torch.Generator().manual_seed(0)
    x, within, shift = (torch.randn(20, 3, generator=g, dtype=torch.float64) for _ in range(3))
    p = method._subspace(x, within, shift)
    near = within.T @ within + 2.0 * shift.T @ shift
    near += 0.5 * near.trace() / 3 * torch.eye(3)
    torch.testing.assert_close(p.T @ near @ p, torch.eye(3, dtype=torch.float64))
    spread = p.T @ torch.cov(x.T) @ p  # and the spread of the rows is told apart
    torch.testing.assert_close(spread, spread.diagonal().diag())


@pytest.mark.parametrize("rows", [1, 2])
def test_a_target_of_a_row_or_two_is_classified(rows):
    network, method, x = solved(rows)
    logits = method.predict(network, x)[1]
    assert torch.isfinite(logits).all()
    assert logits.argmax(dim=1).tolist() == list(range(rows))


def test_a_class_without_source_rows_and_classes_without_target_rows():
    source, target, _ = blobs(present=1)
    wider = Source(source.batch(slice(None)).numpy(), source.labels.numpy(), num_classes=CLASSES + 1)
    result = fit("mcs", wider, target, options={"steps": 3}, config=Execution(n_threads=1))
    assert torch.isfinite(result.predict(target).logits).all()


def test_what_is_recorded_is_the_solution():
    source, target, _ = blobs()
    result = fit("mcs", source, target, options={"steps": 3}, config=Execution(n_threads=1))
    assert [(e.phase, e.step) for e in result.evaluations] == [("warmup", 3), ("solve", 0)]
    predicted = result.predict(target).logits.argmax(dim=1).numpy()
    assert np.array_equal(result.evaluations[-1].predictions, predicted)
    assert result.best_index == 1  # the solution, whatever the entropy


@pytest.mark.parametrize("precision", ["bf16-true", "bf16-mixed", "64-true"])
def test_any_precision(precision):
    source, target, labels = blobs()
    config = Execution(n_threads=1, precision=precision)
    result = fit("mcs", source, target, options={"steps": 3}, config=config)
    assert (result.predict(target).logits.argmax(dim=1).numpy() == labels).mean() > 0.7
