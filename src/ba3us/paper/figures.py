"""The paper's figures: drawings of the method (1, 2), and plots of tables of numbers (3, 4, 5).

Every function writes ``out.pdf`` (vector), ``out.png`` and ``out.csv`` (the numbers behind the picture) and
returns their paths. Accuracies are in %.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch

from ba3us.assess.projection import MAX_POINTS, tsne
from ba3us.bench.jobs import Job, Outcome, execute
from ba3us.bench.protocol import superscripted
from ba3us.data import Target
from ba3us.data.domains import Part, evenly_spaced_indices
from ba3us.data.writing import new_file
from ba3us.errors import require
from ba3us.losses import complement_entropy
from ba3us.run.build import Model

COLUMN, TEXT = 3.4, 7.0  # inches: one column, and the whole text
INK, FAINT = "#333333", "#B0B0B0"

# Okabe and Ito's colours, which differ in grey print and to the colour-blind; yellow is too light for lines
BLACK, VERMILLION, BLUE, SKY, PURPLE = "#000000", "#D55E00", "#0072B2", "#56B4E9", "#CC79A7"
YELLOW = "#F0E442"
SOURCE, TARGET = BLUE, VERMILLION


class LineStyle(NamedTuple):
    """How one method is drawn: each of the three alone distinguishes it."""

    color: str
    linestyle: Any
    marker: str


LINE_STYLES = (
    LineStyle(BLACK, (0, (1, 1.4)), "s"),
    LineStyle(SKY, (0, (5, 1.6)), "^"),
    LineStyle(BLUE, (0, (6, 1.5, 1, 1.5)), "D"),
    LineStyle(VERMILLION, "-", "o"),
    LineStyle(PURPLE, (0, (3, 1, 1, 1, 1, 1)), "v"),
)

_RC = {
    "font.family": "sans-serif", "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8,
    "xtick.labelsize": 7, "ytick.labelsize": 7, "legend.fontsize": 7, "legend.frameon": False,
    "axes.edgecolor": FAINT, "axes.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False,
    "xtick.color": FAINT, "ytick.color": FAINT, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "axes.labelcolor": INK, "text.color": INK, "grid.color": "#E6E6E6", "grid.linewidth": 0.5,
    "axes.axisbelow": True, "lines.linewidth": 1.3, "lines.markersize": 3.5, "hatch.linewidth": 0.6,
    "pdf.fonttype": 42, "savefig.dpi": 300, "svg.hashsalt": "ba3us",
}  # fmt: skip


def method_styles(names: Iterable[str]) -> dict[str, LineStyle]:
    """A style for every name: the paper's own methods have the same in every figure, others one of five."""
    unique = list(dict.fromkeys(names))
    family = ["Source only", "E-DANN", "BAA", "BA3US"]
    order = family if {*unique} <= {*family} else unique
    return {name: LINE_STYLES[order.index(name) % len(LINE_STYLES)] for name in unique}


@contextmanager
def canvas(width: float, height: float, layout: str | None = "constrained") -> Iterator[Any]:
    """A figure of that many inches in the common style; nothing global is touched."""
    with import_module("matplotlib").rc_context(_RC):
        yield import_module("matplotlib.figure").Figure(figsize=(width, height), layout=layout)


def save(
    figure: Any, out: Path, numbers: pd.DataFrame | None = None, formats: Sequence[str] = ("pdf", "png")
) -> list[Path]:
    """Write `out`.pdf, `out`.png and the numbers as `out`.csv: all of them, or none."""
    suffixes = (*formats, *(() if numbers is None else ("csv",)))
    paths = [out.with_name(f"{out.name}.{suffix}") for suffix in suffixes]
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with ExitStack() as stack:
        parts = [stack.enter_context(new_file(path)) for path in paths]
        for suffix, part in zip(suffixes, parts):
            if suffix == "csv" and numbers is not None:
                numbers.to_csv(part, index=False)
            else:
                figure.savefig(part, format=suffix, metadata=undated.get(suffix))
    return paths


def legend_above(figure: Any, axes: Any, extra: Sequence[Any] = (), columns: int = 4) -> None:
    """One legend for all panels, above the data."""
    handles = [*axes.get_legend_handles_labels()[0], *extra]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=columns, handlelength=2.6, columnspacing=1.2
    )


