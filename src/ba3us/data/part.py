"""Some rows of a domain, as a domain of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ba3us.data.domain import Source, Target


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
