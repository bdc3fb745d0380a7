"""Features of any scale train with every method: they are standardised where they are far from unit scale."""

from __future__ import annotations

import numpy as np
import pytest

from ba3us.run.arrays import ArraySamples, OpenedArrays
from ba3us.run.spec import Spec
from ba3us.run.train import train_one
from ba3us.training.monitoring import DivergedError

WIDTH, CLASSES = 1024, 6


def log_mel(seed: int, n: int = 360) -> OpenedArrays:
    """Shifted clouds with a standard deviation of 3.5 and no value beyond 9.5."""
    g = np.random.default_rng(seed)
    centres, shift = g.standard_normal((CLASSES, WIDTH)), 0.5 * g.standard_normal(WIDTH)
    y, yt = np.arange(n) % CLASSES, np.arange(n // 2) % (CLASSES // 2)
    x = centres[y] + 0.6 * g.standard_normal((n, WIDTH))
    xt = centres[yt] + shift + 0.6 * g.standard_normal((n // 2, WIDTH))
    source, target = (np.clip(3.5 * a / x.std(), -9.5, 9.5).astype("f4") for a in (x, xt))
    return OpenedArrays(ArraySamples((WIDTH,)), source, y, target, list(range(CLASSES)))


def spec(method: str, seed: int, **fields) -> Spec:
    return Spec(method=method, method_params={"steps": 60}, seed=seed, n_threads=1, **fields)


@pytest.mark.parametrize(
    ("method", "seed"), [("ba3us", 1), ("ba3us", 2), ("ba3us", 3), ("dann", 2), ("dann", 3), ("cdan", 2)]
)
def test_log_mel_features_train(method, seed):
    run, _ = train_one(spec(method, seed), log_mel(seed))
    assert run.spec.standardize is True
    assert np.isfinite(run.history["loss"].dropna()).all()


def test_it_is_the_scale_that_makes_them_diverge():
    with pytest.raises(DivergedError):
        train_one(spec("ba3us", 2, standardize=False), log_mel(2))


@pytest.mark.parametrize("scale", [0.4, 0.9])
def test_features_of_backbones_stay_as_they_are(scale):
    """Rectified, with a root mean square as that of EfficientNet-Lite0 or ResNet-50."""
    x = np.maximum(np.random.default_rng(0).standard_normal((200, 64)), 0)
    x = (scale * x / np.sqrt(np.mean(x**2))).astype("f4")
    opened = OpenedArrays(ArraySamples((64,)), x, np.arange(200) % 2, x, [0, 1])
    assert opened.samples_for(Spec(method="ba3us")).standardized is False
    assert opened.samples_for(Spec(method="ba3us", standardize=True)).standardized is True