def execute_with_points(job: Job) -> Outcome:
    """Carry a job out as a benchmark does, and keep its samples in the plane."""
    return execute(job, in_plane)


def in_plane(model: Model, source: Target, target: Target) -> pd.DataFrame:
    """One t-SNE of both domains in the model's features: columns x, y, domain and row.

    At most :data:`ba3us.assess.projection.MAX_POINTS` in all: up to half of them from each domain, evenly
    spaced over its rows. Only these go through the network.
    """
    features, tables = [], []
    for name, domain in (("source", source), ("target", target)):
        rows = evenly_spaced_indices(len(domain), MAX_POINTS // 2)
        features += [batch.numpy() for batch, _ in model.outputs(Part(domain, rows))]
        tables.append(pd.DataFrame({"domain": name, "row": rows}))
    xy = pd.DataFrame(tsne(np.concatenate(features)), columns=["x", "y"])
    return pd.concat([xy, pd.concat(tables, ignore_index=True)], axis=1)


_CLASSES = ("mug", "bottle", "pen", "phone", "mouse", "stapler")  # the first is the true one
_SAMPLES = {
    "An uncertain source sample": (0.46, 0.36, 0.09, 0.05, 0.03, 0.01),
    "A certain source sample": (0.97, 0.02, 0.005, 0.003, 0.001, 0.001),
}
_STEPS, _RATE = 60, 1.0
_BORROWED = (0, (2, 1.5))  # the line of borrowed samples


def suppressed(steps: int = _STEPS, rate: float = _RATE) -> pd.DataFrame:
    """Probabilities of two source samples before and after gradient steps on L_wce^w (Eq. 6) alone.

    Columns sample, class, true, before, after, and `proportion`, the sample's part of the first loss:
    (1 - p_a) over its sum.
    """
    before = torch.tensor(list(_SAMPLES.values()))
    before = before / before.sum(dim=1, keepdim=True)
    labels, weights = torch.zeros(len(before), dtype=torch.long), torch.ones(len(before))
    logits = before.log().requires_grad_()
    for _ in range(steps):
        (gradient,) = torch.autograd.grad(complement_entropy(logits, labels, weights), logits)
        logits = (logits - rate * gradient).detach().requires_grad_()
    uncertain = 1 - before[:, 0]
    table = pd.DataFrame({"sample": [s for s in _SAMPLES for _ in _CLASSES], "class": _CLASSES * len(before)})
    return table.assign(
        true=table["class"] == _CLASSES[0],
        before=before.flatten().numpy(),
        after=logits.detach().softmax(dim=1).flatten().numpy(),
        proportion=(uncertain / uncertain.sum()).repeat_interleave(len(_CLASSES)).numpy(),
    )


def uncertainty(out: Path, formats: Sequence[str] = ("pdf", "png")) -> list[Path]:
    """Probability bars of an uncertain and a certain source sample before and after uncertainty suppression."""
    table = suppressed()
    with canvas(TEXT, 2.35) as figure:
        panels = figure.subplots(1, len(_SAMPLES), sharey=True)
        for axes, (sample, of) in zip(panels, table.groupby("sample", sort=False)):
            places = range(len(of))
            for shift, moment, color, hatch in ((-0.2, "before", "white", "////"), (0.2, "after", "", "")):
                colours = [color or (BLUE if true else VERMILLION) for true in of["true"]]
                edges = [BLUE if true else VERMILLION for true in of["true"]]
                at = [i + shift for i in places]
                axes.bar(at, of[moment], 0.36, color=colours, edgecolor=edges, hatch=hatch, linewidth=0.7)
                for x, value in zip(at, of[moment]):
                    text = f"{value:.2f}".removeprefix("0") if value >= 0.005 else "<.01"
                    axes.text(x, value + 0.015, text, ha="center", fontsize=5.5)
            proportion = of["proportion"].iloc[0]
            axes.set_title(f"{sample}: {proportion:.0%} of the weight in $L_{{wce}}^w$", loc="left")
            axes.set_xticks(places, of["class"])
            axes.get_xticklabels()[0].set(fontweight="bold", color=BLUE)
            axes.tick_params(axis="x", length=0)
        panels[0].set(ylabel="probability", ylim=(0, 1.08))
        patch = import_module("matplotlib.patches").Patch
        edge = {"edgecolor": INK, "linewidth": 0.7}
        keys = [
            patch(facecolor="white", hatch="////", label="before", **edge),
            patch(facecolor=INK, label=f"after {_STEPS} gradient steps", **edge),
            patch(color=BLUE, label="true class: kept or raised"),
            patch(color=VERMILLION, label="wrong classes: flattened"),
        ]
        legend_above(figure, panels[0], keys)
        return save(figure, out, table, formats)


def framework(out: Path, formats: Sequence[str] = ("pdf", "png")) -> list[Path]:
    """F, G and D, the source, borrowed and target batches, and the losses of Eq. 7."""
    with canvas(TEXT, 3.3, layout=None) as figure:
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, 140), ylim=(0, 66))
        axes.axis("off")
        _batches(axes)
        _modules(axes)
        _losses(axes)
        return save(figure, out, formats=formats)


