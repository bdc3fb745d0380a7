"""Charts of a run: curves over the updates, clouds of points, a matrix. They only draw."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from markupsafe import Markup

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
    polyline,
    scale,
    short,
    text,
    width_of,
)

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
class Course:
    """What all curves of a run share: which update was `kept`, the last one, and where each phase begins."""

    kept: float
    end: float
    phases: Sequence[tuple[float, str]] = ()


def curves(
    title: str,
    summary: str,
    drawn: Sequence[Curve],
    course: Course,
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


def _events(x: Scale, course: Course, bottom: float) -> Markup:
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
