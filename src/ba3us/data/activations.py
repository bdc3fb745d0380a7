"""Images as a frozen network sees them: its activations, computed once and kept. The one way to vectors."""

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
_AT_ONCE = 1024  # images whose activations are gathered before the bar moves, where none are kept


class FrozenTarget(Target):
    """A domain whose samples are what a frozen front says of images, so that a step costs only what is trained.

    Activations of the centre, and of each augmented view if `images` has a number of them, are computed once
    and kept on disk, also for later runs on the same files with the same front. Those beyond the budget, of
    endless views and of ten crops are computed when they are asked for.

    On a CPU threads each run the front on small batches of their own, so that no core waits for another within
    an operation; on a GPU threads read the images for large batches. How many threads does not matter for the
    result.

    Parameters
    ----------
    images : ImageTarget
        The images and their views.
    front : Module
        [n, 3, size, size] → [n, …]; it is run in eval mode, on a CPU as :func:`for_inference` makes it.
    cache_gb : float
        What all kept activations of this user may take on disk, in 10⁹ bytes; 0: keep none.
    activations : {"float16", "float32"}
        How maps are kept; half as much on disk, or all digits. Vectors are always kept as float32.
    precision : {"float32", "bfloat16"}
        What the front computes in; bfloat16 by autocast, for a GPU.
    batch_size : int, optional
        Images per pass through the front; by default 4 on a CPU, where a batch should fit the processor's
        caches, and 128 on a GPU.
    workers : int, optional
        Threads; by default one per core, at most 16.
    progress : bool
        Show a bar.
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
        self._workers, self._progress, self._half = worker_count(workers), progress, precision == "bfloat16"
        self._batch_size = batch_size or (4 if images.device.type == "cpu" else 128)
        budget = cache_bytes(cache_gb)
        self._given = front.eval().to(images.device).to(memory_format=torch.channels_last)
        print_of_front = _fingerprint(front, images, precision)
        self._kept = torch.float32
        with self._computing():
            first = self._see(images.batch(slice(0, 1)), self._given)
        if first.dim() > 2:
            self._kept = getattr(torch, activations)
        self._shape = tuple(first.shape[1:])
        numbers = range(CENTRE, images.view_count or 0)
        self._keys = {
            view: [_key(print_of_front, images.pixels.identity(row), row, view) for row in range(len(images))]
            for view in numbers
        }
        wanted = [self._keys[view][row] for row in range(len(images)) for view in numbers]
        kind, shape = cache_folder() / "activations", tuple(_stored(first).shape[1:])
        self._store = Store(kind, shape, str(self._kept).removeprefix("torch."), budget, wanted)
        if budget:
            self._fill(wanted, len(numbers))
        self._complete = all(key in self._store for key in wanted)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self._shape

    @cached_property
    def front(self) -> nn.Module:
        """The front, made ready when it is first needed: where all is kept, it never is."""
        return for_inference(self._given, self.images.size)

    def batch(self, indices: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """What the front says of the centre of each image."""
        rows = self.images.rows(indices)
        return self._activations(rows, np.full(len(rows), CENTRE), dtype)

    def training_batch(self, indices: Any, draws: np.ndarray, dtype: torch.dtype = torch.float32) -> Tensor:
        """What the front says of a view of each image."""
        return self._activations(self.images.rows(indices), self.images.views_of(draws), dtype)

    def view_batch(self, view: int, indices: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """What the front says of one of the ten crops of each image."""
        return self._see(self.images.view_batch(view, indices), self.front).to(dtype)

    def centres(self) -> np.ndarray:
        """What the front says of the centre of every image, in memory, float32 [n, …]."""
        whole = np.empty((len(self), *self.shape), dtype=np.float32)
        with bar(self._title, len(self), self._progress and not self._complete) as shown:
            for start in range(0, len(self), _AT_ONCE):
                part = slice(start, min(start + _AT_ONCE, len(self)))
                whole[part] = self.batch(part).cpu()
                shown.update(part.stop)
        return whole

    def expect(self, indices: Any) -> None:
        """Start to decode rows whose activations may not be kept."""
        if not self._complete or self.images.view_count is None:
            self.images.expect(indices)

    @property
    def _title(self) -> str:
        return f"Frozen part, {self.name}"

    def _activations(self, rows: np.ndarray, views: np.ndarray, dtype: torch.dtype) -> Tensor:
        keys = [self._keys[view][row] if view in self._keys else b"" for row, view in zip(rows, views)]
        content, found = self._store.read(keys)
        missing = np.flatnonzero(~found)
        at = 0
        for part in self._made(rows[missing], views[missing]):
            content[missing[at : at + len(part)]] = part
            at += len(part)
        x = torch.from_numpy(content)
        return (x.permute(0, 3, 1, 2) if x.dim() == 4 else x).to(self.images.device, dtype)

    def _see(self, x: Tensor, front: nn.Module) -> Tensor:
        """The front's activations, rounded as they are kept, so that it does not matter whether they are."""
        with torch.no_grad(), torch.autocast(x.device.type, torch.bfloat16, enabled=self._half):
            seen = front(x.to(next(front.parameters(), x).dtype)).to(self._kept)
        require(
            bool(torch.isfinite(seen).all()),
            f"The {self.name} has activations that {self._kept} can't hold: keep them as float32.",
        )
        return seen

    def _fill(self, keys: list[bytes], views: int) -> None:
        """Compute what is not kept yet, a shard at a time, as far as the budget goes."""
        at = 0
        with bar(self._title, len(keys), self._progress) as shown:
            while at < len(keys):
                with self._store.locked():
                    missing, at = self._store.missing(keys, at)
                    if missing and not self._store.make_room(1):
                        return
                    positions, made = np.array(missing, dtype=np.int64), []
                    for part in self._made(positions // views, positions % views + CENTRE):
                        made.append(part)
                        shown.update(missing[min(len(made) * self._batch_size, len(missing)) - 1])
                    if made:
                        self._store.add([keys[p] for p in missing], np.concatenate(made))
                shown.update(at)

    def _made(self, rows: np.ndarray, views: np.ndarray) -> Iterator[np.ndarray]:
        """Activations as they are stored, batch by batch, in order."""
        size = self._batch_size
        parts = [slice(start, start + size) for start in range(0, len(rows), size)]
        if not parts:
            return

        def read(part: slice) -> Tensor:
            return self.images.crop(rows[part], views[part])

        def stored(x: Tensor) -> np.ndarray:
            return _stored(self._see(x, front)).cpu().numpy()

        with self._computing():
            front = self.front
            if self.images.device.type == "cpu":
                yield from map_in_order(lambda part: stored(read(part)), parts, self._workers)
            else:
                yield from map(stored, map_in_order(read, parts, self._workers))

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Share the cores between the workers: torch computes with few threads in each for a while."""
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
    """Maps [n, c, h, w] with channels last, as they lie in memory; vectors as they are."""
    return x.permute(0, 2, 3, 1) if x.dim() == 4 else x


def _fingerprint(front: nn.Module, images: ImageTarget, precision: str) -> bytes:
    """Changes with the front's weights and layers and with how it is shown images."""
    hasher = state_hash(front)
    hasher.update(repr((front, images.size, images.pixels.side, images.mean, images.std, precision)).encode())
    return hasher.digest()


def _key(front: bytes, image: bytes, row: int, view: int) -> bytes:
    # which crop a view is depends on the row, the centre does not
    text = b"%s%s%d,%d" % (front, image, row if view != CENTRE else 0, view)
    return hashlib.blake2b(text, digest_size=KEY_BYTES).digest()
