"""One pass over images: each is read once, from the cache or its file, and what is new goes into the cache."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ba3us.data.cache import GIGABYTE, identity
from ba3us.data.decoding import UnreadableError, decode
from ba3us.data.images import ImageList, Skipped
from ba3us.data.store import Store, cache_folder
from ba3us.errors import require


@dataclass(frozen=True)
class Squares:
    """Images that could be read, as uint8 [n, side, side, 3], and those that could not."""

    rows: list[int]
    pixels: np.ndarray
    skipped: list[Skipped]


class OnePass:
    """Reads rows in any order, from several threads at once; :meth:`close` keeps what was decoded last.

    Parameters
    ----------
    images : ImageList
        What to read.
    side : int
        Images become squares of this side, without keeping their aspect.
    cache_gb : float
        What all decoded images of this user may take on disk, in 10⁹ bytes; 0: no cache.
    """

    def __init__(self, images: ImageList, side: int, cache_gb: float = 0.0) -> None:
        require(cache_gb >= 0, f"cache_gb is {cache_gb}: give 0 or more.")
        self.images, self.side = images, side
        self._keys = [identity(images.file(row), side) if cache_gb else b"" for row in range(len(images))]
        budget = int(cache_gb * GIGABYTE)
        self._store = Store(cache_folder() / "pixels", (side, side, 3), np.uint8, budget, self._keys)
        self._fresh: dict[bytes, np.ndarray] = {}
        self._lock = threading.Lock()

    def read(self, rows: Sequence[int]) -> Squares:
        """The images at `rows`, as far as they can be read."""
        with self._lock:
            pixels, found = self._store.read([self._keys[row] for row in rows])
        kept: list[int] = []
        skipped: list[Skipped] = []
        fresh: dict[bytes, np.ndarray] = {}
        for position, row in enumerate(rows):
            try:
                if not found[position]:
                    pixels[position] = fresh[self._keys[row]] = decode(self.images.file(row), self.side)
                kept.append(position)
            except UnreadableError as error:
                skipped.append(Skipped(self.images.paths[row], str(error)))
        self._keep(fresh)
        return Squares([rows[position] for position in kept], pixels[kept], skipped)

    def close(self) -> None:
        """Put what was decoded last into the cache."""
        with self._lock:
            self._flush()

    def _keep(self, fresh: dict[bytes, np.ndarray]) -> None:
        fresh.pop(b"", None)
        with self._lock:
            self._fresh |= fresh
            if len(self._fresh) >= self._store.shard_rows:
                self._flush()

    def _flush(self) -> None:
        if self._fresh:
            with self._store.locked():
                self._store.add([*self._fresh], np.stack([*self._fresh.values()]))
        self._fresh = {}