def _batches(axes: Any) -> None:
    _box(axes, 1.5, 2, 35, 41, "none", TARGET, linestyle=(0, (4, 2)))
    _text(axes, 19, 39.6, "augmented target", 7, color=TARGET)
    rows = (  # shapes are classes
        (46, "source batch", "$B$ labelled samples", SOURCE, "#E3EEF7", "osD^vp"),
        (22, "borrowed", r"$\rho B$ source samples, $\rho \to 0$", SOURCE, "#E3EEF7", "sD^"),
        (4, "target batch", "$B$ samples, no labels", TARGET, "#FBE9DD", "oooss"),
    )
    for y, title, text, color, pale, shapes in rows:
        _box(axes, 4, y, 30, 15.5, pale, color)
        _text(axes, 19, y + 12.7, title, 8, fontweight="bold", color=color)
        for i, shape in enumerate(shapes):
            axes.plot(19 + 4 * (i - (len(shapes) - 1) / 2), y + 7.7, shape, color=color, markersize=4.5)
        _text(axes, 19, y + 2.8, text)
    _path(axes, [(7, 46), (7, 37.5)], SOURCE, _BORROWED)


def _modules(axes: Any) -> None:
    polygon, pale = import_module("matplotlib.patches").Polygon, "#F5F5F5"
    corners = [(47, 10), (47, 56), (61, 47), (61, 19)]
    axes.add_patch(polygon(corners, facecolor=pale, edgecolor=INK, linewidth=0.9, joinstyle="round"))
    for x, y, width, height in ((78, 43, 17, 16), (78, 8, 17, 16), (64.5, 12, 8.5, 8)):
        _box(axes, x, y, width, height, pale, INK)
    _box(axes, 74.5, 28.5, 28, 9, "white", FAINT)
    named = (54, 35, "F", "features"), (86.5, 53, "G", "classifier"), (86.5, 18, "D", "discriminator")
    for x, y, letter, name in named:
        _text(axes, x, y, f"${letter}$", 15)
        _text(axes, x, y - 7, name)
    _text(axes, 68.8, 16, "GRL", 7)
    _text(axes, 68.8, 6.6, "gradient\nreversal", 6)
    _text(axes, 88.5, 34.9, r"$m \propto \Sigma_j\,G(F(x_j^t))$", 7.5)
    _text(axes, 88.5, 31, r"$w(x) = 1 + e^{-H(x)}$", 7.5)
    paths: tuple[tuple[Any, str, Any], ...] = (
        ([(34, 53), (47, 53)], SOURCE, "-"),
        ([(34, 29.7), (47, 29.7)], SOURCE, _BORROWED),
        ([(34, 12.5), (47, 12.5)], TARGET, "-"),
        ([(61, 43.5), (67, 43.5), (67, 54), (78, 54)], SOURCE, "-"),
        ([(61, 39), (71, 39), (71, 48), (78, 48)], TARGET, "-"),
        ([(61, 25.5), (67, 25.5), (67, 20)], SOURCE, _BORROWED),
        ([(61, 28), (68.8, 28), (68.8, 20)], SOURCE, "-"),
        ([(61, 30.5), (70.6, 30.5), (70.6, 20)], TARGET, "-"),
        ([(73, 16), (78, 16)], INK, "-"),
        ([(86.5, 43), (86.5, 37.5)], TARGET, "-"),
    )
    for points, color, line in paths:
        _path(axes, points, color, line)


