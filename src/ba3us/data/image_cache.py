"""Decoded images, kept: each file is decoded once, whichever list names it."""

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
from contextlib import contextmanager
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
    from PIL.Image import Image, Transpose


# --- decoding ---------------------------------------------------------------------------------------------
# Opening image files, whatever is in them, as small RGB squares.


MOST_PIXELS = 90_000_000  # larger ones could fill the memory; JPEGs are measured after shrinking
_ORIENTATION = 0x0112  # the EXIF tag
# The JPEG decoder may shrink an image to no less than this many times the wanted side. Estimated on 27 photos
# of 1000 px, brought to smaller sides and back up: at 3.1 times, EfficientNet-Lite0's features keep a mean
# cosine of 0.9995 (lowest 0.9977) to those of whole decoding; at 2 times 0.9975 (0.990).
DRAFT = 3

A = TypeVar("A")
B = TypeVar("B")


class UnreadableError(Exception):
    """A file that gives no image; the message is the reason."""


def open_image(path: str | os.PathLike[str]) -> Image:
    """Open a file with Pillow, in the supported formats only, whatever its suffix says."""
    return optional_import("PIL.Image", "vision").open(path, formats=FORMATS)


def decode(path: str | os.PathLike[str], side: int) -> np.ndarray:
    """An image file as uint8 [side, side, 3], resized without keeping its aspect.

    EXIF orientation is applied, transparency is laid on white, 16-bit and float images are brought to 8
    bits, of an animation the first frame is taken. Large JPEGs are shrunk while decoding.

    Raises
    ------
    UnreadableError
        With the reason, for anything that can't be decoded.
    """
    pil = optional_import("PIL.Image", "vision")
    return np.array(_shrunk(path, side, lambda image: image.resize((side, side), pil.Resampling.BILINEAR)))


def thumbnail(path: str | os.PathLike[str], side: int) -> bytes:
    """An image file as a small JPEG for people: as :func:`decode`, but its aspect is kept."""

    def shrink(image: Image) -> Image:
        small = image.copy()
        small.thumbnail((side, side))
        small.info.clear()  # comments and places stay with the file
        return small

    out = io.BytesIO()
    _shrunk(path, side, shrink).save(out, "JPEG", quality=70)
    return out.getvalue()


def _shrunk(path: str | os.PathLike[str], side: int, shrink: Callable[[Image], Image]) -> Image:
    """The image upright, in RGB and made small; UnreadableError with the reason if there is none."""
    pil = optional_import("PIL.Image", "vision")
    _check_file(path)
    try:
        with open_image(path) as image:
            image.draft(image.mode, (DRAFT * side, DRAFT * side))
            if image.width * image.height > MOST_PIXELS:
                raise UnreadableError(f"{image.width}×{image.height} pixels are too many: shrink the image")
            turn = _turn(image)
            small = shrink(_rgb(image))
        return small if turn is None else small.transpose(turn)
    except UnreadableError:
        raise
    except pil.DecompressionBombError as error:
        raise UnreadableError("too many pixels: shrink the image") from error
    except pil.UnidentifiedImageError as error:
        raise UnreadableError("not an image of a supported format, or a damaged one") from error
    except Exception as error:  # Pillow's decoders raise many kinds on damaged files
        raise UnreadableError(f"damaged ({str(error)[:120] or type(error).__name__})") from error


def map_in_order(function: Callable[[A], B], items: Iterable[A], workers: int) -> Iterator[B]:
    """``map`` with threads: results in order, and only a few computed before they are asked for."""
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


def _check_file(path: str | os.PathLike[str]) -> None:
    try:
        status = os.stat(path)
    except FileNotFoundError as error:
        raise UnreadableError("a broken link" if os.path.islink(path) else "the file is missing") from error
    except (OSError, ValueError) as error:
        raise UnreadableError(f"can't be read ({error})") from error
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableError("not a regular file")  # reading a pipe would wait for ever
    if status.st_size == 0:
        raise UnreadableError("the file is empty")
    if not os.access(path, os.R_OK):
        raise UnreadableError("no permission to read it")


