"""Memory-mapped arrays: a file larger than memory passes through little of it."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

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
            let_go(self.array)
            self._resident = 0
        return copy


def let_go(array: np.ndarray) -> None:
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
