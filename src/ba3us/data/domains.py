"""Domains over arrays: a labelled source, an unlabelled target, and subsets of both."""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ba3us.errors import UserError, require

_DONT_NEED = getattr(mmap, "MADV_DONTNEED", None)  # not on every system
_PAGE_GROUP = 1 << 21  # bytes that become resident around a place that is read: Linux maps pages in groups
_MAX_RESIDENT = 1 << 26  # bytes of a mapping, roughly
_CHUNK_VALUES = 1 << 24  # values of a large array that are checked at a time


class Mapped:
    """The samples of a memory-mapped array; a file larger than memory can be read through it."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype
        self._resident = 0

    def __len__(self) -> int:
        return len(self.array)

    def read(self, rows: Any) -> np.ndarray:
        """A copy of some rows (an integer array or a slice), in native byte order."""
        copy = np.array(self.array[rows], dtype=self.dtype.newbyteorder("="))
        self._resident += copy.nbytes + _PAGE_GROUP * (1 if isinstance(rows, slice) else len(rows))
        if self._resident > _MAX_RESIDENT:
            release_pages(self.array)
            self._resident = 0
        return copy


def release_pages(array: np.ndarray) -> None:
    """Drop a mapping's pages from memory; they are read again when needed.

    A copy-on-write mapping keeps its pages: they may differ from the file.
    """
    mapping = getattr(array, "_mmap", None)
    if mapping is not None and _DONT_NEED is not None and getattr(array, "mode", "c") != "c":
        with suppress(OSError, ValueError):  # this only saves memory
            mapping.madvise(_DONT_NEED)


class Target:
    """Unlabelled samples: an array whose first axis runs over samples. It has no place for labels.

    Parameters
    ----------
    x : array [n, ...]
        Features or pixels; float16/32/64 or integers. An array in memory becomes a tensor once. Of a
        memory-mapped array only the samples of a batch are read.
    views : array [v, n, ...], optional
        Other views of the same samples, such as ten crops, for methods that refresh from them.
    name : str
        Name of the domain in messages.
    """

    prefetches: ClassVar[bool] = False  # whether `expect` is of use
    shape: tuple[int, ...]  # of one sample

    def __init__(self, x: Any, *, views: Any = None, name: str = "target") -> None:
        self.name = name
        self._x = _samples(x, name)
        self.shape = tuple(self._x.shape[1:])
        self.views: Any = None if views is None else [_samples(v, f"{name} view") for v in views]
        for view in self.views or ():
            require(
                len(view) == len(self._x), f"The {name} has {len(self._x)} rows but a view has {len(view)}."
            )

    def __len__(self) -> int:
        return len(self._x)

    def batch(self, indices: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """A copy of the samples at `indices` (an integer array or a slice) as a floating tensor."""
        return _rows(self._x, indices, dtype)

    def training_batch(self, indices: Any, draws: np.ndarray, dtype: torch.dtype = torch.float32) -> Tensor:
        """Samples for a training step.

        `draws` are numbers that no other sample drawn in the run has; domains that augment derive chance from
        them.
        """
        return self.batch(indices, dtype)

    def expect(self, indices: Any) -> None:
        """Announce the next samples; a domain that `prefetches` may begin to read them."""

    def view_batch(self, view: int, indices: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """Samples of one of the extra views."""
        assert self.views is not None
        return _rows(self.views[view], indices, dtype)


class Source(Target):
    """Labelled samples: a target plus integer labels 0 … C-1.

    Parameters
    ----------
    x : array [n, ...]
        As for :class:`Target`.
    y : integer array [n]
        Labels in 0 … C-1.
    num_classes : int, optional
        C; by default the largest label plus one.
    """

    def __init__(self, x: Any, y: Any, *, num_classes: int | None = None, name: str = "source") -> None:
        super().__init__(x, name=name)
        self._set_labels(y, num_classes)

    def _set_labels(self, y: Any, num_classes: int | None) -> None:
        labels, name = np.asarray(y), self.name
        require(
            labels.shape == (len(self),),
            f"The {name} has {len(self)} rows but labels of shape {labels.shape}: give one label per row.",
        )
        require(
            np.issubdtype(labels.dtype, np.integer),
            f"The {name} labels must be integers 0 … C-1, not {labels.dtype}: encode them first.",
        )
        highest = int(labels.max())
        self.num_classes = highest + 1 if num_classes is None else num_classes
        require(
            int(labels.min()) >= 0 and highest < self.num_classes,
            f"The {name} labels run from {labels.min()} to {highest} for {self.num_classes} classes: "
            f"labels must lie in 0 … {self.num_classes - 1}.",
        )
        self.labels = torch.from_numpy(np.ascontiguousarray(labels, dtype=np.int64))


def check_alike(source: Source, target: Target) -> None:
    """Require samples of one shape in both domains."""
    require(
        source.shape == target.shape,
        f"A source sample has shape {source.shape}, a target sample {target.shape}: both must be the same.",
    )


def _samples(x: Any, name: str) -> Tensor | Mapped:
    """Check an array of samples; a tensor if it is in memory, else a reader of its mapping."""
    if isinstance(x, Tensor):
        x = (x.float() if x.dtype == torch.bfloat16 else x).detach().cpu().numpy()
    try:
        array = x if isinstance(x, np.ndarray) else np.asarray(x)
    except ValueError as error:
        raise UserError(f"The {name} has rows of different lengths: give an array of samples.") from error
    require(array.ndim >= 2, f"The {name} has shape {array.shape}: give an array of samples [n, features].")
    require(len(array) > 0, f"The {name} is empty: give at least one sample.")
    check_numbers(array, name)
    if isinstance(array, np.memmap):
        return Mapped(array)
    if array.dtype.kind in "iub" and array.dtype != np.uint8:
        array = array.astype(np.float32)
    # over the array's own memory where torch can have it: contiguous, writeable, native byte order
    return torch.from_numpy(np.require(array, array.dtype.newbyteorder("="), ["C", "W"]))


def check_numbers(array: np.ndarray, name: str) -> None:
    """Require real numbers that float32 can hold; the error names the first bad row."""
    require(
        array.dtype.kind in "fiub" and array.dtype.itemsize <= 8,
        f"The {name} holds values of type {array.dtype}: give an array of numbers, float64 at most.",
    )
    if array.dtype.kind != "f":
        return
    limit = np.finfo(np.float32).max
    width = int(np.prod(array.shape[1:]))
    step = max(1, _CHUNK_VALUES // max(1, width))
    for start in range(0, len(array), step):
        chunk = array[start : start + step].reshape(-1, width)
        chunk = chunk if chunk.dtype.itemsize > 2 else chunk.astype(np.float32)  # NumPy compares halves slowly
        if chunk.size and not (chunk.min() >= -limit and chunk.max() <= limit):  # also if one is NaN
            row, column = np.argwhere(~(np.abs(chunk) <= limit))[0]
            value, row = chunk[row, column], start + row
            raise UserError(
                f"The {name} has values beyond what float32 holds (first in row {row}: {value:g}): scale the "
                f"features, for example to deviation 1."
                if np.isfinite(value)
                else f"The {name} has NaN or infinite values (first in row {row}): drop or fill such rows."
            )
        release_pages(array)


def _rows(x: Tensor | Mapped, indices: Any, dtype: torch.dtype) -> Tensor:
    if isinstance(x, Tensor):
        if isinstance(indices, slice):
            return x[indices].to(dtype, copy=True)  # a network may change it in place
        return x.index_select(0, torch.as_tensor(indices)).to(dtype)
    return torch.from_numpy(x.read(indices)).to(dtype)


def evenly_spaced_indices(count: int, max_rows: int) -> np.ndarray:
    """At most `max_rows` of `count` row numbers, evenly spaced; files are often sorted by class."""
    return np.arange(count) if count <= max_rows else np.linspace(0, count - 1, max_rows).round().astype(int)


def random_indices(count: int, max_rows: int, seed: int = 0) -> np.ndarray:
    """At most `max_rows` of `count` row numbers, drawn without replacement, in order."""
    if count <= max_rows:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, max_rows, replace=False))


class Part(Target):
    """The samples of a domain at `rows`, read from it when needed."""

    def __init__(self, domain: Target, rows: np.ndarray) -> None:
        self.name, self.shape, self.views = domain.name, domain.shape, None
        self._domain, self._rows = domain, rows

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, indices: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """A copy of the samples at `indices`."""
        return self._domain.batch(self._rows[indices], dtype)


class SourcePart(Part, Source):
    """The samples of a source at `rows`, with their labels."""

    def __init__(self, source: Source, rows: np.ndarray) -> None:
        super().__init__(source, rows)
        self._set_labels(source.labels.numpy()[rows], source.num_classes)


class PseudoLabelledSource(Source):
    """The samples of a source, then some of a target `repeat` times, so that both weigh about the same.

    Parameters
    ----------
    source, target : Source, Target
        Vectors of the same length. `labelled` is the source without the target's samples.
    rows, labels : integer arrays
        Which samples of the target are added, and with which pseudo-labels.
    """

    def __init__(self, source: Source, target: Target, rows: np.ndarray, labels: np.ndarray) -> None:
        self.name, self.shape, self.views = source.name, source.shape, None
        self.labelled, self._target, self._target_rows = source, target, rows
        self.repeat = max(1, round(len(source) / max(1, len(rows))))
        all_labels = np.concatenate([source.labels.numpy(), np.tile(labels, self.repeat)])
        self._set_labels(all_labels, source.num_classes)

    def __len__(self) -> int:
        return len(self.labelled) + self.repeat * len(self._target_rows)

    def batch(self, indices: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """A copy of the samples at `indices`."""
        index = np.arange(len(self))[indices] if isinstance(indices, slice) else np.asarray(indices)
        of_source = index < len(self.labelled)
        rows = self._target_rows[(index[~of_source] - len(self.labelled)) % len(self._target_rows)]
        batch = torch.empty((len(index), *self.shape), dtype=dtype)
        batch[torch.from_numpy(of_source)] = self.labelled.batch(index[of_source], dtype)
        batch[torch.from_numpy(~of_source)] = self._target.batch(rows, dtype)
        return batch
