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
from ba3us.training.team import Team


def make_inputs(
    fabric: Fabric,
    team: Team,
    rows: BatchIndices,
    source: Source,
    target: Target,
    dtype: torch.dtype,
    at: tuple[int, int],
) -> Inputs:
    """This process's share of the joint batches at `rows`, drawn in phase and update `at`.

    Without labels of the target, even of a Source.
    """

    def batch(stream: int, domain: Target, joint: np.ndarray, labels: Tensor | None = None) -> Batch:
        mine = team.share(len(joint))
        index, draws = joint[mine], draw_numbers(*at, stream, len(joint))[mine]
        x = domain.training_batch(index, draws, dtype)
        made = Batch(x, torch.as_tensor(index), None if labels is None else labels[index])
        return made if fabric.device.type == "cpu" else fabric.to_device(made)

    return Inputs(
        batch(0, source, rows.source, source.labels),
        batch(1, target, rows.target),
        batch(2, source, rows.borrowed, source.labels),
    )


def announce(
    streams: Any, team: Team, draw: Callable[[], BatchIndices], source: Source, target: Target
) -> None:
    """Tell domains that can read ahead which rows will come next; the streams stay where they are."""

    def mine(joint: np.ndarray) -> np.ndarray:
        return joint[team.share(len(joint))]

    if source.prefetches or target.prefetches:
        positions = streams.positions()
        rows = draw()
        streams.seek(positions)
        source.expect(np.concatenate([mine(rows.source), mine(rows.borrowed)]))
        target.expect(mine(rows.target))
