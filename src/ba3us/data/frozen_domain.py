"""Images as a frozen network sees them: its activations, computed once and kept."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ba3us.data.cache import DEFAULT_GIGABYTES, GIGABYTE, bar
from ba3us.data.domain import Source, Target
from ba3us.data.image_domain import CENTRE, ImageSource, ImageTarget
from ba3us.data.store import KEY_BYTES, Store, cache_folder
from ba3us.errors import require

ACTIVATIONS = ("float16", "float32")


class FrozenTarget(Target):
    """A domain whose samples are what a frozen front says of images, so that a step costs only what is trained.

    Activations of the centre, and of each augmented view if `images` has a number of them, are computed once
    and kept on disk, also for later runs on the same files with the same front. Those beyond the budget, of
    endless views and of ten crops are computed when they are asked for.

    Parameters
    ----------
    images : ImageTarget
        The images and their views.
    front : Module
        [n, 3, size, size] → [n, …]; it is run in eval mode.
    cache_gb : float
        What all kept activations of this user may take on disk, in 10⁹ bytes; 0: keep none.
    activations : {"float16", "float32"}
        How they are kept; half as much on disk, or all digits.
    batch_size : int
        Images per pass through the front.
    progress : bool
        Show a bar.
    """

    prefetches = True

    def __init__(
        self,
        images: ImageTarget,
        front: nn.Module,
        *,
        cache_gb: float = DEFAULT_GIGABYTES,
        activations: str = "float16",
        batch_size: int = 32,
        progress: bool = False,
    ) -> None:
        require(
            activations in ACTIVATIONS,
            f"Activations can't be kept as {activations!r}: choose {' or '.join(ACTIVATIONS)}.",
        )
        require(cache_gb >= 0, f"cache_gb is {cache_gb}: give 0 or more.")
        self.images, self.name, self.views = images, images.name, images.views
        self.front = front.eval().to(images.device).to(memory_format=torch.channels_last)
        self._kept = getattr(torch, activations)
        first = self._see(images.batch(slice(0, 1)))
        self._shape = tuple(first.shape[1:])
        print_of_front = _fingerprint(self.front, images)
        numbers = range(CENTRE, images.view_count or 0)
        self._keys = {
            view: [_key(print_of_front, images.pixels.identity(row), row, view) for row in range(len(images))]
            for view in numbers
        }
        wanted = [self._keys[view][row] for row in range(len(images)) for view in numbers]
        kind, budget = cache_folder() / "activations", int(cache_gb * GIGABYTE)
        self._store = Store(kind, tuple(_stored(first).shape[1:]), activations, budget, wanted)
        if budget:
            self._fill(wanted, len(numbers), batch_size, progress)
        self._complete = all(key in self._store for key in wanted)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self._shape

    def batch(self, indices: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """What the front says of the centre of each image."""
        rows = self.images.rows(indices)
        return self._activations(rows, np.full(len(rows), CENTRE), dtype)

    def training_batch(self, indices: Any, draws: np.ndarray, dtype: torch.dtype = torch.float32) -> Tensor:
        """What the front says of a view of each image."""
        return self._activations(self.images.rows(indices), self.images.views_of(draws), dtype)

    def view_batch(self, view: int, indices: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """What the front says of one of the ten crops of each image."""
        return self._see(self.images.view_batch(view, indices)).to(dtype)

    def expect(self, indices: Any) -> None:
        """Start to decode rows whose activations may not be kept."""
        if not self._complete or self.images.view_count is None:
            self.images.expect(indices)

    def _activations(self, rows: np.ndarray, views: np.ndarray, dtype: torch.dtype) -> Tensor:
        keys = [self._keys[view][row] if view in self._keys else b"" for row, view in zip(rows, views)]
        content, found = self._store.read(keys)
        x = torch.from_numpy(content)
        if x.dim() == 4:
            x = x.permute(0, 3, 1, 2)
        x = x.to(self.images.device)
        missing = np.flatnonzero(~found)
        if len(missing):
            x[torch.from_numpy(missing)] = self._see(self.images.crop(rows[missing], views[missing]))
        return x.to(dtype)

    def _see(self, x: Tensor) -> Tensor:
        """The front's activations, rounded as they are kept, so that it does not matter whether they are."""
        with torch.no_grad():
            seen = self.front(x.to(next(self.front.parameters(), x).dtype)).to(self._kept)
        require(
            bool(torch.isfinite(seen).all()),
            f"The {self.name} has activations that {self._kept} can't hold: keep them as float32.",
        )
        return seen

    def _fill(self, keys: list[bytes], views: int, batch_size: int, progress: bool) -> None:
        """Compute what is not kept yet, a shard at a time, as far as the budget goes."""
        at = 0
        with bar(f"Frozen part, {self.name}", progress) as shown:
            task = shown.add_task("", total=len(keys))
            while at < len(keys):
                with self._store.locked():
                    positions, at = self._store.missing(keys, at)
                    if positions and not self._store.make_room(1):
                        return
                    parts = [positions[i : i + batch_size] for i in range(0, len(positions), batch_size)]
                    made = [self._made(np.array(part), views) for part in parts]
                    if made:
                        self._store.add([keys[p] for p in positions], np.concatenate(made))
                shown.update(task, completed=at)

    def _made(self, positions: np.ndarray, views: int) -> np.ndarray:
        rows, numbers = positions // views, positions % views + CENTRE
        following = rows[-1] + 1 + np.arange(len(positions) // views + 1)
        self.images.expect(following[following < len(self)])
        return _stored(self._see(self.images.crop(rows, numbers))).cpu().numpy()


class FrozenSource(FrozenTarget, Source):
    """As :class:`FrozenTarget`, with the labels of the images."""

    def __init__(self, images: ImageSource, front: nn.Module, **options: Any) -> None:
        FrozenTarget.__init__(self, images, front, **options)
        self._set_labels(images.labels.numpy(), images.num_classes)


def _stored(x: Tensor) -> Tensor:
    """Maps [n, c, h, w] with channels last, as they lie in memory; vectors as they are."""
    return x.permute(0, 2, 3, 1) if x.dim() == 4 else x


def _fingerprint(front: nn.Module, images: ImageTarget) -> bytes:
    """Changes with the front's weights and layers and with how it is shown images."""
    sketch = hashlib.blake2b(repr((front, images.size, images.pixels.side, images.mean, images.std)).encode())
    for name, tensor in front.state_dict().items():
        sketch.update(name.encode())
        sketch.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return sketch.digest()


def _key(front: bytes, image: bytes, row: int, view: int) -> bytes:
    # which crop a view is depends on the row, the centre does not
    text = b"%s%s%d,%d" % (front, image, row if view != CENTRE else 0, view)
    return hashlib.blake2b(text, digest_size=KEY_BYTES).digest()
