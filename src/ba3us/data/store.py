"""A cache of arrays on disk, by key: in shards that appear whole, shared by processes, within a budget."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from ba3us.errors import UserError

KEY_BYTES = 16
_SHARD_BYTES = 48 << 20  # a killed process loses at most one shard; a full cache deletes whole shards
_SHARD_ROWS = 2048  # rows that were slow to compute should not be lost in large numbers
_OPEN_SHARDS = 16  # limits open files and resident memory
_IDLE_SECONDS = 3600  # shards that were used more recently are never deleted


def cache_folder() -> Path:
    """The folder of all caches: ``$BA3US_CACHE``, or ``~/.cache/ba3us``."""
    folder = os.environ.get("BA3US_CACHE")
    return Path(folder) if folder else Path.home() / ".cache" / "ba3us"


class Store:
    """Arrays ("rows") of one shape and type under 16-byte keys, memory-mapped; several threads may read.

    A shard is two files, rows and keys. The keys are written last, so their rows exist. Another process that
    needs the space may delete a shard at any time; its rows are then missing.

    Parameters
    ----------
    kind : path
        The folder for rows of this kind, with a subfolder per shape and type.
    shape, dtype
        Shape and type of one row.
    budget : int
        Bytes that `kind` may hold. When it is full, the least recently used shards are deleted. With 0 nothing
        is written, found or deleted.
    wanted : sequence of bytes
        The keys that will be asked for; all others are ignored.
    """

    def __init__(
        self, kind: Path, shape: tuple[int, ...], dtype: Any, budget: int, wanted: Sequence[bytes]
    ) -> None:
        self.kind, self.shape, self.dtype, self.budget = kind, shape, np.dtype(dtype), budget
        self.folder = kind / f"{'x'.join(map(str, shape))}-{self.dtype}"
        self.row_bytes = int(np.prod(shape)) * self.dtype.itemsize
        self.shard_rows = min(_SHARD_ROWS, max(1, _SHARD_BYTES // self.row_bytes))
        self._wanted = frozenset(wanted)
        self._places: dict[bytes, tuple[str, int]] = {}  # key → shard and row in it
        self._seen: set[bytes] = set()
        self._read_files: set[str] = set()
        self._open: OrderedDict[str, np.ndarray] = OrderedDict()
        self._opening = threading.Lock()
        if budget:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(
                    f"The cache {self.folder} can't be made ({error.strerror}): set BA3US_CACHE to another "
                    f"folder, or do without it (`cache_gb=0`)."
                ) from error
        self.rescan()

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def rescan(self) -> None:
        """Find shards that other processes wrote."""
        names: list[str] = []
        with suppress(OSError):
            names = sorted(os.listdir(self.folder)) if self.budget else []
        for name in names:
            stem, _, suffix = name.rpartition(".")
            if suffix not in ("keys", "seen") or name in self._read_files:
                continue
            self._read_files.add(name)
            with suppress(OSError):  # another process may just have deleted it
                text = (self.folder / name).read_bytes()
                keys = [text[i : i + KEY_BYTES] for i in range(0, len(text) - KEY_BYTES + 1, KEY_BYTES)]
                if suffix == "seen":
                    self._seen.update(self._wanted.intersection(keys))
                elif os.path.getsize(self.folder / f"{stem}.rows") == len(keys) * self.row_bytes:
                    for row, key in enumerate(keys):
                        if key in self._wanted:
                            self._places.setdefault(key, (stem, row))

    def read(self, keys: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Rows [n, …] and whether each was found [n]; the content of a missing row is undefined."""
        rows = np.empty((len(keys), *self.shape), dtype=self.dtype)
        found = np.zeros(len(keys), dtype=bool)
        by_shard: dict[str, list[tuple[int, int]]] = {}
        for position, key in enumerate(keys):
            if key in self._places:
                shard, row = self._places[key]
                by_shard.setdefault(shard, []).append((position, row))
        for shard, pairs in by_shard.items():
            with self._opening:
                content = self._shard(shard)
            if content is not None:
                for position, row in pairs:
                    rows[position], found[position] = content[row], True
        return rows, found

    def _shard(self, name: str) -> np.ndarray | None:
        if name in self._open:
            self._open.move_to_end(name)
            return self._open[name]
        path = self.folder / f"{name}.rows"
        try:
            content = np.memmap(path, dtype=self.dtype, mode="r").reshape(-1, *self.shape)
        except (OSError, ValueError):
            self._forget(name)
            return None
        with suppress(OSError):  # the cache of another user may be read-only
            os.utime(path)
        self._open[name] = content
        if len(self._open) > _OPEN_SHARDS:
            self._open.popitem(last=False)
        return content

    def _forget(self, name: str) -> None:
        self._places = {key: place for key, place in self._places.items() if place[0] != name}

    def missing(self, keys: Sequence[bytes], start: int, unseen: bool = False) -> tuple[list[int], int]:
        """Positions of missing rows from `start` on, at most a shard of them, and the position to continue at.

        With `unseen`, rows that were noted do not count as missing. Shards of other processes are found first.
        """
        self.rescan()
        missing: list[int] = []
        for position in range(start, len(keys)):
            if keys[position] not in self._places and not (unseen and keys[position] in self._seen):
                missing.append(position)
                if len(missing) == self.shard_rows:
                    return missing, position + 1
        return missing, len(keys)

    def add(self, keys: Sequence[bytes], rows: np.ndarray) -> int:
        """Write a shard of the first rows, as many as fit; returns their number."""
        count = self.make_room(len(keys))
        if not count:
            return 0
        name = uuid.uuid4().hex
        try:
            with _whole_file(self.folder / f"{name}.rows") as part:
                np.ascontiguousarray(rows[:count], dtype=self.dtype).tofile(part)
            with _whole_file(self.folder / f"{name}.keys") as part:
                part.write_bytes(b"".join(keys[:count]))
        except OSError:  # the disk is full or read-only: continue without the cache
            return 0
        self.rescan()
        return count

    def note(self, keys: Sequence[bytes]) -> None:
        """Remember that these rows were computed once, without storing them."""
        self._seen.update(keys)
        if keys and self.budget:
            with suppress(OSError), _whole_file(self.folder / f"{uuid.uuid4().hex}.seen") as part:
                part.write_bytes(b"".join(keys))

    def make_room(self, rows: int) -> int:
        """Delete idle shards until `rows` more fit; returns how many of them fit."""
        if not self.budget:
            return 0
        shards = []
        for path in self.kind.glob("*/*.rows"):
            with suppress(OSError):
                status = path.stat()
                shards.append((status.st_mtime, path, status.st_size))
        used = sum(size for _, _, size in shards)
        for last_used, path, size in sorted(shards):
            if used + rows * self.row_bytes <= self.budget or time.time() - last_used < _IDLE_SECONDS:
                break
            with suppress(OSError):
                path.with_suffix(".keys").unlink(missing_ok=True)  # first, so that no key lacks its row
                path.unlink(missing_ok=True)
                self._forget(path.stem)
                used -= size
        return max(0, min(rows, (self.budget - used) // self.row_bytes))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other processes; hold it while computing one shard, so that processes share the work."""
        with ExitStack() as held:
            if self.budget:
                with suppress(OSError):  # some file systems have no locks, others are read-only
                    held.enter_context(FileLock(self.folder / "lock"))
                    # no process is writing now: remove what killed ones left
                    for path in (*self.folder.glob("*.part"), *self.folder.glob("*.rows")):
                        if path.suffix == ".part" or not path.with_suffix(".keys").exists():
                            path.unlink(missing_ok=True)
            yield


@contextmanager
def _whole_file(path: Path) -> Iterator[Path]:
    part = path.with_name(f"{path.name}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
