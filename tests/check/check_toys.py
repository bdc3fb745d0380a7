"""Clouds around well separated centres, and photos that a hash can tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from ba3us.check.domains import Domains, Vectors

WIDTH = 20


def clouds(classes: Sequence[int], each: int = 20, shift: float = 0.0, noise: float = 0.3, seed: int = 0):
    """Rows [n, WIDTH] around the centre of each class (the same at every call), and their classes."""
    centres = 2 * np.random.default_rng(99).standard_normal((12, WIDTH))
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.asarray(classes), each)
    rows = centres[labels] + shift + noise * rng.standard_normal((len(labels), WIDTH))
    return rows.astype(np.float32), labels


def opened(
    x: np.ndarray, xt: np.ndarray, labels: np.ndarray | None = None, classes: Sequence[str] = ()
) -> Domains:
    """Domains with these vectors."""
    domains = Domains()
    names = [[str(row) for row in range(len(rows))] for rows in (x, xt)]
    domains.vectors = Vectors(x, np.zeros(len(x), int) if labels is None else labels, xt, classes, *names)
    return domains


def photo(path: Path, seed: int, size: tuple[int, int] = (96, 80), quality: int = 95) -> Path:
    """A picture of coloured patches, fine enough for a hash of 16 × 16 waves, another one for every seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    patches = np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(patches).resize(size, Image.Resampling.BICUBIC).save(path, quality=quality)
    return path
