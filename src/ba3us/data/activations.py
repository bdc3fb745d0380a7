"""Domains of activations: what a frozen network computes from images, computed once and cached."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ba3us.data.domains import Source, Target
from ba3us.data.image_cache import map_in_order
from ba3us.data.image_domains import CENTRE, ImageSource, ImageTarget
from ba3us.data.machine import DEFAULT_CACHE_GB, cache_bytes, cpu_count, worker_count
from ba3us.data.store import KEY_BYTES, Store, cache_folder
from ba3us.errors import require
from ba3us.nn.backbones import state_hash
from ba3us.nn.inference import for_inference
from ba3us.progress import bar

ACTIVATIONS = ("float16", "float32")
PRECISIONS = ("float32", "bfloat16")
_CHUNK = 1024  # images per step of the progress bar, without a cache


class FrozenTarget(Target):
    """A domain of a frozen front's activations of images, so that a step computes only what is trained.

    Activations of the centre, and of each augmented view if their number is fixed, are computed once and
    cached on disk, also for later runs on the same files with the same front. Others are computed when they
    are needed: those beyond the budget, of endless views and of ten crops.

    On a CPU each thread runs the front on small batches of its own, so that no core waits for another. On a
    GPU threads read the images for large batches. The number of threads does not change the result.

    Parameters
    ----------
    images : ImageTarget
        The images and their views.
    front : Module
        [n, 3, size, size] → [n, …]. It runs in eval mode; on a CPU as :func:`for_inference` returns it.
    cache_gb : float
        Disk space for all cached activations of this user, in 10⁹ bytes; 0: no cache.
    activations : {"float16", "float32"}
        Type of cached maps; float16 takes half the space. Vectors are always float32.
    precision : {"float32", "bfloat16"}
        Precision of the front; bfloat16 by autocast, for a GPU.
    batch_size : int, optional
        Images per pass through the front; by default 4 on a CPU, so that a batch fits the processor's caches,
        and 128 on a GPU.
    workers : int, optional
        Threads; by default one per processor, at most 16.
    progress : bool
        Show a progress bar.
    """

    prefetches = True

    def __init__(
        self,
        images: ImageTarget,
        front: nn.Module,
        *,
        cache_gb: float = DEFAULT_CACHE_GB,
        activations: str = "float16",
        precision: str = "float32",
        batch_size: int | None = None,
        workers: int | None = None,
        progress: bool = False,
    ) -> None:
        require(
            activations in ACTIVATIONS,
            f"Activations can't be kept as {activations!r}: choose {' or '.join(ACTIVATIONS)}.",
        )
        require(
            precision in PRECISIONS, f"Unknown precision {precision!r}: choose one of {', '.join(PRECISIONS)}."
        )
        require(batch_size is None or batch_size > 0, f"batch_size is {batch_size}: give at least 1.")
        self.images, self.name, self.views = images, images.name, images.views
        self._title = f"Frozen part, {self.name}"
        self._workers, self._progress, self._half = worker_count(workers), progress, precision == "bfloat16"
        self._batch_size = batch_size or (4 if images.device.type == "cpu" else 128)
        budget = cache_bytes(cache_gb)
        self._original_front = front.eval().to(images.device).to(memory_format=torch.channels_last)
        front_hash = state_hash(front)
        preparation = (front, images.size, images.pixels.side, images.mean, images.std, precision)
        front_hash.update(repr(preparation).encode())
        front_digest = front_hash.digest()
        self._dtype = torch.float32
        with self._computing():
            first = self._forward(images.batch(slice(0, 1)), self._original_front)
        if first.dim() > 2:
            self._dtype = getattr(torch, activations)
        self.shape = tuple(first.shape[1:])
        numbers = range(CENTRE, images.view_count or 0)
        identities = [images.pixels.identity(row) for row in range(len(images))]

        def key(row: int, view: int) -> bytes:
            # the crop of a view depends on the row, the centre does not
            text = b"%s%s%d,%d" % (front_digest, identities[row], row if view != CENTRE else 0, view)
            return hashlib.blake2b(text, digest_size=KEY_BYTES).digest()

        self._keys = {view: [key(row, view) for row in range(len(images))] for view in numbers}
        wanted = [self._keys[view][row] for row in range(len(images)) for view in numbers]
        kind, shape = cache_folder() / "activations", tuple(_stored(first).shape[1:])
        self._store = Store(kind, shape, str(self._dtype).removeprefix("torch."), budget, wanted)
        if budget:
            self._fill(wanted, len(numbers))
        self._complete = all(key in self._store for key in wanted)

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def front(self) -> nn.Module:
        """The front, prepared at first use; with everything cached it is never used."""
        return for_inference(self._original_front, self.images.size)

    def batch(self, indices: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """Activations of the centre of each image."""
        rows = self.images.rows(indices)
        return self._activations(rows, np.full(len(rows), CENTRE), dtype)

    def training_batch(self, indices: Any, draws: np.ndarray, dtype: torch.dtype = torch.float32) -> Tensor:
        """Activations of a view of each image."""
        return self._activations(self.images.rows(indices), self.images.views_of(draws), dtype)

    def view_batch(self, view: int, indices: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """Activations of one of the ten crops of each image."""
        return self._forward(self.images.view_batch(view, indices), self.front).to(dtype)

    def centres(self) -> np.ndarray:
        """Activations of the centres of all images, in memory, float32 [n, …]."""
        whole = np.empty((len(self), *self.shape), dtype=np.float32)
        with bar(self._title, len(self), self._progress and not self._complete) as progress_bar:
            for start in range(0, len(self), _CHUNK):
                part = slice(start, min(start + _CHUNK, len(self)))
                whole[part] = self.batch(part).cpu()
                progress_bar.update(part.stop)
        return whole

    def expect(self, indices: Any) -> None:
        """Start to decode rows whose activations may not be cached."""
        if not self._complete or self.images.view_count is None:
            self.images.expect(indices)

    def _activations(self, rows: np.ndarray, views: np.ndarray, dtype: torch.dtype) -> Tensor:
        keys = [self._keys[view][row] if view in self._keys else b"" for row, view in zip(rows, views)]
        content, found = self._store.read(keys)
        missing = np.flatnonzero(~found)
        at = 0
        for part in self._computed(rows[missing], views[missing]):
            content[missing[at : at + len(part)]] = part
            at += len(part)
        x = torch.from_numpy(content)
        return (x.permute(0, 3, 1, 2) if x.dim() == 4 else x).to(self.images.device, dtype)

    def _forward(self, x: Tensor, front: nn.Module) -> Tensor:
        """The front's activations, rounded as in the cache, so that caching does not change the result."""
        with torch.no_grad(), torch.autocast(x.device.type, torch.bfloat16, enabled=self._half):
            activations = front(x.to(next(front.parameters(), x).dtype)).to(self._dtype)
        require(
            bool(torch.isfinite(activations).all()),
            f"The {self.name} has activations that {self._dtype} can't hold: keep them as float32.",
        )
        return activations

    def _fill(self, keys: list[bytes], views: int) -> None:
        """Compute what is not cached yet, a shard at a time, as far as the budget goes."""
        at = 0
        with bar(self._title, len(keys), self._progress) as progress_bar:
            while at < len(keys):
                with self._store.locked():
                    missing, at = self._store.missing(keys, at)
                    if missing and not self._store.make_room(1):
                        return
                    positions, batches = np.array(missing, dtype=np.int64), []
                    for part in self._computed(positions // views, positions % views + CENTRE):
                        batches.append(part)
                        progress_bar.update(missing[min(len(batches) * self._batch_size, len(missing)) - 1])
                    if batches:
                        self._store.add([keys[p] for p in missing], np.concatenate(batches))
                progress_bar.update(at)

    def _computed(self, rows: np.ndarray, views: np.ndarray) -> Iterator[np.ndarray]:
        """Activations as they are stored, batch by batch, in order."""
        size = self._batch_size
        parts = [slice(start, start + size) for start in range(0, len(rows), size)]
        if not parts:
            return

        def read(part: slice) -> Tensor:
            return self.images.crop(rows[part], views[part])

        def stored(x: Tensor) -> np.ndarray:
            return _stored(self._forward(x, front)).cpu().numpy()

        with self._computing():
            front = self.front
            if self.images.device.type == "cpu":
                yield from map_in_order(lambda part: stored(read(part)), parts, self._workers)
            else:
                yield from map(stored, map_in_order(read, parts, self._workers))

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Share the processors between the workers: torch uses few threads in each."""
        before = torch.get_num_threads()
        torch.set_num_threads(min(before, max(1, cpu_count() // self._workers)))
        try:
            yield
        finally:
            torch.set_num_threads(before)


class FrozenSource(FrozenTarget, Source):
    """As :class:`FrozenTarget`, with the labels of the images."""

    def __init__(self, images: ImageSource, front: nn.Module, **options: Any) -> None:
        FrozenTarget.__init__(self, images, front, **options)
        self._set_labels(images.labels.numpy(), images.num_classes)


def _stored(x: Tensor) -> Tensor:
    """Maps [n, c, h, w] with channels last, as in memory; vectors unchanged."""
    return x.permute(0, 2, 3, 1) if x.dim() == 4 else x