def _turn(image: Image) -> Transpose | None:
    """The transposition that puts an image upright; None if there is none or its EXIF is damaged."""
    pil = optional_import("PIL.Image", "vision")
    turns = {
        2: pil.Transpose.FLIP_LEFT_RIGHT,
        3: pil.Transpose.ROTATE_180,
        4: pil.Transpose.FLIP_TOP_BOTTOM,
        5: pil.Transpose.TRANSPOSE,
        6: pil.Transpose.ROTATE_270,
        7: pil.Transpose.TRANSVERSE,
        8: pil.Transpose.ROTATE_90,
    }
    try:
        return turns.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:
        return None


def _rgb(image: Image) -> Image:
    pil = optional_import("PIL.Image", "vision")
    if image.mode == "RGB":
        return image
    if image.mode.startswith(("I", "F")):
        return pil.fromarray(_eight_bits(np.asarray(image), image.mode)).convert("RGB")
    if image.has_transparency_data:
        layered = image.convert("RGBA")
        white = pil.new("RGBA", layered.size, (255, 255, 255, 255))
        return pil.alpha_composite(white, layered).convert("RGB")
    return image.convert("RGB")


def _eight_bits(values: np.ndarray, mode: str) -> np.ndarray:
    """Grey values of a deeper mode as uint8; where the mode does not tell the depth, the largest value does."""
    values = np.nan_to_num(values.astype(np.float32))
    largest = float(values.max())
    if mode.startswith("I;16"):
        whole = 65535.0
    elif mode == "F" and largest <= 1:
        whole = 1.0
    else:
        whole = 255.0 if largest <= 255 else max(65535.0, largest)
    return np.clip(values * (255.0 / whole) + 0.5, 0, 255).astype(np.uint8)


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """No warnings about large or slightly broken images: :func:`decode` deals with them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


# --- cache ------------------------------------------------------------------------------------------------
# Decoded images, kept: each file is decoded once, whichever list names it.


_DECODER = 1  # part of every key: to be raised when decode() gives other pixels than before
_MOST_WAITING = 1024  # images decoded ahead that nobody has asked for yet


@dataclass(frozen=True)
class Readable:
    """Images that can be read: their list, their pixels, and what was left out."""

    images: ImageList
    pixels: CachedPixels
    skipped: list[Skipped]


class CachedPixels:
    """Squares of images, uint8 [n, side, side, 3]: from the cache, or else decoded; many may read at once.

    Parameters
    ----------
    images : ImageList
        Files that could be read a moment ago.
    keys : list of bytes
        Their identities.
    side : int
        Of the squares.
    store : Store
        What is cached.
    workers : int
        Threads that decode what is not.
    """

    def __init__(self, images: ImageList, keys: list[bytes], side: int, store: Store, workers: int) -> None:
        self.images, self.keys, self.side = images, keys, side
        self._store = store
        warnings.filterwarnings("ignore", module=r"PIL\.")  # decode() deals with what they warn of
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
        missing = [(position, int(rows[position])) for position in np.flatnonzero(~found)]
        self._submit(row for _, row in missing)
        for position, row in missing:
            # of a row that is there twice, the first has taken the result
            future = self._waiting.pop(row, None) or self._start(row)
            try:
                pixels[position] = future.result()
            except UnreadableError as error:
                raise UserError(
                    f"The image {self.images.file(row)} can no longer be read ({error}): "
                    f"leave the files alone while a run goes on."
                ) from error
        return pixels

    def expect(self, rows: np.ndarray) -> None:
        """Start to decode what will soon be asked for and is not cached."""
        missing = [int(row) for row in rows if self.keys[row] not in self._store]
        for row in [*self._waiting][: max(0, len(self._waiting) + len(missing) - _MOST_WAITING)]:
            self._waiting.pop(row).cancel()
        self._submit(missing[:_MOST_WAITING])

    def _submit(self, rows: Iterable[int]) -> None:
        for row in rows:
            if row not in self._waiting:
                self._waiting[row] = self._start(row)

    def _start(self, row: int) -> Future[np.ndarray]:
        return self._pool.submit(decode, self.images.file(row), self.side)


def open_images(
    images: ImageList,
    side: int,
    *,
    cache_gb: float = DEFAULT_CACHE_GB,
    workers: int | None = None,
    progress: bool = False,
    title: str = "Decoding",
) -> Readable:
    """Decode what the cache does not hold yet, as far as the budget goes, and find out what can't be read.

    A file is known by its path, size and time of change; a changed one is decoded anew. What is beyond the
    budget is decoded once to see whether it can be read (that is remembered), and then whenever it is used.

    Parameters
    ----------
    images : ImageList
        What to open.
    side : int
        Images become squares of this side, without keeping their aspect.
    cache_gb : float
        What all decoded images of this user may take on disk, in 10⁹ bytes; 0: no cache.
    workers : int, optional
        Threads that decode; by default one per core, at most 16.
    progress : bool
        Show a bar.
    """
    budget, workers = cache_bytes(cache_gb), worker_count(workers)
    keys = [identity(images.file(row), side) for row in range(len(images))]
    store = Store(cache_folder() / "pixels", (side, side, 3), np.uint8, budget, keys)
    reasons: dict[int, str] = {}
    with bar(title, len(images), progress) as shown:
        _decode_missing(images, keys, store, workers, reasons, shown.update)
    skipped = images.skipped + [Skipped(images.paths[row], reason) for row, reason in sorted(reasons.items())]
    kept = [row for row in range(len(images)) if row not in reasons]
    if not kept:
        raise UserError(
            f"None of the {len(images)} images of {images.root} can be read (the first, {images.paths[0]!r}: "
            f"{reasons[0]}): check the files."
        )
    chosen = _rows_of(images, kept, skipped)
    return Readable(chosen, CachedPixels(chosen, [keys[row] for row in kept], side, store, workers), skipped)


def _decode_missing(
    images: ImageList,
    keys: list[bytes],
    store: Store,
    workers: int,
    reasons: dict[int, str],
    advance: Callable[[int], None],
) -> None:
    """Decode, a shard at a time; reasons for what can't be decoded go into `reasons`."""

    def attempt(row: int) -> np.ndarray | str:
        try:
            return decode(images.file(row), store.shape[0])
        except UnreadableError as error:
            return str(error)

    at, full = 0, False
    with quiet_pillow():
        while at < len(keys):
            with store.locked():
                full = full or not store.make_room(1)
                rows, at = store.missing(keys, at, unseen=full)
                good, squares = [], []
                for row, outcome in zip(rows, map_in_order(attempt, rows, workers)):
                    advance(row)
                    if isinstance(outcome, str):
                        reasons[row] = outcome
                    elif not keys[row]:
                        reasons[row] = "it came and went"
                    else:
                        good.append(keys[row])
                        squares.append(outcome)
                if good:
                    added = store.add(good, np.stack(squares))
                    store.note(good[added:])
            advance(at)


def identity(path: Path, side: int) -> bytes:
    """A key that changes with the file; empty if there is no file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return b""
    times = f"{status.st_mtime_ns}\0{status.st_ctime_ns}"  # a copy may keep the first, but not the second
    text = f"{_DECODER}\0{side}\0{os.path.abspath(path)}\0{status.st_size}\0{times}"
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=KEY_BYTES).digest()


def _rows_of(images: ImageList, rows: list[int], skipped: list[Skipped]) -> ImageList:
    labels = None if images.labels is None else images.labels[rows]
    paths = [images.paths[row] for row in rows]
    return dataclasses.replace(images, paths=paths, labels=labels, skipped=skipped)
