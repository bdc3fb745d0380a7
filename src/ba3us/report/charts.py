"""Charts of the pages. matplotlib draws them; the result is SVG that fits into the page.

The page forbids inline styles, so every style becomes an attribute or a class of ``page.css``. Classes follow
the light and the dark theme. The buttons of a legend switch the elements of their ``data-group``. Every point
has its tooltip as a ``<title>``. Text of users is never parsed: neither as mathematics nor as markup.
"""

from __future__ import annotations

import io
import itertools
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from markupsafe import Markup

from ba3us.progress import visible
from ba3us.report.page import Chart, Key

WIDTH, SMALL = 440, 320  # of charts, in points
N_COLOURS = 8  # classes k0 … k7 of page.css, each with a dash of its own
REST = "kx"  # the class of all other series
_LETTER = 6.6  # points, about the width of one
_MAX_DOTS = 60  # evaluations that are marked on their curve
_MAX_WRITTEN = 12  # classes up to which the cells of a confusion matrix have their counts written in
_MAX_LETTERS = 18  # of the name of a method
_ROW = 17  # height of a method's row
_MARKERS = ("o", "s", "^", "D", "v", "P", "h", "X")  # one per task, distinct without colour

_THEME = {"#000001": "var(--ink)", "#000002": "var(--faint)", "#000003": "var(--grid)"}
_INK, _FAINT, _GRID = _THEME
_STYLE: dict[Any, Any] = {
    "font.size": 10, "text.parse_math": False, "text.color": _INK, "axes.edgecolor": _GRID, "axes.linewidth": 1,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "axes.labelcolor": _FAINT,
    "axes.labelsize": 10, "axes.labelpad": 3, "grid.color": _GRID, "grid.linewidth": 1,
    "xtick.color": _GRID, "ytick.color": _GRID, "xtick.labelcolor": _INK, "ytick.labelcolor": _INK,
    "xtick.major.size": 3, "ytick.major.size": 0, "svg.fonttype": "none", "axes.unicode_minus": False,
}  # fmt: skip
_NUMBER = "{x:,.10g}"
_ON_PAGE: dict[str, Any] = {"transform": None, "va": "center"}  # for words at a place of the page
_ATTRIBUTES = ("fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "text-anchor")


def colour_class(number: int) -> str:
    """The class of the series at that place."""
    return f"k{number % N_COLOURS}"


def _outline(marker: str) -> str:
    """The path of a marker in the legend, inside 22 by 12."""
    from matplotlib.markers import MarkerStyle

    style = MarkerStyle(marker)
    (points,) = style.get_path().transformed(style.get_transform()).to_polygons()
    places = np.asarray(points) * [8, -8] + [11, 6]
    return f"M{'L'.join(f'{x:.1f} {y:.1f}' for x, y in places)}Z"


def shorten(name: str, length: int = 16) -> str:
    """A name on one line, cut to `length` letters."""
    name = visible(name)
    return name if len(name) <= length else f"{name[: length - 1]}…"


class _Plot:
    """Axes inside fixed margins (in points), and the artists that get a class, a group and tooltips."""

    def __init__(
        self,
        width: float,
        height: float,
        left: float = 46,
        top: float = 20,
        right: float = 12,
        bottom: float = 36,
    ) -> None:
        from matplotlib.figure import Figure

        self.figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        self.axes = self.figure.add_axes(
            (left / width, bottom / height, 1 - (left + right) / width, 1 - (top + bottom) / height)
        )
        self._series: dict[str, tuple[dict[str, str], list[str]]] = {}  # by id: attributes, tooltips

    def add(self, artist: Any, class_: str, groups: str = "", tips: Iterable[str] = ()) -> None:
        """Give an artist a class of page.css. Names of users are no part of its id."""
        name = f"series-{len(self._series)}"
        artist.set_gid(name)
        self._series[name] = {"class": class_, "data-group": groups}, list(tips)

    def line(self, x: Any, y: Any, class_: str, groups: str = "") -> None:
        """A line through points."""
        self.add(self.axes.plot(x, y, clip_on=False)[0], class_, groups)

    def dots(
        self, x: Any, y: Any, class_: str, groups: str = "", tips: Iterable[str] = (), marker: str = "o",
        size: float = 4, colours: Any = None,
    ) -> None:  # fmt: skip
        """Marks `size` points wide, a tooltip for each."""
        drawn = self.axes.scatter(
            x, y, s=size**2, marker=marker, c=colours, linewidths=0, clip_on=False, zorder=3
        )
        self.add(drawn, class_, groups, tips)

    def text(self, x: float, y: float, words: str, class_: str = "", groups: str = "", **options: Any) -> None:
        """Words at a place; `options` are matplotlib's."""
        self.add(self.axes.text(x, y, words, **options), class_, groups)

    def places(self, x: Any, y: Any) -> np.ndarray:
        """Where points of the axes are on the page, [n, 2] points from the lower left; text takes them, too."""
        return self.axes.transData.transform(np.column_stack([x, y]).astype(float))

    def svg(self, salt: str) -> Markup:
        """The drawing; `salt` tells its ids from those of the page's other charts."""
        import matplotlib

        matplotlib.rcParams["svg.hashsalt"] = salt
        file = io.StringIO()
        undated = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        self.figure.savefig(file, format="svg", transparent=True, metadata=undated)
        root = ElementTree.fromstring(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", file.getvalue()))
        references = {each.get(_LINK, "")[1:] for each in root.iter("{http://www.w3.org/2000/svg}use")}
        self._restyle(root, references, _ATTRIBUTES)
        for name in ("width", "height", "version"):
            del root.attrib[name]
        root.attrib |= {"aria-hidden": "true", "focusable": "false"}
        text = ElementTree.tostring(root, encoding="unicode")
        return Markup(re.sub("|".join(_THEME), lambda found: _THEME[found[0]], text))

    def _restyle(self, element: ElementTree.Element, references: set[str], styles: Sequence[str]) -> None:
        """Turn `styles` into attributes and drop what the page does not need, here and below.

        A series gets its class and groups, which have the colours, and a tooltip for each of its points.
        """
        attributes, tips = self._series.get(element.attrib.get("id", ""), ({}, []))
        if attributes:
            styles = ("text-anchor", "fill-opacity")
        old = dict(element.attrib)
        element.attrib.clear()
        element.tag = element.tag.rpartition("}")[2]
        element.tail = None
        element.text = element.text if (element.text or "").strip() else None
        for name, value in old.items():
            if name == "style":
                pairs = (part.split(":", 1) for part in value.split(";") if ":" in part)
                element.attrib.update({k.strip(): v.strip() for k, v in pairs if k.strip() in styles})
            elif name in ("d", "x", "y", "transform", "viewBox"):  # short fractions: half the size
                shorter = re.sub(r"-?\d+\.\d+", lambda number: f"{round(float(number[0]), 1):g}", value)
                element.set(name, " ".join(shorter.split()))
            elif name == _LINK:
                element.set("href", value)
            elif name != "clip-path" and (name != "id" or value in references):
                element.set(name, value)
        for child in list(element):
            if child.tag.rpartition("}")[2] in ("metadata", "style", "clipPath"):
                element.remove(child)
            else:
                self._restyle(child, references, styles)
        element.attrib.update({name: value for name, value in attributes.items() if value})
        definitions = {id(each) for group in element.iter("defs") for each in group.iter()}
        points = [e for e in element.iter() if e.tag in ("path", "use", "text") and id(e) not in definitions]
        for point, tip in zip(points, tips):
            if tip:
                ElementTree.SubElement(point, "title").text = tip


_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_LINK = "{http://www.w3.org/1999/xlink}href"


@contextmanager
def _plot(*size: float, **margins: float) -> Iterator[_Plot]:
    """A plot in the style of the pages, whatever the user's matplotlibrc says; nothing global is changed."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that matplotlib's font lacks: the browser has them
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield _Plot(*size, **margins)


def _fit(axis: Any, values: Iterable[float], *bounds: float, percent: bool = False) -> None:
    """Limits over all finite `values` with a little air, up to `bounds` without; a few round ticks."""
    from matplotlib.ticker import MaxNLocator

    finite = [v for v in (*values, *bounds) if math.isfinite(v)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    air = 0.04 * (high - low) or max(abs(high), 1.0) * 0.1
    limits = low if low in bounds else low - air, high if high in bounds and high > low else high + air
    getattr(axis.axes, f"set_{axis.axis_name}lim")(*limits)
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter((lambda v, _: f"{100 * v:.10g} %") if percent else _NUMBER)


def _free_place(
    starts: Sequence[float], y: float, width: float, taken: list[tuple[float, float, float]]
) -> tuple[float, float]:
    """Where a name fits: at one of the `starts`, as near to `y` as can be, on no other name."""
    for distance in itertools.count(0, 3):
        for start, place in itertools.product(starts, (y - distance, y + distance)):
            hits = any(start < x + w and x < start + width and abs(place - at) < 12 for x, at, w in taken)
            if not hits and 0 < start < WIDTH - width:
                taken.append((start, place, width))
                return start, place
    raise AssertionError("a page has no end")


class Curve(NamedTuple):
    """Values over the training steps."""

    name: str
    steps: Iterable[float]
    values: Iterable[float]
    class_: str = "k0"


class CurveAxes(NamedTuple):
    """What all curves of a run share: the `selected` step, the last one, and where each phase begins."""

    selected: float
    end: float
    phases: Sequence[tuple[float, str]] = ()


def curves(
    title: str, summary: str, drawn: Sequence[Curve], steps_axis: CurveAxes, *, bounds: Sequence[float] = (),
    percent: bool = False, small: bool = False,
) -> Chart:  # fmt: skip
    """Curves over the training steps. The selected evaluation is marked; the axis reaches to the `bounds`."""
    width, height = (SMALL, 200) if small else (WIDTH, 270)
    form, legend = ".1%" if percent else ".4g", []
    with _plot(width, height) as plot:
        axes = plot.axes
        _fit(axes.yaxis, [v for curve in drawn for v in curve.values], *bounds, percent=percent)
        _fit(axes.xaxis, [], 0, steps_axis.end)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="y")
        axes.set_xlabel("training steps")
        top: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "va": "bottom"}
        for start, name in steps_axis.phases if len(steps_axis.phases) > 1 else ():
            axes.axvline(start, color=_GRID, linewidth=1)
            if not small:
                plot.text(start, 1.02, name, "faint", **top)
        plot.add(axes.axvline(steps_axis.selected), "selected")
        late = steps_axis.selected > 0.9 * steps_axis.end
        plot.text(steps_axis.selected, 1.02, "selected", ha="right" if late else "center", **top)
        for number, curve in enumerate(drawn):
            points = [(step, v) for step, v in zip(curve.steps, curve.values) if math.isfinite(v)]
            if not points:
                continue
            group = f"s{number}"
            if len(drawn) > 1:
                legend.append(Key(group, curve.name, f"line {curve.class_}"))
            tips = [f"{curve.name}\n{v:{form}} after {step:,.0f} steps" for step, v in points]
            x, y = zip(*points)
            plot.line(x, y, f"line {curve.class_}", group)
            size = 4 if len(points) <= _MAX_DOTS else 1
            plot.dots(x, y, f"dot {curve.class_}", group, tips, size=size)
        return Chart(title, summary, plot.svg(title), legend)


def scatter(
    title: str, summary: str, points: pd.DataFrame, names: Sequence[str], axes: tuple[str, str] = ("", "")
) -> Chart:
    """Samples of both domains. Shapes tell the domains apart, colours the domains or the classes.

    `points` has the columns x, y, domain ("source" or "target"), colour (a place in `names`, or -1 for all
    others) and text.
    """
    with _plot(WIDTH, 380, left=20, top=8, bottom=22) as plot:
        plot.axes.set(xticks=[], yticks=[], xlabel=axes[0], ylabel=axes[1])
        for axis, column in ((plot.axes.xaxis, "x"), (plot.axes.yaxis, "y")):
            _fit(axis, points[column])
            axis.set_ticks([])
        plot.axes.spines[:].set_visible(False)
        for (domain, number), part in points.groupby(["domain", "colour"], sort=True):
            colour = REST if number == -1 else colour_class(int(str(number)))
            shape = {"marker": "s", "size": 3.6} if domain == "source" else {"size": 5.6}
            plot.dots(
                part["x"], part["y"], f"dot {domain} {colour}", f"{domain} c{number}", part["text"], **shape
            )
        # each class's name amid its points, so that no colour is needed to find it; none upon another
        taken: list[tuple[float, float, float]] = []
        medians = points[points["colour"] >= 0].groupby("colour")[["x", "y"]].median()
        places = plot.places(medians["x"], medians["y"])
        for at in np.argsort(-places[:, 1], kind="stable"):
            number, (x, y) = int(medians.index[at]), places[at]
            name = shorten(names[number])
            width = _LETTER * len(name)
            start, y = _free_place([min(max(x - width / 2, 4), WIDTH - width - 4)], y, width, taken)
            plot.text(start + width / 2, y, name, "name", f"c{number}", ha="center", **_ON_PAGE)
        drawing = plot.svg(title)
    shapes = {"source": _outline("s"), "target": _outline("o")}
    domains = [Key(d, d, f"dot {d}", shapes[d]) for d in shapes if (points["domain"] == d).any()]
    classes = [Key(f"c{n}", name, f"dot {colour_class(n)}", _outline("o")) for n, name in enumerate(names)]
    others = [Key("c-1", "other classes", f"dot {REST}", _outline("o"))] if (points["colour"] < 0).any() else []
    return Chart(title, summary, drawing, [*domains, *classes, *others])


def confusion_matrix(
    title: str, summary: str, counts: np.ndarray, rows: Sequence[str], columns: Sequence[str]
) -> Chart:
    """Counts by true class (rows) and predicted class (columns); the darker, the larger its part of the row."""
    left, top = (
        min(_LETTER * max(len(shorten(name, 14)) for name in names), 100) + 24 for names in (rows, columns)
    )
    cell = min(44.0, (WIDTH - 8 - left) / len(columns))
    right = WIDTH - left - cell * len(columns)
    totals = counts.sum(axis=1, keepdims=True)
    proportions = counts / np.maximum(1, totals)
    tips = [
        f"{rows[a]}\npredicted as {columns[b]}: {n} of {totals[a, 0]} samples ({100 * proportions[a, b]:.1f} %)"
        if n
        else ""
        for (a, b), n in np.ndenumerate(counts)
    ]
    with _plot(WIDTH, top + cell * len(rows) + 4, left=left, top=top, right=right, bottom=4) as plot:
        axes = plot.axes
        axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5), ylabel="true class")
        shades = [(0, 0, 0, round(0.03 + 0.97 * p, 2)) for p in proportions.ravel()]
        i, j = np.indices(counts.shape)
        plot.dots(j.ravel(), i.ravel(), "heat", tips=tips, marker="s", size=max(cell - 1, 0.5), colours=shades)
        if len(columns) <= _MAX_WRITTEN:
            for a, b in zip(*counts.nonzero()):
                dark = "onheat" if proportions[a, b] > 0.55 else ""
                plot.text(b, a, str(counts[a, b]), dark, ha="center", va="center_baseline", zorder=4)
        every = max(1, math.ceil(11 / cell))  # labels that would touch are left out
        axes.set_yticks(range(0, len(rows), every), [shorten(name, 14) for name in rows[::every]])
        axes.set_xticks(range(0, len(columns), every), [shorten(name, 14) for name in columns[::every]])
        axes.tick_params(axis="x", rotation=90, length=0, labeltop=True, labelbottom=False)
        axes.xaxis.set_label_position("top")
        axes.set_xlabel("predicted class")
        axes.xaxis.set_label_coords(0.5, 1 + (top - 14) / (cell * len(rows)))
        axes.yaxis.set_label_coords((12 - left) / (cell * len(columns)), 0.5)
        axes.spines[:].set_visible(False)
        return Chart(title, summary, plot.svg(title))


def bar(proportion: float, interval: tuple[float, float] | None = None, words: str = "") -> Markup:
    """A bar over that part of its cell (0 … 1), with the ends of an interval; `words` say the same."""

    def within(part: float) -> str:
        return f"{100 * min(max(part, 0), 1) if math.isfinite(part) else 0:.1f}%"

    drawn = Markup('<rect width="{}" height="100%" class="bar"/>').format(within(proportion))
    if interval is not None and all(map(math.isfinite, interval)):
        low, high = map(within, interval)
        for x1, x2, y1, y2 in ((low, high, 50, 50), (low, low, 20, 80), (high, high, 20, 80)):
            line = Markup('<line x1="{}" x2="{}" y1="{}%" y2="{}%" class="interval"/>')
            drawn += line.format(x1, x2, y1, y2)
    whole = Markup('<svg class="bar" role="img" aria-label="{0}"><title>{0}</title>{1}</svg>')
    return whole.format(words, drawn)


class Mark(NamedTuple):
    """A value, its tooltip, and the place in the legend that it belongs to."""

    value: float
    tip: str
    key: int = 0


class MethodRow(NamedTuple):
    """A method: its values and, if it is drawn, their mean."""

    name: str
    marks: Sequence[Mark]
    mean: float | None = None


def strips(
    title: str, summary: str, rows: Sequence[MethodRow], label: str, *, reference: float | None = None,
    legend: Sequence[str] = (), small: bool = False,
) -> Chart:  # fmt: skip
    """A row per method with its values along one axis; `reference` is a line through all of them.

    With a mean: its values are small, a line joins the least and the largest of them, and the mean is a square.
    """
    left = _LETTER * max((len(shorten(row.name, _MAX_LETTERS)) for row in rows), default=0) + 10
    with _plot(SMALL if small else WIDTH, _ROW * len(rows) + 48, left=left, top=8) as plot:
        axes = plot.axes
        known = [(m, y) for y, row in enumerate(rows) for m in row.marks if math.isfinite(m.value)]
        _fit(axes.xaxis, [m.value for m, _ in known] + ([] if reference is None else [reference]))
        axes.set(ylim=(len(rows) - 0.5, -0.5), xlabel=label)
        axes.set_yticks(range(len(rows)), [shorten(row.name, _MAX_LETTERS) for row in rows])
        axes.grid(axis="x")
        axes.spines["left"].set_visible(False)
        if reference is not None:
            plot.add(axes.axvline(reference), "reference")
        for y, row in enumerate(rows):
            values = [m.value for m, row_of in known if row_of == y]
            if not values:
                plot.text(
                    0.01, y, "no finished run", "faint", transform=axes.get_yaxis_transform(), va="center"
                )
            elif row.mean is not None:
                plot.line([min(values), max(values)], [y, y], "line k0")
                plot.dots([row.mean], [y], "dot k0", marker="s", size=6.5)
        for key in sorted({m.key for m, _ in known}):
            x, y_, tips = zip(*((m.value, y, f"{rows[y].name}\n{m.tip}") for m, y in known if m.key == key))
            shape = {"marker": _MARKERS[key % len(_MARKERS)], "size": 8.0} if legend else {"size": 4.2}
            plot.dots(x, y_, f"dot {colour_class(key)}", f"s{key}" if legend else "", tips, **shape)
        keys = [
            Key(f"s{n}", name, f"dot {colour_class(n)}", _outline(_MARKERS[n % len(_MARKERS)]))
            for n, name in enumerate(legend)
        ]
        return Chart(title, summary, plot.svg(title), keys)


class CostPoint(NamedTuple):
    """A method by its cost and its accuracy."""

    name: str
    cost: float
    value: float
    tip: str


def costs(title: str, summary: str, points: Sequence[CostPoint], labels: tuple[str, str]) -> Chart:
    """Accuracy against cost, on a logarithmic axis; each method is named."""
    from matplotlib.ticker import LogLocator, NullLocator

    points = sorted((p for p in points if math.isfinite(p.value) and p.cost > 0), key=lambda p: -p.value)
    x, y = [p.cost for p in points], [p.value for p in points]
    with _plot(WIDTH, 320) as plot:
        axes = plot.axes
        _fit(axes.yaxis, y)
        axes.set(xscale="log", xlabel=labels[0], ylabel=labels[1])
        axes.set_xlim(min(x, default=1) / 1.4, max(x, default=1) * 1.4)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(_NUMBER)
        axes.grid(axis="y")
        plot.dots(x, y, "dot k0", tips=[f"{p.name}\n{p.tip}" for p in points], size=8)
        places = plot.places(x, y)
        taken = [(a - 5, b, 10.0) for a, b in places]
        for point, (a, b) in zip(points, places):
            name = shorten(point.name, _MAX_LETTERS)
            width = _LETTER * len(name)
            plot.text(*_free_place([a + 8, a - 8 - width], b, width, taken), name, **_ON_PAGE)
        return Chart(title, summary, plot.svg(title))
