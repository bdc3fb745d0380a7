"""A source that target rows have joined, under labels that were worked out for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ba3us.data.domain import Source, Target


class TaughtSource(Source):
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
