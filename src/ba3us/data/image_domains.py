"""Domains of images: random crops for training, the centre for evaluation, ten crops as views."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ba3us.data.domains import Source, Target
from ba3us.data.store import KEY_BYTES
from ba3us.errors import UserError, require

TEN = 10  # four corners and the centre, and their mirror images
CENTRE = -1  # the number of the view for evaluation


class Windows(NamedTuple):
    """Where to cut each of n squares, and which cuts to mirror."""

    top: np.ndarray
    left: np.ndarray
    flip: np.ndarray


def random_windows(seed: int, rows: np.ndarray, views: np.ndarray, margin: int) -> Windows:
    """Random crop and flip (the paper's training transform) of view `views[i]` of row `rows[i]`.

    The same seed, row and view give the same window, in any batch, process or order: chance is a hash.
    """
    chance = _mixed(_mixed(_mixed(np.uint64(seed)) + rows.astype(np.uint64)) + views.astype(np.uint64))
    top, left, flip = (_mixed(chance + np.uint64(part)) for part in (1, 2, 3))
    steps = np.uint64(margin + 1)
    return Windows((top % steps).astype(np.int64), (left % steps).astype(np.int64), flip >> np.uint64(63) == 1)


def central_windows(count: int, margin: int) -> Windows:
    """The centre (the paper's test transform)."""
    middle = np.full(count, margin // 2, dtype=np.int64)
    return Windows(middle, middle, np.zeros(count, dtype=bool))


def ten_crop_windows(count: int, view: int, margin: int) -> Windows:
    """View 0 … 9 of ten-crop: the corners row by row, the centre, then all of them mirrored."""
    corner = view % (TEN // 2)
    top, left = ((0, 0), (0, margin), (margin, 0), (margin, margin), (margin // 2, margin // 2))[corner]
    return Windows(np.full(count, top), np.full(count, left), np.full(count, view >= TEN // 2))


def chosen_views(seed: int, draws: np.ndarray, count: int) -> np.ndarray:
    """Which of `count` views each draw uses."""
    chance = _mixed(_mixed(np.uint64(seed) + np.uint64(1)) + np.asarray(draws).astype(np.uint64))
    return (chance % np.uint64(count)).astype(np.int64)


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


def _mixed(x: np.ndarray | np.uint64) -> np.ndarray:
    """SplitMix64's output function (Steele, Lea and Flood 2014): every output bit depends on all input bits."""
    with np.errstate(over="ignore"):
        z = np.asarray(x, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


class Pixels(Protocol):
    """Decoded squares, such as :class:`ba3us.data.image_cache.CachedPixels`."""

    side: int

    def __len__(self) -> int: ...
    def identity(self, row: int) -> bytes:
        """Equal for equal pixels."""

    def read(self, rows: np.ndarray) -> np.ndarray:
        """uint8 [n, side, side, 3]."""

    def expect(self, rows: np.ndarray) -> None:
        """Announce rows that will be read soon."""


class ImageTarget(Target):
    """Unlabelled images.

    Training uses a random crop, mirrored half of the time; evaluation uses the centre. A crop follows from the
    seed, the row and the number of the draw alone, so a resumed run uses the same crops.

    Parameters
    ----------
    pixels : Pixels
        The images as squares.
    size : int
        Side of a crop.
    mean, std : three floats
        The backbone's normalisation of pixels in [0, 1].
    seed : int
        Seed of the crops.
    views : int, optional
        Number of fixed crops per image, the same for every seed; with 0, training uses the centre. By default
        every draw is a new crop.
    ten_crop : bool
        Offer ten crops to methods that refresh from views.
    device : str
        Where crops are cut and normalised; "auto" is a GPU if there is one.
    """

    prefetches = True

    def __init__(
        self,
        pixels: Pixels,
        size: int,
        mean: Sequence[float],
        std: Sequence[float],
        *,
        seed: int = 0,
        views: int | None = None,
        ten_crop: bool = False,
        device: str | torch.device = "cpu",
        name: str = "target",
    ) -> None:
        require(len(pixels) > 0, f"The {name} is empty: give at least one image.")
        require(
            0 < size <= pixels.side,
            f"The {name} has images of side {pixels.side} and crops of side {size}: make the crops smaller.",
        )
        require(views is None or views >= 0, f"The number of views is {views}: it must be at least 0.")
        self.pixels, self.size, self.name = pixels, size, name
        self.mean, self.std = tuple(mean), tuple(std)
        self.seed, self.view_count = seed, views
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            self.device = torch.device(device)
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise UserError(
                f"The device {str(device)!r} can't be used here: choose 'cpu', or 'auto'."
            ) from error
        self.views = range(TEN) if ten_crop else None
        self.shape = (len(self.mean), size, size)
        self._margin = pixels.side - size

    def __len__(self) -> int:
        return len(self.pixels)

    def batch(self, indices: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """The centre of each image."""
        rows = self._announce_next(indices)
        return self._cut(rows, central_windows(len(rows), self._margin), dtype)

    def training_batch(self, indices: Any, draws: np.ndarray, dtype: torch.dtype = torch.float32) -> Tensor:
        """A random crop of each image, perhaps mirrored; `draws` number the draws of a run."""
        return self.crop(self.rows(indices), self.views_of(draws), dtype)

    def view_batch(self, view: int, indices: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """One of the ten crops of each image."""
        rows = self._announce_next(indices)
        return self._cut(rows, ten_crop_windows(len(rows), view, self._margin), dtype)

    def expect(self, indices: Any) -> None:
        """Start to decode the rows of the next batch."""
        self.pixels.expect(self.rows(indices))

    def views_of(self, draws: np.ndarray) -> np.ndarray:
        """The number of the view that each draw uses."""
        if self.view_count is None:
            return draws
        return (
            chosen_views(self.seed, draws, self.view_count) if self.view_count else np.full(len(draws), CENTRE)
        )

    def crop(self, rows: np.ndarray, views: np.ndarray, dtype: torch.dtype = torch.float32) -> Tensor:
        """View `views[i]` of image `rows[i]`; view -1 is the centre."""
        seed = self.seed if self.view_count is None else 0
        random = random_windows(seed, rows, np.maximum(views, 0), self._margin)
        centre = central_windows(len(rows), self._margin)
        windows = (np.where(views == CENTRE, c, r) for c, r in zip(centre, random))
        return self._cut(rows, Windows(*windows), dtype)

    def rows(self, indices: Any) -> np.ndarray:
        """Row numbers of an integer array or a slice."""
        if isinstance(indices, slice):
            return np.arange(*indices.indices(len(self)))
        return np.asarray(indices, dtype=np.int64)

    def _announce_next(self, indices: Any) -> np.ndarray:
        """The rows of a batch; after a slice, the next slice is announced."""
        rows = self.rows(indices)
        if isinstance(indices, slice) and len(rows):
            self.pixels.expect(np.arange(rows[-1] + 1, min(len(self), rows[-1] + 1 + len(rows))))
        return rows

    def _cut(self, rows: np.ndarray, windows: Windows, dtype: torch.dtype) -> Tensor:
        squares = torch.from_numpy(self.pixels.read(rows)).to(self.device)
        return normalised(cut(squares, windows, self.size), self.mean, self.std, dtype)


class ImageSource(ImageTarget, Source):
    """Labelled images: as :class:`ImageTarget`, plus integer labels 0 … C-1."""

    def __init__(
        self,
        pixels: Pixels,
        labels: Any,
        size: int,
        mean: Sequence[float],
        std: Sequence[float],
        *,
        num_classes: int | None = None,
        name: str = "source",
        **options: Any,
    ) -> None:
        ImageTarget.__init__(self, pixels, size, mean, std, name=name, **options)
        self._set_labels(labels, num_classes)


class PixelArray:
    """Squares in memory, uint8 [n, side, side, 3]."""

    def __init__(self, array: np.ndarray) -> None:
        require(
            array.ndim == 4 and array.dtype == np.uint8 and array.shape[1] == array.shape[2],
            f"The pixels have shape {array.shape} and type {array.dtype}: give squares, uint8 [n, s, s, 3].",
        )
        self.array, self.side = array, array.shape[1]

    def __len__(self) -> int:
        return len(self.array)

    def identity(self, row: int) -> bytes:
        """A hash of the pixels."""
        return hashlib.blake2b(self.array[row].tobytes(), digest_size=KEY_BYTES).digest()

    def read(self, rows: np.ndarray) -> np.ndarray:
        """uint8 [n, side, side, 3]."""
        return self.array[rows]

    def expect(self, rows: np.ndarray) -> None:
        """Nothing to prepare."""
