"""Charts of a benchmark: accuracy on each task, gain over source-only, what accuracy costs. They only draw."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ba3us.report.charts import look
from ba3us.report.parts import Chart, Key, Spot
from ba3us.report.svg import (
    SMALL,
    WIDTH,
    Scale,
    across,
    below,
    dots,
    drawing,
    element,
    scale,
    shape,
    short,
    text,
    width_of,
)

_ROW, _TOP = 17, 8
_MOST_LETTERS = 18


@dataclass(frozen=True)
class Mark:
    """A value of a row, what is said of it, and which of the legend's entries it belongs to."""

    value: float
    words: str
    key: int = 0


@dataclass(frozen=True)
class Row:
    """A system: its values and, if it is drawn, their mean."""

    name: str
    marks: Sequence[Mark]
    mean: float | None = None


def strips(
    title: str,
    summary: str,
    rows: Sequence[Row],
    words: str,
    *,
    reference: float | None = None,
    legend: Sequence[str] = (),
    small: bool = False,
) -> Chart:
    """A row per system with its values along one axis; `reference` is a line through all of them.

    With a mean: its values are small, a line joins the least and the largest of them, and the mean is a square.
    """
    width = SMALL if small else WIDTH
    left = width_of(short(row.name, _MOST_LETTERS) for row in rows) + 10
    bottom = _TOP + _ROW * len(rows) + 4
    x = scale((m.value for row in rows for m in row.marks), left, width - 14, *_known(reference))
    parts, spots = [below(x, _TOP, bottom, words, grid=True)], []
    if reference is not None:
        parts.append(element("path", d=f"M{x(reference)} {_TOP}V{bottom}", class_="zero"))
    for number, row in enumerate(rows):
        y = _TOP + _ROW * (number + 0.5) + 2
        parts.append(text(left - 6, y + 4, short(row.name, _MOST_LETTERS), "end"))
        parts += [_row(row, x, y)]
        spots += [
            Spot(x(m.value), y, f"{row.name}\n{m.words}", _group(legend, m)) for m in row.marks if _there(m)
        ]
    keys = [Key(f"s{n}", name, _shaped(n), shape(n, 11, 6)) for n, name in enumerate(legend)]
    return Chart(title, summary, drawing(bottom + 36, *parts, width=width), spots, keys)


def _row(row: Row, x: Scale, y: float) -> Markup:
    marks = [m for m in row.marks if _there(m)]
    if not marks:
        return text(x.start + 4, y + 4, "no finished run", "faint")
    if row.mean is None:
        drawn = [
            element("path", d=shape(m.key, x(m.value), y), class_=_shaped(m.key), data_group=f"s{m.key}")
            for m in marks
        ]
        return Markup("").join(drawn)
    least, most = (x(pick(m.value for m in marks)) for pick in (min, max))
    return Markup("").join(
        [
            element("path", d=f"M{least} {y}H{most}", class_="whisker k0"),
            element("path", d=dots((x(m.value), y) for m in marks), class_="dot small k0"),
            element("path", d=dots([(x(row.mean), y)]), class_="dot square k0"),
        ]
    )


def _shaped(number: int) -> str:
    return f"shape {look(number)}"


def _group(legend: Sequence[str], mark: Mark) -> tuple[str, ...]:
    return (f"s{mark.key}",) if legend else ()


def _there(mark: Mark) -> bool:
    return math.isfinite(mark.value)


def _known(reference: float | None) -> tuple[float, ...]:
    return () if reference is None else (reference,)


@dataclass(frozen=True)
class Point:
    """A system by what it costs and what it gives."""

    name: str
    cost: float
    value: float
    words: str


def costs(title: str, summary: str, points: Sequence[Point], axes: tuple[str, str]) -> Chart:
    """What systems give against what they cost, on a logarithmic axis; each is called by its name."""
    height, points = 320, [p for p in points if math.isfinite(p.value) and p.cost > 0]
    y = scale((p.value for p in points), height - 40, 18)
    left = width_of(label for _, label in y.ticks()) + 12
    x = scale((p.cost for p in points), left, WIDTH - 20, log=True)
    parts = [
        across(y, left, WIDTH - 8),
        below(x, 18, height - 40, axes[0]),
        text(left - 6, 9, axes[1], "faint"),
    ]
    parts.append(element("path", d=dots((x(p.cost), y(p.value)) for p in points), class_="dot big k0"))
    taken = [(x(p.cost) - 5, y(p.value), 10.0) for p in points]
    for point in sorted(points, key=lambda p: -p.value):
        words = short(point.name, _MOST_LETTERS)
        place = _free(x(point.cost), y(point.value), width_of([words]), taken)
        parts.append(text(place[0], place[1] + 4, words))
    spots = [Spot(x(p.cost), y(p.value), f"{p.name}\n{p.words}") for p in points]
    return Chart(title, summary, drawing(height, *parts), spots)


def _free(x: float, y: float, wide: float, taken: list[tuple[float, float, float]]) -> tuple[float, float]:
    """Where a name is set: right of its point, else left, else ever farther down, and on no other."""
    for lower in itertools.count(0, 3):
        for start in (x + 8, x - 8 - wide):
            on = any(start < s + w and s < start + wide and abs(y + lower - t) < 11 for s, t, w in taken)
            if not on and 0 < start < WIDTH - wide:
                taken.append((start, y + lower, wide))
                return taken[-1][:2]
    raise AssertionError("a page has no end")
