"""A source that target rows have joined, under labels that were worked out for them."""

from __future__ import annotations

import mmap
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ba3us.errors import UserError, require

# --- mapped -----------------------------------------------------------------------------------------------
# Memory-mapped arrays: a file larger than memory passes through little of it.


_FORGET = getattr(mmap, "MADV_DONTNEED", None)  # not on every system
_NEIGHBOURS = 1 << 21  # bytes that may become resident around a place read: Linux maps pages in large groups
_RESIDENT = 1 << 26  # about so many may stay


class Mapped:
    """The rows of a memory-mapped array, of which few stay resident."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype
        self._resident = 0

    def __len__(self) -> int:
        return len(self.array)

    def read(self, rows: Any) -> np.ndarray:
        """A copy of some rows (an integer array or a slice), in native byte order."""
        copy = np.array(self.array[rows], dtype=self.dtype.newbyteorder("="))
        self._resident += copy.nbytes + _NEIGHBOURS * (1 if isinstance(rows, slice) else len(rows))
        if self._resident > _RESIDENT:
            release_pages(self.array)
            self._resident = 0
        return copy


def release_pages(array: np.ndarray) -> None:
    """Take a mapping's pages out of this process's memory; they are read again when next needed.

    A copy-on-write mapping is left alone: its pages hold what the file does not.
    """
    mapping = getattr(array, "_mmap", None)
    if mapping is None or _FORGET is None or getattr(array, "mode", "c") == "c":
        return
    try:
        mapping.madvise(_FORGET)
    except (OSError, ValueError):  # it is an economy: where it can't be had, all else goes on
        return


# --- domain -----------------------------------------------------------------------------------------------
# Domains: a labelled source and an unlabelled target over arrays.


_CHUNK_VALUES = 1 << 24  # how many values one pass over a large array touches at a time


class Target:
    """Unlabelled samples: an array whose first axis runs over samples. It has no place for labels.

    Parameters
    ----------
    x : array [n, ...]
        Features or pixels; float16/32/64 or integers; may be memory-mapped. An array in memory becomes a
        tensor once; a memory-mapped one stays on disk and only the rows of a batch are read.
    views : array [v, n, ...], optional
        Other views of the same samples (ten crops) for methods that refresh from them.
    name : str
        How messages call this domain.
    """

    prefetches: ClassVar[bool] = False  # whether it is worth telling `expect` of the next rows
    _x: Any = None  # Tensor or Mapped; domains that make their rows when asked have none

    def __init__(self, x: Any, *, views: Any = None, name: str = "target") -> None:
        self.name = name
        self._x = _samples(x, name)
        self.views = None if views is None else [_samples(v, f"{name} view") for v in views]
        for view in self.views or ():
            require(
                len(view) == len(self._x), f"The {name} has {len(self._x)} rows but a view has {len(view)}."
            )

    def __len__(self) -> int:
        return len(self._x)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self._x.shape[1:])

    def batch(self, indices: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """A copy of the rows at `indices` (an integer array or a slice) as a floating tensor."""
        return _rows(self._x, indices, dtype)

    def training_batch(self, indices: Any, draws: np.ndarray, dtype: torch.dtype = torch.float32) -> Tensor:
        """Rows for an update. `draws` number each time a row is drawn in a run, for domains that vary rows."""
        return self.batch(indices, dtype)

    def expect(self, indices: Any) -> None:
        """These rows will be asked for next; a domain that `prefetches` may begin to read them."""

    def view_batch(self, view: int, indices: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """Rows of one of the extra views."""
        assert self.views is not None
        return _rows(self.views[view], indices, dtype)


class Source(Target):
    """Labelled samples: a domain plus integer labels 0 … C-1.

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
    """Samples of both domains have one shape."""
    require(
        source.shape == target.shape,
        f"A source sample has shape {source.shape}, a target sample {target.shape}: both must be the same.",
    )


def _samples(x: Any, name: str) -> Tensor | Mapped:
    """Check an array of samples; a tensor if it is in memory, else its memory-mapped rows."""
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
    return _tensor(array)


