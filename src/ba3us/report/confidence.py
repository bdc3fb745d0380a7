"""How sure single predictions are: what is kept at each error level and, with labels, what of it was wrong."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ba3us.report.parts import Part, Section, Table, Words
from ba3us.report.told import Told, percent
from ba3us.selection.calibration import LEVEL, Calibration

_SHOWN = (0.01, 0.02, LEVEL, 0.1, 0.2)


def statement(told: Told) -> list[Part]:
    """What may be expected at the usual error level, in words."""
    return [] if told.run.calibration is None else [Words(" ".join(told.run.calibration.said()), aside=True)]


def confidence_section(told: Told) -> Section | None:
    """Only of runs that were calibrated."""
    made = told.run.calibration
    if made is None:
        return None
    words = (
        "Confidence is the probability of the predicted class after calibration, by source rows that were put "
        "aside and by how well the target's neighbours agree. Keep only what is above the threshold of an "
        "error level, and no more than that share of it should be wrong, as far as rows that lie close share a "
        "class; only labels can prove it. The table predictions.csv abstains from the rest, at a level of "
        f"{percent(LEVEL, 0)}."
    )
    parts: list[Part] = [Words(words), _levels(told, made)]
    parts += (
        [Words(f"No level can be promised here. {' '.join(made.cautions)}", aside=True)]
        if made.cautions
        else []
    )
    return Section("confidence", "How sure single predictions are", parts)


def _levels(told: Told, made: Calibration) -> Table:
    columns = ["error level", "keep from confidence", "rows kept"]
    truth = _truth(told)
    columns += [] if truth is None else ["wrong of these, by the labels given"]
    rows = []
    for level in _SHOWN:
        least = made.threshold(level)
        row = [percent(level, 0), "–" if least > 1 else f"{least:.3f}", percent(made.share_kept(level))]
        if truth is not None:
            kept = truth["wrong"][truth["confidence"] >= least - 1e-6]  # of six digits
            row.append(percent(float(kept.mean())) if len(kept) else "–")
        rows.append(row)
    return Table("What is kept at an error level", columns, rows, range(1, len(columns)), [_SHOWN.index(LEVEL)])


def _truth(told: Told) -> pd.DataFrame | None:
    """Confidence of every row and whether it is wrong, if labels were given."""
    if told.labels is None or told.predictions is None or "confidence" not in told.predictions:
        return None
    sure = pd.to_numeric(told.predictions["confidence"], errors="coerce")
    return pd.DataFrame({"confidence": sure, "wrong": np.asarray(told.run.best.predictions != told.labels)})