def _losses(axes: Any) -> None:
    rows = (
        (57, r"$L_{cls}^{w}$", "cross-entropy, Eq. 4", SOURCE, "$m$", False),
        (46.5, r"$\beta\,L_{wce}^{w}$", "AUS, Eq. 6", SOURCE, "$m$", True),
        (36, r"$\alpha\,L_{ent}$", "entropy, Eq. 3", TARGET, "", False),
        (11.5, r"$\lambda\,L_{adv}^{ba}$", "BAA, Eq. 5", INK, r"$w\,m$", True),
    )
    for y, formula, text, color, weights, new in rows:  # new: of the paper
        _box(axes, 107, y, 32, 8.5, "#FFFBD6" if new else "white", INK, linewidth=1.5 if new else 0.8)
        _text(axes, 114, y + 4.2, formula, 9.5, color=color)
        text += f"\nweighted by {weights}" if weights else ""
        _text(axes, 121, y + 4.2, text, 6, ha="left", linespacing=1.4)
    _path(axes, [(95, 55), (100, 55), (100, 61.2), (107, 61.2)], SOURCE)
    _path(axes, [(95, 53), (102, 53), (102, 50.7), (107, 50.7)], SOURCE)
    _path(axes, [(95, 46), (102, 46), (102, 40.2), (107, 40.2)], TARGET)
    _path(axes, [(95, 15.7), (107, 15.7)], INK)
    _text(axes, 101, 17.8, "source: 1", 6)
    _text(axes, 101, 12.5, "target and\nborrowed: 0", 6)
    _text(axes, 123, 4, r"$\min_{F,G}\,\max_{D}$ of the sum (Eq. 7)", 7)


def _text(axes: Any, x: float, y: float, text: str, size: float = 6.5, **other: Any) -> None:
    axes.text(x, y, text, fontsize=size, **{"ha": "center", "va": "center", "linespacing": 1.1, **other})


def _box(
    axes: Any, x: float, y: float, width: float, height: float, face: str, edge: str, **other: Any
) -> None:
    fancy = import_module("matplotlib.patches").FancyBboxPatch
    corners = f"round,pad=0,rounding_size={min(width, height) / 8}"
    style = {"facecolor": face, "edgecolor": edge, "linewidth": 0.9, **other}
    axes.add_patch(fancy((x, y), width, height, corners, **style))


def _path(axes: Any, points: list[tuple[float, float]], color: str, linestyle: Any = "-") -> None:
    """A line through the points with a head at its end."""
    axes.plot(*zip(*points), color=color, linestyle=linestyle, linewidth=1.1, zorder=1)
    (x0, y0), (x1, y1) = points[-2:]
    length = max(abs(x1 - x0), abs(y1 - y0))
    start = (x1 - 2 * (x1 - x0) / length, y1 - 2 * (y1 - y0) / length)
    head = {"arrowstyle": "-|>", "color": color, "linewidth": 0, "mutation_scale": 8}
    axes.annotate("", (x1, y1), start, arrowprops={**head, "shrinkA": 0, "shrinkB": 0})


def accuracy_by_classes(table: pd.DataFrame, out: Path) -> list[Path]:
    """Accuracy against the number of target classes (figure 3a): mean over seeds, bars of one deviation.

    `table` has the columns classes, method, seed and accuracy; methods are drawn in their order.
    """
    _columns(table, "classes", "method", "seed", "accuracy")
    with canvas(COLUMN, 2.5) as figure:
        axes, styles = figure.add_subplot(), method_styles(table["method"])
        numbers = sorted(set(table["classes"]))
        offset = 0.07 * np.diff(numbers).min(initial=numbers[-1])  # so that no bar hides another
        marks = {"capsize": 1.8, "elinewidth": 0.7, "markeredgecolor": "white", "markeredgewidth": 0.4}
        for i, (method, style) in enumerate(styles.items()):
            by_count = table[table["method"] == method].groupby("classes")["accuracy"]
            mean, spread = by_count.mean(), by_count.std(ddof=0)
            x, errors = (
                mean.index + offset * (i - (len(styles) - 1) / 2),
                [spread, np.minimum(spread, 100 - mean)],
            )
            axes.errorbar(x, mean, yerr=errors, label=_title(method), **marks, **style._asdict())
        axes.set(xlabel="target classes", ylabel="accuracy (%)", xticks=numbers)
        axes.grid(axis="y")
        legend_above(figure, axes)
        return save(figure, out, table)


