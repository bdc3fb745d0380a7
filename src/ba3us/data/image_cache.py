"""Decoding images, whatever is in the files, and a cache on disk: each file is decoded once for all lists."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import stat
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ba3us.data.images import FORMATS, ImageList, Skipped
from ba3us.data.machine import DEFAULT_CACHE_GB, cache_bytes, worker_count
from ba3us.data.store import KEY_BYTES, Store, cache_folder
from ba3us.errors import UserError, optional_import
from ba3us.progress import bar

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 90_000_000  # a larger image could fill the memory; JPEGs are measured after shrinking
_UPRIGHT = {  # Pillow's transposition by EXIF orientation
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270",
    7: "TRANSVERSE", 8: "ROTATE_90",
}  # fmt: skip
_DECODER = 1  # part of every key: raise it when decode() changes its pixels
_MAX_WAITING = 1024  # images that are decoded ahead of their use
# The JPEG decoder may shrink an image to no less than this many times the wanted side. Estimated on 27 photos
# of 1000 px, brought to smaller sides and back up: at 3.1 times, EfficientNet-Lite0's features keep a mean
# cosine of 0.9995 (lowest 0.9977) to those of whole decoding; at 2 times 0.9975 (0.990).
DRAFT = 3

A = TypeVar("A")
B = TypeVar("B")


class UnreadableError(Exception):
    """A file that can't be decoded; the message is the reason."""


def open_image(path: str | os.PathLike[str]) -> Image:
    """Open a file with Pillow, in the supported formats only, whatever its suffix says."""
    return optional_import("PIL.Image", "vision").open(path, formats=FORMATS)


def decode(path: str | os.PathLike[str], side: int) -> np.ndarray:
    """Decode an image file as uint8 [side, side, 3], without keeping its aspect.

    EXIF orientation is applied, transparency becomes white, 16-bit and float images become 8-bit. Of an
    animation the first frame is taken. Large JPEGs are shrunk while decoding.

    Raises
    ------
    UnreadableError
        With the reason, for anything that can't be decoded.
    """
    pil = optional_import("PIL.Image", "vision")
    return np.array(_shrunk(path, side, lambda image: image.resize((side, side), pil.Resampling.BILINEAR)))


def thumbnail(path: str | os.PathLike[str], side: int) -> bytes:
    """A small JPEG of an image file, decoded as by :func:`decode` but with its aspect."""

    def shrink(image: Image) -> Image:
        small = image.copy()
        small.thumbnail((side, side))
        small.info.clear()  # no comments, no places
        return small

    out = io.BytesIO()
    _shrunk(path, side, shrink).save(out, "JPEG", quality=70)
    return out.getvalue()


def _shrunk(path: str | os.PathLike[str], side: int, shrink: Callable[[Image], Image]) -> Image:
    """The image upright, in RGB and shrunk; UnreadableError with the reason if it can't be decoded."""
    pil = optional_import("PIL.Image", "vision")
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableError("not a regular file")  # reading a pipe would never end
        if status.st_size == 0:
            raise UnreadableError("the file is empty")
        if not os.access(path, os.R_OK):
            raise UnreadableError("no permission to read it")
    except FileNotFoundError as error:
        raise UnreadableError("a broken link" if os.path.islink(path) else "the file is missing") from error
    except (OSError, ValueError) as error:
        raise UnreadableError(f"can't be read ({error})") from error
    try:
        with open_image(path) as image:
            image.draft(image.mode, (DRAFT * side, DRAFT * side))
            if image.width * image.height > MAX_PIXELS:
                raise UnreadableError(f"{image.width}×{image.height} pixels are too many: shrink the image")
            rotation = None
            with suppress(Exception):  # there may be no EXIF data, or damaged ones
                rotation = pil.Transpose[_UPRIGHT[image.getexif()[0x0112]]]
            small = shrink(_rgb(image))
        return small if rotation is None else small.transpose(rotation)
    except UnreadableError:
        raise
    except pil.DecompressionBombError as error:
        raise UnreadableError("too many pixels: shrink the image") from error
    except pil.UnidentifiedImageError as error:
        raise UnreadableError("not an image of a supported format, or a damaged one") from error
    except Exception as error:  # Pillow's decoders raise many kinds on damaged files
        raise UnreadableError(f"damaged ({str(error)[:120] or type(error).__name__})") from error


