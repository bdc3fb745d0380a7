"""From drawn rows to the batches of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric

from ba3us.data import BatchIndices, Source, Target
from ba3us.data.streams import draw_numbers
from ba3us.methods.base import Batch, Inputs
from ba3us.training.team import Team


class Feed:
    """What a phase is fed with: this process's share of the joint batches, on its device.

    Without labels of the target, even of a Source.
    """

    def __init__(
        self, fabric: Fabric, team: Team, source: Source, target: Target, phase: int, dtype: torch.dtype
    ) -> None:
        self.team, self.source, self.target, self.phase, self.dtype = team, source, target, phase, dtype
        self.move = None if fabric.device.type == "cpu" else fabric.to_device

    def inputs(self, rows: BatchIndices, step: int) -> Inputs:
        """The batches of update `step`."""
        joint = rows.source, rows.target, rows.borrowed
        shares = [self.team.share(len(drawn)) for drawn in joint]
        mine = [torch.from_numpy(drawn[share]) for drawn, share in zip(joint, shares)]
        draws = [draw_numbers(self.phase, step, i, len(joint[i]))[shares[i]] for i in range(3)]
        drawn = zip((self.source, self.target, self.source), mine, draws)
        x = [domain.training_batch(index.numpy(), n, self.dtype) for domain, index, n in drawn]
        labels = self.source.labels
        made = Inputs(
            Batch(x[0], mine[0], labels.index_select(0, mine[0])),
            Batch(x[1], mine[1]),
            Batch(x[2], mine[2], labels.index_select(0, mine[2])),
        )
        return made if self.move is None else Inputs(*map(self.move, made))

    def announce(self, streams: Any, draw: Callable[[], BatchIndices]) -> None:
        """Tell domains that can read ahead which rows will come next; the streams stay where they are."""
        if not (self.source.prefetches or self.target.prefetches):
            return
        positions = streams.positions()
        rows = draw()
        streams.seek(positions)
        mine = [joint[self.team.share(len(joint))] for joint in (rows.source, rows.borrowed, rows.target)]
        self.source.expect(np.concatenate(mine[:2]))
        self.target.expect(mine[2])