def class_weights(weights: Mapping[str, Any], true_mask: Any, names: Sequence[str], out: Path) -> list[Path]:
    """Estimated class weights m (figure 3b–c), a panel per method; classes the target holds are marked.

    Of more than 65 classes, only the target's and the heaviest others have bars; the rest are summed in one.

    Parameters
    ----------
    weights : mapping
        By method: one weight per class.
    true_mask : array of bool
        Whether the target holds the class.
    names : sequence of str
        The classes.
    out : Path
        Without a suffix.
    """
    for title, m in {"true_mask": true_mask, **weights}.items():
        require(len(m) == len(names), f"{title} has {len(m)} values for {len(names)} classes: give one each.")
    table = pd.DataFrame({"class": list(names), "true": np.asarray(true_mask, dtype=bool), **weights})
    bars = _summed(table, list(weights))
    marks = (True, YELLOW, "////", "in the target"), (False, "#5A5A5A", "", "not in the target")
    edge = {"edgecolor": INK, "linewidth": 0.4}
    width = COLUMN if len(bars) <= 12 else TEXT
    with canvas(width, 0.9 + 1.0 * len(weights)) as figure:
        panels = figure.subplots(len(weights), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, title in zip(panels, weights):
            for mark, color, hatch, label in marks:
                drawn = bars[bars["true"] == mark]
                axes.bar(drawn.index, drawn[title], 0.82, color=color, hatch=hatch, label=label, **edge)
            for place in bars.index[bars["true"]]:  # shows a present class without weight, too
                axes.axvspan(place - 0.5, place + 0.5, color="#FDFBE6", zorder=0, linewidth=0)
            axes.axhline(1 / len(names), color=INK, linewidth=0.6, linestyle=(0, (4, 2)))
            beside = axes.get_yaxis_transform()
            axes.text(1.005, 1 / len(names), "1/C", transform=beside, va="center", fontsize=6)
            axes.set_title(_title(title), loc="left")
            axes.set_ylabel("weight $m$")
            axes.tick_params(axis="x", length=0)
            axes.margins(x=0.01)
        size = min(7.0, 60 * width / len(bars))  # points: as high as a bar is wide
        axes.set_xticks(bars.index, bars["class"], rotation=90 if len(bars) > 5 else 0, fontsize=size)
        for tick, true in zip(axes.get_xticklabels(), bars["true"]):
            tick.set_fontweight("bold" if true else "normal")
        legend_above(figure, axes)
        return save(figure, out, table)


def convergence(curves: pd.DataFrame, out: Path) -> list[Path]:
    """Accuracy against steps (figure 4), a panel per task: mean over seeds and a band of one deviation.

    `curves` has the columns task, method, seed, updates, accuracy and selected; open marks show the
    checkpoints that each seed chose without labels.
    """
    _columns(curves, "task", "method", "seed", "updates", "accuracy", "selected")
    lines = import_module("matplotlib.lines")
    tasks, styles = list(dict.fromkeys(curves["task"])), method_styles(curves["method"])
    width = COLUMN if len(tasks) == 1 else TEXT
    open_mark = {"markerfacecolor": "white", "markersize": 4.2, "markeredgewidth": 1.0}
    with canvas(width, 2.6) as figure:
        panels = figure.subplots(1, len(tasks), squeeze=False)[0]
        for axes, task in zip(panels, tasks):
            for method, (color, linestyle, marker) in styles.items():
                runs = curves[(curves["task"] == task) & (curves["method"] == method)]
                by_step, selected = runs.groupby("updates")["accuracy"], runs[runs["selected"].astype(bool)]
                mean, spread = by_step.mean(), by_step.std(ddof=0)
                band = {"color": color, "alpha": 0.12, "linewidth": 0}
                axes.fill_between(mean.index, mean - spread, mean + spread, **band)
                axes.plot(mean.index, mean, color=color, linestyle=linestyle)
                axes.plot(selected["updates"], selected["accuracy"], marker, color=color, **open_mark)
            axes.set_title(_title(task), loc="left")
            axes.set_xlabel("steps (marks: chosen without labels)")
            axes.grid(axis="y")
        panels[0].set_ylabel("accuracy (%)")
        keys = [
            lines.Line2D([], [], label=_title(name), **style._asdict(), **open_mark)
            for name, style in styles.items()
        ]
        legend_above(figure, panels[0], keys)
        return save(figure, out, curves)


def embedding(points: pd.DataFrame, out: Path, by: Literal["domain", "class"] = "domain") -> list[Path]:
    """A grid of t-SNE panels (figure 5): rows are tasks, columns are methods.

    `points` has the columns task, method, x, y, domain ("source" or "target") and label (x and y by
    :func:`ba3us.paper.figures.in_plane`). Colours tell the domains apart or, ``by="class"``, the target's first
    20 classes, with all others in grey; markers tell the domains apart in both.
    """
    _columns(points, "task", "method", "x", "y", "domain", "label")
    lines = import_module("matplotlib.lines")
    points = points.reset_index(drop=True)
    tasks, methods = (points[column].unique().tolist() for column in ("task", "method"))
    dots = {"source": ("o", 2.5, 0), "target": ("x", 4.5, 0.5)}
    side = TEXT / max(4, len(methods))
    with canvas(side * len(methods), side * len(tasks) + 0.35) as figure:
        panels = figure.subplots(len(tasks), len(methods), squeeze=False)
        for (row, column), axes in np.ndenumerate(panels):
            panel_points = points[(points["task"] == tasks[row]) & (points["method"] == methods[column])]
            colours = _point_colours(panel_points, by)
            for domain, (marker, size, width) in dots.items():
                part = panel_points[panel_points["domain"] == domain]
                style = {"s": size, "c": colours[part.index], "marker": marker, "linewidths": width}
                axes.scatter(part["x"], part["y"], **style)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(True)
            if row == 0:
                axes.set_title(_title(methods[column]))
            if column == 0:
                axes.set_ylabel(_title(tasks[row]))
        colour = {"source": SOURCE, "target": TARGET} if by == "domain" else {}
        marks = [
            lines.Line2D([], [], linestyle="", marker=m, color=colour.get(d, INK), label=d)
            for d, (m, *_) in dots.items()
        ]
        legend_above(figure, panels[0, 0], marks)
        return save(figure, out, points)


def _summed(table: pd.DataFrame, methods: list[str]) -> pd.DataFrame:
    """The table itself or, of a long one, the true and the heaviest classes and a row for the rest."""
    if len(table) <= 65:
        return table
    heavy = table[~table["true"]][methods].max(axis=1).nlargest(max(0, 40 - int(table["true"].sum()))).index
    with_bar = table["true"] | table.index.isin(heavy)
    others = table[~with_bar]
    rest = pd.DataFrame([{"class": f"{len(others)} others, sum", "true": False, **others[methods].sum()}])
    return pd.concat([table[with_bar], rest], ignore_index=True)


def _point_colours(points: pd.DataFrame, by: str) -> pd.Series:
    """A colour per point: that of its domain, or of its class if the target holds it."""
    if by == "domain":
        return points["domain"].map({"source": SOURCE, "target": TARGET})
    turbo = import_module("matplotlib").colormaps["turbo"]
    to_hex = import_module("matplotlib.colors").to_hex
    present = sorted(points.loc[points["domain"] == "target", "label"].unique())[:20]
    palette = [to_hex(turbo(level)) for level in np.linspace(0.05, 0.95, len(present))]
    return points["label"].map(dict(zip(present, palette))).fillna("#D8D8D8")


def _title(name: str) -> str:
    """A task or method with arrows and superscripts."""
    return superscripted(name.replace("->", " → "))


def _columns(table: pd.DataFrame, *wanted: str) -> None:
    require(
        {*wanted} <= {*table.columns} and len(table) > 0,
        f"The table has the columns {', '.join(map(str, table.columns))} and {len(table)} rows: it must have "
        f"{', '.join(wanted)}, and at least one row.",
    )
