"""Drawings as SVG text: elements, scales and axes. Colours and sizes of letters are the page's, by class."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

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
