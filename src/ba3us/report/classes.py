"""Which classes the target holds, as far as the run can tell."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd

from ba3us.report.charts import bar
from ba3us.report.parts import Cell, Part, Section, Table, Words
from ba3us.report.told import SPACE, Told, counted, listed, percent

_PRESENT = {
    word: f"{sign}{SPACE}{said}"
    for word, sign, said in (("yes", "✓", "present"), ("no", "–", "absent"), ("unsure", "?", "unsure"))
}
_MOST_NAMED = 12  # classes in a sentence


def presence_section(told: Told) -> Section:
    """Every class with its share of the target and whether it is present; intervals where there are some."""
    table = _numbers(told.presence).sort_values("share", ascending=False, kind="stable")
    intervals = {"low", "high"} <= set(table)
    largest = max(table[["share", "high"] if intervals else ["share"]].max().max(), 1e-9)
    columns = ["class", "in the target?", "", "share", *(["interval"] if intervals else []), "mean probability"]
    rows = [_row(row, largest, intervals) for row in table.to_dict("records")]
    marked = np.flatnonzero(table["present"] == "yes").tolist()
    words = "share: how many of the target's rows the model takes for the class. Bars are drawn to the largest."
    parts: list[Part] = [
        Words(_held(table)),
        Table(
            "Classes by their share of the target",
            columns,
            rows,
            numeric=range(3, len(columns)),
            marked=marked,
            notes=[words],
        ),
    ]
    return Section("classes", "Classes in the target", parts)


def _numbers(presence: pd.DataFrame) -> pd.DataFrame:
    """The texts of the file as numbers, where they are some."""
    known = [name for name in ("share", "mean_probability", "low", "high") if name in presence]
    return presence.assign(**{name: pd.to_numeric(presence[name], errors="coerce") for name in known})


def _row(row: dict[Hashable, Any], largest: float, intervals: bool) -> list[Cell]:
    """Name, answer, bar, share, interval and mean probability of one class."""
    share = percent(row["share"])
    said = f"{percent(row['low'])} … {percent(row['high'])}" if intervals else ""
    ends = (row["low"] / largest, row["high"] / largest) if intervals else None
    words = f"{row['class']}: {share}" + (f", between {said}" if said else "")
    cells = [
        row["class"],
        _PRESENT.get(row["present"], row["present"]),
        bar(row["share"] / largest, ends, words),
    ]
    return [*cells, share, *([said] if intervals else []), percent(row["mean_probability"])]


def _held(table: pd.DataFrame) -> str:
    """The answer in a sentence or two."""
    present = table[table["present"] == "yes"]["class"].tolist()
    unsure = table[table["present"] == "unsure"]["class"].tolist()
    seems = f"The target seems to hold {len(present)} of {counted(len(table), 'class', 'classes')}"
    said = [_named(seems, present)] + ([_named(f"{len(unsure)} can't be told", unsure)] if unsure else [])
    return " ".join([*said, "This is judged from predictions; no label of the target was used."])


def _named(start: str, names: list[str]) -> str:
    """A sentence that names the first of them."""
    if not names:
        return f"{start}."
    more = len(names) - _MOST_NAMED
    shown = names if more <= 0 else [*names[:_MOST_NAMED], f"{more} more"]
    return f"{start}: {listed(shown)}."
