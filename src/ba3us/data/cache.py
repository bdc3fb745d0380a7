"""Decoded images, kept: each file is decoded once, whichever list names it."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ba3us.data.decoding import UnreadableError, decode, map_in_order, quiet_pillow
from ba3us.data.images import ImageList, Skipped
from ba3us.data.store import KEY_BYTES, Store, cache_folder
from ba3us.errors import UserError, require
from ba3us.progress import bar

_GIGABYTE = 10**9
DEFAULT_GIGABYTES = 10.0
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
    cache_gb: float = DEFAULT_GIGABYTES,
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
    budget, workers = budget_of(cache_gb), worker_count(workers)
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
    text = f"{_DECODER}\0{side}\0{os.path.abspath(path)}\0{status.st_size}\0{status.st_mtime_ns}"
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=KEY_BYTES).digest()


def _rows_of(images: ImageList, rows: list[int], skipped: list[Skipped]) -> ImageList:
    labels = None if images.labels is None else images.labels[rows]
    paths = [images.paths[row] for row in rows]
    return dataclasses.replace(images, paths=paths, labels=labels, skipped=skipped)


def budget_of(cache_gb: float) -> int:
    """What a cache may hold, in bytes."""
    require(0 <= cache_gb < math.inf, f"cache_gb is {cache_gb}: give 0 or more.")
    return int(cache_gb * _GIGABYTE)


def worker_count(workers: int | None) -> int:
    """How many threads to use: as asked for, else one per core, at most 16."""
    require(workers is None or workers > 0, f"workers is {workers}: give at least 1.")
    return workers or min(cores(), 16)


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
