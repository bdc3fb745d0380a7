"""The calibration of a run: a twin that learns most of the source rows is asked of those put aside."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ba3us.data import Source, Target
from ba3us.data.part import Part, SourcePart
from ba3us.engine.again import evenly
from ba3us.engine.run import Run
from ba3us.selection.calibration import Calibration, calibrate

_SHARE = 5  # of so many rows of a class one is put aside
_MOST = 5_000  # rows put aside, and of the target that are looked at


def calibrated(run: Run, target: Target, source: Source, twin: Callable[[Source], Run]) -> Calibration:
    """Of a run that has a verdict.

    The run's own network has learned every source row; none is left to calibrate it with. `twin` trains
    source-only on the rows it is given: a network of the same kind and settings, which serves for that alone.
    """
    assert run.verdict is not None
    aside = _aside(source.labels.numpy())
    held_out, labels = np.zeros((0, source.num_classes)), np.zeros(0, np.int64)
    if aside.any():
        unseen = SourcePart(source, np.flatnonzero(aside))
        held_out, labels = (
            twin(SourcePart(source, np.flatnonzero(~aside))).logits(unseen),
            unseen.labels.numpy(),
        )
    seen = run.logits(Part(target, evenly(len(target), _MOST)))
    return calibrate(seen, held_out, labels, run.verdict)


def _aside(labels: np.ndarray) -> np.ndarray:
    """A fifth of every class, drawn, as a mask; a class with fewer than two rows keeps what it has."""
    chance, share = np.random.default_rng(0), min(1 / _SHARE, _MOST / len(labels))
    aside = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        count = max(1, round(share * len(rows))) if len(rows) > 1 else 0
        aside[chance.choice(rows, count, replace=False)] = True
    return aside
