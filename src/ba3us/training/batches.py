"""From drawn rows to the batches of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from ba3us.data import BatchIndices, Source, Target
from ba3us.data.streams import draw_numbers
from ba3us.methods.base import Batch, Inputs


def make_inputs(
    fabric: Fabric,
    rows: BatchIndices,
    source: Source,
    target: Target,
    dtype: torch.dtype,
    at: tuple[int, int],
) -> Inputs:
    """The batches at `rows`, drawn in phase and update `at`; without labels of the target, even of a Source."""

    def batch(stream: int, domain: Target, index: np.ndarray, labels: Tensor | None = None) -> Batch:
        draws = draw_numbers(*at, stream, len(index))
        made = Batch(domain.training_batch(index, draws, dtype), torch.as_tensor(index), labels)
        return made if fabric.device.type == "cpu" else fabric.to_device(made)

    return Inputs(
        batch(0, source, rows.source, source.labels[rows.source]),
        batch(1, target, rows.target),
        batch(2, source, rows.borrowed, source.labels[rows.borrowed]),
    )


def announce(streams: Any, draw: Callable[[], BatchIndices], source: Source, target: Target) -> None:
    """Tell domains that can read ahead which rows will come next; the streams stay where they are."""
    if source.prefetches or target.prefetches:
        positions = streams.positions()
        rows = draw()
        streams.seek(positions)
        source.expect(np.concatenate([rows.source, rows.borrowed]))
        target.expect(rows.target)