def map_in_order(function: Callable[[A], B], items: Iterable[A], workers: int) -> Iterator[B]:
    """``map`` with threads: results in order, and only a few computed ahead of their use."""
    waiting: deque[Future[B]] = deque()
    pool = ThreadPoolExecutor(max_workers=workers)
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _rgb(image: Image) -> Image:
    """In 8 bits, and transparency on white; if a deeper mode leaves it open, the largest value decides."""
    pil = optional_import("PIL.Image", "vision")
    if image.mode == "RGB":
        return image
    if image.mode.startswith(("I", "F")):
        values = np.nan_to_num(np.asarray(image).astype(np.float32))
        largest = float(values.max())
        if image.mode.startswith("I;16"):
            white = 65535.0
        elif image.mode == "F" and largest <= 1:
            white = 1.0
        else:
            white = 255.0 if largest <= 255 else max(65535.0, largest)
        grey = np.clip(values * (255.0 / white) + 0.5, 0, 255).astype(np.uint8)
        return pil.fromarray(grey).convert("RGB")
    if image.has_transparency_data:
        layered = image.convert("RGBA")
        white = pil.new("RGBA", layered.size, (255, 255, 255, 255))
        return pil.alpha_composite(white, layered).convert("RGB")
    return image.convert("RGB")


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """Silence warnings about large or slightly damaged images: :func:`decode` handles them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


@dataclass(frozen=True)
class Readable:
    """The images of a list that can be read, their pixels, and the files that were skipped."""

    images: ImageList
    pixels: CachedPixels
    skipped: list[Skipped]


class CachedPixels:
    """Squares of images, uint8 [n, side, side, 3], from the cache or decoded; several threads may read.

    Parameters
    ----------
    images : ImageList
        Files that could be read a moment ago.
    keys : list of bytes
        The identity of each file.
    side : int
        Side of the squares in pixels.
    store : Store
        The cache.
    workers : int
        Threads that decode.
    """

    def __init__(self, images: ImageList, keys: list[bytes], side: int, store: Store, workers: int) -> None:
        self.images, self.keys, self.side = images, keys, side
        self._store = store
        warnings.filterwarnings("ignore", module=r"PIL\.")  # as quiet_pillow, for all threads
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="ba3us-decode")
        self._waiting: dict[int, Future[np.ndarray]] = {}

    def __len__(self) -> int:
        return len(self.images)

    @property
    def complete(self) -> bool:
        """Whether the cache holds every image."""
        return all(key in self._store for key in self.keys)

    def identity(self, row: int) -> bytes:
        """Equal for equal pixels."""
        return self.keys[row]

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Squares at `rows`, uint8 [n, side, side, 3]."""
        pixels, found = self._store.read([self.keys[row] for row in rows])
        missing = np.flatnonzero(~found)
        self._submit(rows[missing].tolist())
        for position, row in zip(missing, rows[missing].tolist()):
            self._submit([row])  # of a row that is asked for twice, the first has taken the result
            try:
                pixels[position] = self._waiting.pop(row).result()
            except UnreadableError as error:
                raise UserError(
                    f"The image {self.images.file(row)} can no longer be read ({error}): "
                    f"leave the files alone while a run goes on."
                ) from error
        return pixels

    def expect(self, rows: np.ndarray) -> None:
        """Start to decode rows that are needed soon and not cached."""
        missing = [int(row) for row in rows if self.keys[row] not in self._store]
        for row in [*self._waiting][: max(0, len(self._waiting) + len(missing) - _MAX_WAITING)]:
            self._waiting.pop(row).cancel()
        self._submit(missing[:_MAX_WAITING])

    def _submit(self, rows: Iterable[int]) -> None:
        for row in rows:
            if row not in self._waiting:
                self._waiting[row] = self._pool.submit(decode, self.images.file(row), self.side)


def open_images(
    images: ImageList,
    side: int,
    *,
    cache_gb: float = DEFAULT_CACHE_GB,
    workers: int | None = None,
    progress: bool = False,
    title: str = "Decoding",
) -> Readable:
    """Decode images into the cache, as far as its budget goes, and skip those that can't be read.

    A file is identified by its path, size and time of change. Images beyond the budget are decoded once, to
    see whether they can be read, and again whenever they are used.

    Parameters
    ----------
    images : ImageList
        Files to open.
    side : int
        Side of the squares in pixels.
    cache_gb : float
        Disk space for all decoded images of this user, in 10⁹ bytes; 0: no cache.
    workers : int, optional
        Threads that decode; by default one per processor, at most 16.
    progress : bool
        Show a progress bar.
    title : str
        Title of the progress bar.
    """
    budget, workers = cache_bytes(cache_gb), worker_count(workers)
    keys = [identity(images.file(row), side) for row in range(len(images))]
    store = Store(cache_folder() / "pixels", (side, side, 3), np.uint8, budget, keys)
    reasons: dict[int, str] = {}  # by row, why an image can't be decoded

    def attempt(row: int) -> np.ndarray | str:
        try:
            return decode(images.file(row), side)
        except UnreadableError as error:
            return str(error)

    position, full = 0, False
    with bar(title, len(images), progress) as progress_bar, quiet_pillow():
        while position < len(keys):  # a shard at a time
            with store.locked():
                full = full or not store.make_room(1)
                missing, position = store.missing(keys, position, unseen=full)
                decoded, squares = [], []
                for row, outcome in zip(missing, map_in_order(attempt, missing, workers)):
                    progress_bar.update(row)
                    if isinstance(outcome, str):
                        reasons[row] = outcome
                    elif not keys[row]:
                        reasons[row] = "the file was missing for a moment"
                    else:
                        decoded.append(keys[row])
                        squares.append(outcome)
                if decoded:
                    added = store.add(decoded, np.stack(squares))
                    store.note(decoded[added:])
            progress_bar.update(position)
    skipped = images.skipped + [Skipped(images.paths[row], reason) for row, reason in sorted(reasons.items())]
    rows = [row for row in range(len(images)) if row not in reasons]
    if not rows:
        raise UserError(
            f"None of the {len(images)} images of {images.root} can be read (the first, {images.paths[0]!r}: "
            f"{reasons[0]}): check the files."
        )
    readable = dataclasses.replace(images.subset(rows), skipped=skipped)
    pixels = CachedPixels(readable, [keys[row] for row in rows], side, store, workers)
    return Readable(readable, pixels, skipped)


def identity(path: Path, side: int) -> bytes:
    """A key that changes with the file; empty if the file is missing."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return b""
    times = f"{status.st_mtime_ns}\0{status.st_ctime_ns}"  # a copy may keep the first, but not the second
    text = f"{_DECODER}\0{side}\0{os.path.abspath(path)}\0{status.st_size}\0{times}"
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=KEY_BYTES).digest()
