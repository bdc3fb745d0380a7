"""Charts of a benchmark: accuracy on each task, gain over source-only, what accuracy costs. They only draw."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from markupsafe import Markup, escape

from ba3us.report.page import Chart, Key, Spot

# --- svg --------------------------------------------------------------------------------------------------
# Drawings as SVG text: elements, scales and axes. Colours and sizes of letters are the page's, by class.


WIDTH, SMALL = 440, 320  # of drawings, in their own units, which are about a pixel on any screen
_LETTER = 6.6  # about the width of one


def element(name: str, *content: str, **attributes: object) -> Markup:
    """An element; ``class_`` is ``class``, other underscores are hyphens, None leaves an attribute out."""
    given = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(escape(part) for part in content)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), given, inner)


def drawing(height: float, *content: str, width: float = WIDTH) -> Markup:
    """The whole of it."""
    return element("svg", *content, viewBox=f"0 0 {width} {height:g}", aria_hidden="true", focusable="false")


def text(x: float, y: float, words: str, class_: str = "", **more: object) -> Markup:
    """Words at a place."""
    return element("text", words, x=f"{x:.1f}", y=f"{y:.1f}", class_=class_ or None, **more)


def short(words: str, most: int = 16) -> str:
    """As many of the letters as there is room for."""
    return words if len(words) <= most else f"{words[: most - 1]}…"


def width_of(words: Iterable[str]) -> float:
    """About how wide the longest of them is."""
    return _LETTER * max((len(each) for each in words), default=0)


@dataclass(frozen=True)
class Scale:
    """From values to places along one axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    share: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value."""
        low, high, at = (
            (math.log10(v) for v in (self.low, self.high, value)) if self.log else self._plain(value)
        )
        share = (at - low) / (high - low) if high > low else 0.5
        return round(self.start + share * (self.end - self.start), 1)

    def _plain(self, value: float) -> tuple[float, float, float]:
        return self.low, self.high, value

    def ticks(self, about: int = 5) -> list[tuple[float, str]]:
        """Round values in its range, and how they are written."""
        values = _decades(self.low, self.high) if self.log else _steps(self.low, self.high, about)
        return [(value, f"{100 * value:.10g} %" if self.share else f"{value:,.10g}") for value in values]


def scale(
    values: Iterable[float], start: float, end: float, *also: float, log: bool = False, share: bool = False
) -> Scale:
    """Over all finite `values`, and those that are to be seen `also`, with a little air; a `share` is in %."""
    finite = [v for v in (*values, *also) if math.isfinite(v) and (v > 0 or not log)]
    low, high = min(finite, default=1.0), max(finite, default=1.0)
    if log:
        return Scale(low / 1.4, high * 1.4, start, end, log=True)
    air = 0.04 * (high - low) or max(abs(high), 1.0) * 0.1
    low, high = low if low in also else low - air, high if high in also else high + air
    return Scale(low, high, start, end, share=share)


def _steps(low: float, high: float, about: int) -> list[float]:
    if not high > low:
        return [low]
    rough = (high - low) / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(n * step, 10) for n in range(first, last + 1)]


def _decades(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [m * 10.0**p for p in powers for m in (1, 2, 5)]
    seen = [v for v in fine if low <= v <= high]
    return seen if len(seen) <= 6 else [v for v in seen if f"{v:e}".startswith("1")]


def across(y: Scale, left: float, right: float) -> Markup:
    """Grid lines from left to right, with their values."""
    return Markup("").join(
        element("path", d=f"M{left} {y(v)}H{right}", class_="grid") + text(left - 5, y(v) + 4, label, "end")
        for v, label in y.ticks()
    )


def below(x: Scale, top: float, bottom: float, words: str, grid: bool = False) -> Markup:
    """Ticks under a drawing, with their values and what they are."""
    parts = []
    for value, label in x.ticks():
        parts.append(
            element("path", d=f"M{x(value)} {top if grid else bottom}V{bottom + 3}", class_="grid")
            + text(x(value), bottom + 15, label, "middle")
        )
    middle = (x.start + x.end) / 2
    return Markup("").join([*parts, text(middle, bottom + 31, words, "middle faint")])


def polyline(places: Sequence[tuple[float, float]]) -> str:
    """The path through places."""
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in places)


# a shape for every look, drawn from its middle
_SHAPES = (
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "m-3.5-3.5h7v7h-7z",
    "m0-4.6 4.4 7.8h-8.8z",
    "m0-5 5 5-5 5-5-5z",
    "m0 4.6 4.4-7.8h-8.8z",
    "m-1.4-4.6h2.8v3.2h3.2v2.8h-3.2v3.2h-2.8v-3.2h-3.2v-2.8h3.2z",
    "m-2.3-4h4.6l2.3 4-2.3 4h-4.6l-2.3-4z",
    "m-4.5-2h9v4h-9z",
)


def shape(number: int, x: float, y: float) -> str:
    """The path of a mark that is told from the others without its colour."""
    return f"M{x:g} {y:g}{_SHAPES[number % len(_SHAPES)]}"


def dots(places: Iterable[tuple[float, float]]) -> str:
    """A path of marks so short that only their round or square ends are seen: few letters for many points."""
    return "".join(f"M{x:g} {y:g}h.1" for x, y in places)


# --- charts -----------------------------------------------------------------------------------------------
# Charts of a run: curves over the updates, clouds of points, a matrix. They only draw.


LOOKS = 8  # colours, each with a dash of its own, in page.css
REST = "kx"  # the look of all others
_TOP, _MARGIN, _RIGHT = 20, 40, WIDTH - 8
_NAME = 13  # height of a name in a cloud
_MOST_DOTS = 60  # evaluations that are marked on their curve
_MOST_WRITTEN = 12  # classes up to which the cells of a matrix have their numbers written in


def look(number: int) -> str:
    """The look of the series at that place."""
    return f"k{number % LOOKS}"


# --- curves -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """Values over the updates."""

    name: str
    updates: Iterable[float]
    values: Iterable[float]
    look: str = "k0"


@dataclass(frozen=True)
class CurveAxes:
    """What all curves of a run share: which update was `kept`, the last one, and where each phase begins."""

    kept: float
    end: float
    phases: Sequence[tuple[float, str]] = ()


def curves(
    title: str,
    summary: str,
    drawn: Sequence[Curve],
    course: CurveAxes,
    *,
    also: Sequence[float] = (),
    share: bool = False,
    small: bool = False,
) -> Chart:
    """Curves over the updates, the kept evaluation marked; `also` are values the axis must show."""
    width, height = (SMALL, 200) if small else (WIDTH, 270)
    form, bottom = ".1%" if share else ".4g", height - _MARGIN
    y = scale([v for c in drawn for v in c.values], bottom, _TOP, *also, share=share)
    left = max(30, width_of(label for _, label in y.ticks()) + 8)
    x = scale([], left, width - 12, 0, course.end)
    parts = [across(y, left, width - 12), below(x, _TOP, bottom, "updates"), _events(x, course, bottom)]
    spots: list[Spot] = []
    for number, curve in enumerate(drawn):
        group = f"s{number}"
        found = [(u, v) for u, v in zip(curve.updates, curve.values) if math.isfinite(v)]
        places = [(x(u), y(v)) for u, v in found]
        if not places:
            continue
        parts.append(element("path", d=polyline(places), class_=f"line {curve.look}", data_group=group))
        if len(places) <= _MOST_DOTS:
            parts.append(element("path", d=dots(places), class_=f"dot small {curve.look}", data_group=group))
        spots += [
            Spot(*place, f"{curve.name}\n{v:{form}} after {u:,.0f} updates", (group,))
            for place, (u, v) in zip(places, found)
        ]
    legend = (
        [Key(f"s{n}", curve.name, f"line {curve.look}") for n, curve in enumerate(drawn)]
        if len(drawn) > 1
        else []
    )
    return Chart(title, summary, drawing(height, *parts, width=width), spots, legend)


def _events(x: Scale, course: CurveAxes, bottom: float) -> Markup:
    """Where phases begin and which update was kept."""
    parts = []
    if len(course.phases) > 1:
        for start, name in course.phases:
            parts.append(element("path", d=f"M{x(start)} {_TOP}V{bottom}", class_="grid"))
            parts.append(text(x(start) + 3, _TOP - 6, name, "faint"))
    at = x(course.kept)
    words = text(min(at, x.end - 4), _TOP - 6, "kept", "middle")
    return Markup("").join([*parts, element("path", d=f"M{at} {_TOP}V{bottom}", class_="kept"), words])


# --- clouds -------------------------------------------------------------------------------------------------


def cloud(
    title: str, summary: str, points: pd.DataFrame, names: Sequence[str], axes: tuple[str, str] = ("", "")
) -> Chart:
    """Points of both domains: shapes tell the domains apart, colours the domains or the classes.

    `points` has the columns x, y, domain ("source" or "target"), look (a place in `names`, or -1 for all
    others) and text.
    """
    height = 380
    wide, high = scale(points["x"], 12, _RIGHT), scale(points["y"], height - 26, 8)
    placed = points.assign(px=points["x"].map(wide), py=points["y"].map(high))
    parts: list[Markup] = []
    spots: list[Spot] = []
    for (domain, number), part in placed.groupby(["domain", "look"], sort=True):
        groups = (str(domain), f"c{number}")
        shown = f"dot {domain} {REST if groups[1] == 'c-1' else look(int(str(number)))}"
        parts.append(
            element("path", d=dots(zip(part["px"], part["py"])), class_=shown, data_group=" ".join(groups))
        )
        spots += [Spot(x, y, words, groups) for x, y, words in zip(part["px"], part["py"], part["text"])]
    parts += _names(placed, names)
    parts.append(text(WIDTH / 2, height - 6, axes[0], "middle faint"))
    parts.append(text(0, 0, axes[1], "middle faint", transform=f"translate(8 {height / 2:g}) rotate(-90)"))
    return Chart(title, summary, drawing(height, *parts), spots, _cloud_keys(placed, names))


def _names(placed: pd.DataFrame, names: Sequence[str]) -> list[Markup]:
    """Each class's name amid its points, so that no colour is needed to find it; none upon another."""
    found: list[tuple[float, float, float, int]] = []  # place, half width, class
    for number, name in enumerate(names):
        own = placed[placed["look"] == number]
        if len(own):
            half = width_of([short(name)]) / 2
            x, y = own[["px", "py"]].median()
            found.append((min(max(x, half + 10), WIDTH - half - 4), y, half, number))
    done: list[tuple[float, float, float, int]] = []
    for x, y, half, number in sorted(found, key=lambda place: place[1]):
        while any(abs(x - a) < half + h and abs(y - b) < _NAME for a, b, h, _ in done):
            y += 2
        done.append((x, y, half, number))
    return [text(x, y, short(names[n]), "middle name", data_group=f"c{n}") for x, y, _, n in done]


