"""Cutting squares of pixels into what a backbone sees. Pure functions; chance is a hash of what it is for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

TEN = 10  # four corners and the centre, and their mirror images


class Windows(NamedTuple):
    """Where to cut each of n squares, and which cuts to mirror."""

    top: np.ndarray
    left: np.ndarray
    flip: np.ndarray


def random_windows(seed: int, rows: np.ndarray, views: np.ndarray, margin: int) -> Windows:
    """Random crop and flip (the paper's training transform) of view `views[i]` of row `rows[i]`.

    The same seed, row and view give the same window, in any batch, process or order.
    """
    chance = _mixed(_mixed(_mixed(np.uint64(seed)) + _wide(rows)) + _wide(views))
    top, left, flip = (_mixed(chance + np.uint64(part)) for part in (1, 2, 3))
    steps = np.uint64(margin + 1)
    return Windows((top % steps).astype(np.int64), (left % steps).astype(np.int64), flip >> np.uint64(63) == 1)


def central_windows(count: int, margin: int) -> Windows:
    """The centre (the paper's test transform)."""
    middle = np.full(count, margin // 2, dtype=np.int64)
    return Windows(middle, middle, np.zeros(count, dtype=bool))


def ten_crop_windows(count: int, view: int, margin: int) -> Windows:
    """View 0 … 9 of ten-crop: corners from left to right and top to bottom, the centre, then all mirrored."""
    corner = view % (TEN // 2)
    top, left = ((0, 0), (0, margin), (margin, 0), (margin, margin), (margin // 2, margin // 2))[corner]
    return Windows(np.full(count, top), np.full(count, left), np.full(count, view >= TEN // 2))


def chosen_views(seed: int, draws: np.ndarray, count: int) -> np.ndarray:
    """Which of `count` views each draw shows."""
    return (_mixed(_mixed(np.uint64(seed) + np.uint64(1)) + _wide(draws)) % np.uint64(count)).astype(np.int64)


def cut(pixels: Tensor, windows: Windows, size: int) -> Tensor:
    """Squares uint8 [n, s, s, 3] → their windows, uint8 [n, size, size, 3]."""
    out = pixels.new_empty(len(pixels), size, size, pixels.shape[3])
    for i, (top, left) in enumerate(zip(windows.top.tolist(), windows.left.tolist())):
        out[i] = pixels[i, top : top + size, left : left + size]
    mirrored = torch.from_numpy(np.flatnonzero(windows.flip)).to(pixels.device)
    if len(mirrored):
        out[mirrored] = out[mirrored].flip(2)
    return out


def normalised(
    pixels: Tensor, mean: tuple[float, ...], std: tuple[float, ...], dtype: torch.dtype = torch.float32
) -> Tensor:
    """uint8 [n, h, w, c] → (pixels / 255 - mean) / std as channels-last [n, c, h, w]."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    scale = torch.tensor(std, dtype=wide, device=pixels.device).view(-1, 1, 1) * 255
    shift = torch.tensor(mean, dtype=wide, device=pixels.device).view(-1, 1, 1) * 255
    x = pixels.permute(0, 3, 1, 2).to(wide, memory_format=torch.channels_last)
    return x.sub_(shift).div_(scale).to(dtype)


def _wide(numbers: np.ndarray) -> np.ndarray:
    return np.asarray(numbers).astype(np.uint64)


def _mixed(x: np.ndarray | np.uint64) -> np.ndarray:
    """SplitMix64's output function (Steele, Lea and Flood 2014): every bit depends on all bits."""
    with np.errstate(over="ignore"):
        z = np.asarray(x, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