def check_numbers(array: np.ndarray, name: str) -> None:
    """Real numbers that float32 can hold; else the first row with another is named."""
    require(
        array.dtype.kind in "fiub" and array.dtype.itemsize <= 8,
        f"The {name} holds values of type {array.dtype}: give an array of numbers, float64 at most.",
    )
    if array.dtype.kind != "f":
        return
    most = np.finfo(np.float32).max
    step = max(1, _CHUNK_VALUES // max(1, int(np.prod(array.shape[1:]))))
    for start in range(0, len(array), step):
        chunk = array[start : start + step].reshape(-1, int(np.prod(array.shape[1:])))
        chunk = chunk if chunk.dtype.itemsize > 2 else chunk.astype(np.float32)  # NumPy compares halves slowly
        if chunk.size and not (chunk.min() >= -most and chunk.max() <= most):  # also if one is NaN
            row, column = np.argwhere(~(np.abs(chunk) <= most))[0]
            _refuse(chunk[row, column], start + int(row), name)
        release_pages(array)


def _refuse(value: np.floating, row: int, name: str) -> None:
    if np.isfinite(value):
        raise UserError(
            f"The {name} has values beyond what float32 holds (first in row {row}: {value:g}): scale the "
            f"features, for example to deviation 1."
        )
    raise UserError(f"The {name} has NaN or infinite values (first in row {row}): drop or fill such rows.")


def _rows(x: Tensor | Mapped, indices: Any, dtype: torch.dtype) -> Tensor:
    if isinstance(x, Tensor):
        if isinstance(indices, slice):
            return x[indices].to(dtype, copy=True)  # a network may begin in place
        return x.index_select(0, torch.as_tensor(indices)).to(dtype)
    return torch.from_numpy(x.read(indices)).to(dtype)


def _tensor(array: np.ndarray) -> Tensor:
    """A tensor over the array's memory where torch can have it: contiguous, writeable, native byte order."""
    return torch.from_numpy(np.require(array, array.dtype.newbyteorder("="), ["C", "W"]))


def evenly_spaced_indices(count: int, max_rows: int) -> np.ndarray:
    """At most `max_rows` of `count` row numbers, evenly spaced; files are often sorted by class."""
    return np.arange(count) if count <= max_rows else np.linspace(0, count - 1, max_rows).round().astype(int)


def random_indices(count: int, max_rows: int, seed: int = 0) -> np.ndarray:
    """At most `max_rows` of `count` row numbers, drawn without replacement, in order."""
    if count <= max_rows:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, max_rows, replace=False))


# --- part -------------------------------------------------------------------------------------------------
# Some rows of a domain, as a domain of their own.


class Part(Target):
    """The `rows` of a domain, read from it when they are asked for."""

    def __init__(self, domain: Target, rows: np.ndarray) -> None:
        self.name, self.views = domain.name, None
        self._whole, self._rows = domain, rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self._whole.shape

    def batch(self, indices: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """A copy of the rows at `indices`."""
        return self._whole.batch(self._rows[indices], dtype)


class SourcePart(Part, Source):
    """The `rows` of a source, with their labels."""

    def __init__(self, source: Source, rows: np.ndarray) -> None:
        super().__init__(source, rows)
        self._set_labels(source.labels.numpy()[rows], source.num_classes)


# --- taught -----------------------------------------------------------------------------------------------
# A source that target rows have joined, under labels that were worked out for them.


class PseudoLabelledSource(Source):
    """The rows of a source, then some of a target's, `repeat` times, so that both weigh about as much.

    Parameters
    ----------
    source, target : Source, Target
        Vectors of the same length.
    rows, labels : integer arrays
        Which rows of the target join, and as what.
    """

    def __init__(self, source: Source, target: Target, rows: np.ndarray, labels: np.ndarray) -> None:
        self.name, self.views = source.name, None
        self._source, self._target, self._joining = source, target, rows
        self.repeat = max(1, round(len(source) / max(1, len(rows))))
        joined = np.concatenate([source.labels.numpy(), np.tile(labels, self.repeat)])
        self._set_labels(joined, source.num_classes)

    def __len__(self) -> int:
        return len(self._source) + self.repeat * len(self._joining)

    @property
    def labelled(self) -> Source:
        """The source as it was."""
        return self._source

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self._source.shape

    def batch(self, indices: Any, dtype: torch.dtype = torch.float32) -> Tensor:
        """Rows of the one, or of the other."""
        index = np.arange(len(self))[indices] if isinstance(indices, slice) else np.asarray(indices)
        own = index < len(self._source)
        other = self._joining[(index[~own] - len(self._source)) % len(self._joining)]
        made = torch.empty((len(index), *self.shape), dtype=dtype)
        made[torch.from_numpy(own)] = self._source.batch(index[own], dtype)
        made[torch.from_numpy(~own)] = self._target.batch(other, dtype)
        return made