def _cloud_keys(placed: pd.DataFrame, names: Sequence[str]) -> list[Key]:
    mark = dots([(11, 6)])
    domains = [Key(d, d, f"dot {d}", mark) for d in ("source", "target") if (placed["domain"] == d).any()]
    classes = [Key(f"c{n}", name, f"dot {look(n)}", mark) for n, name in enumerate(names)]
    others = [Key("c-1", "other classes", f"dot {REST}", mark)] if (placed["look"] < 0).any() else []
    return [*domains, *classes, *others]


# --- a matrix -----------------------------------------------------------------------------------------------


def matrix(title: str, summary: str, counts: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> Chart:
    """Counts by true class (rows) and predicted class (columns); the darker, the larger a row's share."""
    left = min(width_of(short(r, 14) for r in rows), 100) + 22
    top = min(width_of(short(c, 14) for c in columns), 100) + 22
    size = min(44.0, (_RIGHT - left) / len(columns))
    parts, spots = [], []
    totals = counts.sum(axis=1, keepdims=True)
    for (i, j), count in np.ndenumerate(counts):
        share = count / max(1, totals[i, 0])
        at = left + j * size, top + i * size
        shade = min(9, math.ceil(share * 9))
        parts.append(_square(at, size, f"heat h{shade}"))
        if count:
            spots.append(
                Spot(
                    round(at[0] + size / 2, 1),
                    round(at[1] + size / 2, 1),
                    f"{rows[i]}\ntaken for {columns[j]}: {count} of {totals[i, 0]} rows ({share:.0%})",
                )
            )
            if len(columns) <= _MOST_WRITTEN:
                ink = "middle onheat" if shade > 5 else "middle"
                parts.append(text(at[0] + size / 2, at[1] + size / 2 + 4, str(count), ink))
    every = max(1, math.ceil(11 / size))  # labels that would touch are left out
    for i in range(0, len(rows), every):
        parts.append(text(left - 5, top + (i + 0.5) * size + 4, short(rows[i], 14), "end"))
    for j in range(0, len(columns), every):
        turned = f"translate({left + (j + 0.5) * size + 4:.1f} {top - 5:.1f}) rotate(-90)"
        parts.append(text(0, 0, short(columns[j], 14), transform=turned))
    wide, high = len(columns) * size, len(rows) * size
    parts.append(text(left + wide / 2, 11, "predicted", "middle faint"))
    turned = f"translate(11 {top + high / 2:.1f}) rotate(-90)"
    parts.append(text(0, 0, "true", "middle faint", transform=turned))
    return Chart(title, summary, drawing(top + high + 4, *parts), spots)


def _square(at: tuple[float, float], size: float, class_: str) -> Markup:
    side = f"{max(size - 1, 0.5):.1f}"
    return element("rect", x=f"{at[0]:.1f}", y=f"{at[1]:.1f}", width=side, height=side, class_=class_)


# --- bars in tables -----------------------------------------------------------------------------------------


def bar(share: float, ends: tuple[float, float] | None = None, words: str = "") -> Markup:
    """A bar of that share of its cell (0 … 1), with the ends of an interval; `words` say the same."""
    parts = [element("title", words)] if words else []
    parts.append(element("rect", width=_inside(share), height="100%", class_="bar"))
    if ends is not None and all(map(math.isfinite, ends)):
        low, high = map(_inside, ends)
        parts.append(element("line", x1=low, x2=high, y1="50%", y2="50%", class_="interval"))
        parts += [element("line", x1=e, x2=e, y1="20%", y2="80%", class_="interval") for e in (low, high)]
    return element("svg", *parts, class_="bar", role="img", aria_label=words or f"{share:.1%}")


def _inside(share: float) -> str:
    """A share as a part of a cell; nothing if it is not known."""
    return f"{100 * min(max(share, 0), 1) if math.isfinite(share) else 0:.1f}%"


# --- bench charts -----------------------------------------------------------------------------------------
# Charts of a benchmark: accuracy on each task, gain over source-only, what accuracy costs. They only draw.


_ROW, _BENCH_TOP = 17, 8
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
    bottom = _BENCH_TOP + _ROW * len(rows) + 4
    x = scale((m.value for row in rows for m in row.marks), left, width - 14, *_known(reference))
    parts, spots = [below(x, _BENCH_TOP, bottom, words, grid=True)], []
    if reference is not None:
        parts.append(element("path", d=f"M{x(reference)} {_BENCH_TOP}V{bottom}", class_="zero"))
    for number, row in enumerate(rows):
        y = _BENCH_TOP + _ROW * (number + 0.5) + 2
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
