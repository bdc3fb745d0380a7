"""Figures 3, 4 and 5 of the paper from tables of numbers: drawing only, nothing is trained here.

Every function writes ``out.pdf`` (vector), ``out.png`` and ``out.csv`` (the numbers behind the picture) and
returns their paths. Accuracies are in %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from ba3us.bench.paper import superscripted
from ba3us.errors import optional_import, require
from ba3us.paper import style

_MOST_BARS = 65  # classes; of more, the lightest absent ones share one bar
_MOST_COLOURS = 20  # classes with a colour of their own in a t-SNE panel
_EDGE = {"edgecolor": style.INK, "linewidth": 0.4}


def accuracy_by_classes(table: pd.DataFrame, out: Path) -> list[Path]:
    """Accuracy against the number of target classes (figure 3a): mean over seeds, bars of one deviation.

    `table` has the columns classes, method, seed and accuracy; systems are drawn in their order.
    """
    _columns(table, "classes", "method", "seed", "accuracy")
    with style.canvas(style.COLUMN, 2.5) as figure:
        axes, looks, numbers = figure.add_subplot(), style.looks(table["method"]), sorted(set(table["classes"]))
        apart = 0.07 * np.diff(numbers).min(initial=numbers[-1])  # so that no bar hides another
        for i, (method, look) in enumerate(looks.items()):
            by_count = table[table["method"] == method].groupby("classes")["accuracy"]
            axes.errorbar(
                by_count.mean().index + apart * (i - (len(looks) - 1) / 2),
                by_count.mean(),
                yerr=[by_count.std(ddof=0), np.minimum(by_count.std(ddof=0), 100 - by_count.mean())],
                label=_shown(method),
                capsize=1.8,
                elinewidth=0.7,
                markeredgecolor="white",
                markeredgewidth=0.4,
                **look._asdict(),
            )
        axes.set(xlabel="target classes", ylabel="accuracy (%)", xticks=numbers)
        axes.grid(axis="y")
        style.legend_above(figure, axes)
        return style.save(figure, out, table)


def class_weights(weights: Mapping[str, Any], true_mask: Any, names: Sequence[str], out: Path) -> list[Path]:
    """Estimated class weights m (figure 3b–c), a panel per system; classes the target holds are marked.

    Of more than 65 classes, only the target's and the heaviest others have bars; the rest are summed in one.

    Parameters
    ----------
    weights : mapping
        By system: one weight per class.
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
    marks = (True, style.YELLOW, "////", "in the target"), (False, "#5A5A5A", "", "not in the target")
    width = style.COLUMN if len(bars) <= 12 else style.TEXT
    with style.canvas(width, 0.9 + 1.0 * len(weights)) as figure:
        panels = figure.subplots(len(weights), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, title in zip(panels, weights):
            for mark, color, hatch, label in marks:
                drawn = bars[bars["true"] == mark]
                axes.bar(drawn.index, drawn[title], 0.82, color=color, hatch=hatch, label=label, **_EDGE)
            for place in bars.index[bars["true"]]:  # a present class without weight is to be seen, too
                axes.axvspan(place - 0.5, place + 0.5, color="#FDFBE6", zorder=0, linewidth=0)
            axes.axhline(1 / len(names), color=style.INK, linewidth=0.6, linestyle=(0, (4, 2)))
            axes.text(
                1.005, 1 / len(names), "1/C", transform=axes.get_yaxis_transform(), va="center", fontsize=6
            )
            axes.set_title(_shown(title), loc="left")
            axes.set_ylabel("weight $m$")
            axes.tick_params(axis="x", length=0)
            axes.margins(x=0.01)
        size = min(7.0, 60 * width / len(bars))  # points: as high as a bar is wide
        axes.set_xticks(bars.index, bars["class"], rotation=90 if len(bars) > 5 else 0, fontsize=size)
        for tick, true in zip(axes.get_xticklabels(), bars["true"]):
            tick.set_fontweight("bold" if true else "normal")
        style.legend_above(figure, axes)
        return style.save(figure, out, table)


def convergence(curves: pd.DataFrame, out: Path) -> list[Path]:
    """Accuracy against updates (figure 4), a panel per task: mean over seeds and a band of one deviation.

    `curves` has the columns task, method, seed, updates, accuracy and selected; open marks show the
    checkpoints that each seed chose without labels.
    """
    _columns(curves, "task", "method", "seed", "updates", "accuracy", "selected")
    lines = optional_import("matplotlib.lines", "paper")
    tasks, looks = list(dict.fromkeys(curves["task"])), style.looks(curves["method"])
    width = style.COLUMN if len(tasks) == 1 else style.TEXT
    open_mark = {"markerfacecolor": "white", "markersize": 4.2, "markeredgewidth": 1.0}
    with style.canvas(width, 2.6) as figure:
        panels = figure.subplots(1, len(tasks), squeeze=False)[0]
        for axes, task in zip(panels, tasks):
            for method, look in looks.items():
                of = curves[(curves["task"] == task) & (curves["method"] == method)]
                by_update, at = of.groupby("updates")["accuracy"], of[of["selected"].astype(bool)]
                mean, spread = by_update.mean(), by_update.std(ddof=0)
                axes.fill_between(
                    mean.index, mean - spread, mean + spread, color=look.color, alpha=0.12, linewidth=0
                )
                axes.plot(mean.index, mean, color=look.color, linestyle=look.linestyle)
                axes.plot(at["updates"], at["accuracy"], look.marker, color=look.color, **open_mark)
            axes.set_title(_shown(task), loc="left")
            axes.set_xlabel("updates (marks: chosen without labels)")
            axes.grid(axis="y")
        panels[0].set_ylabel("accuracy (%)")
        keys = [
            lines.Line2D([], [], label=_shown(name), **look._asdict(), **open_mark)
            for name, look in looks.items()
        ]
        style.legend_above(figure, panels[0], keys)
        return style.save(figure, out, curves)


def embedding(points: pd.DataFrame, out: Path, by: Literal["domain", "class"] = "domain") -> list[Path]:
    """A grid of t-SNE panels (figure 5): rows are tasks, columns are systems.

    `points` has the columns task, method, x, y, domain ("source" or "target") and label (x and y by
    :func:`ba3us.paper.plane.in_plane`). Colours tell the domains apart or, ``by="class"``, the target's first
    20 classes, with all others in grey; markers tell the domains apart in both.
    """
    _columns(points, "task", "method", "x", "y", "domain", "label")
    lines = optional_import("matplotlib.lines", "paper")
    points = points.reset_index(drop=True)
    grid = [list(dict.fromkeys(points[c])) for c in ("task", "method")]
    dots = {"source": ("o", 2.5), "target": ("x", 4.5)}
    side = style.TEXT / max(4, len(grid[1]))
    with style.canvas(side * len(grid[1]), side * len(grid[0]) + 0.35) as figure:
        panels = figure.subplots(len(grid[0]), len(grid[1]), squeeze=False)
        for (row, column), axes in np.ndenumerate(panels):
            of = points[(points["task"] == grid[0][row]) & (points["method"] == grid[1][column])]
            colours = _point_colours(of, by)
            for domain, (marker, size) in dots.items():
                part = of[of["domain"] == domain]
                thick = {"linewidths": 0 if marker == "o" else 0.5}
                axes.scatter(part["x"], part["y"], s=size, c=colours[part.index], marker=marker, **thick)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(True)
            if row == 0:
                axes.set_title(_shown(grid[1][column]))
            if column == 0:
                axes.set_ylabel(_shown(grid[0][row]))
        colour = {"source": style.SOURCE, "target": style.TARGET} if by == "domain" else {}
        marks = [
            lines.Line2D([], [], linestyle="", marker=m, color=colour.get(d, style.INK), label=d)
            for d, (m, _) in dots.items()
        ]
        style.legend_above(figure, panels[0, 0], marks)
        return style.save(figure, out, points)


def _summed(table: pd.DataFrame, systems: list[str]) -> pd.DataFrame:
    """The table itself or, of a long one, the true and the heaviest classes and a row for the rest."""
    if len(table) <= _MOST_BARS:
        return table
    heavy = table[~table["true"]][systems].max(axis=1).nlargest(max(0, 40 - int(table["true"].sum()))).index
    kept = table["true"] | table.index.isin(heavy)
    rest = pd.DataFrame(
        [{"class": f"{(~kept).sum()} others, sum", "true": False, **table[~kept][systems].sum()}]
    )
    return pd.concat([table[kept], rest], ignore_index=True)


def _point_colours(points: pd.DataFrame, by: str) -> pd.Series:
    """A colour per point: that of its domain, or of its class if the target holds it."""
    if by == "domain":
        return points["domain"].map({"source": style.SOURCE, "target": style.TARGET})
    turbo = optional_import("matplotlib", "paper").colormaps["turbo"]
    to_hex = optional_import("matplotlib.colors", "paper").to_hex
    present = sorted(points.loc[points["domain"] == "target", "label"].unique())[:_MOST_COLOURS]
    palette = [to_hex(turbo(share)) for share in np.linspace(0.05, 0.95, len(present))]
    return points["label"].map(dict(zip(present, palette))).fillna("#D8D8D8")


def _shown(name: str) -> str:
    """A task or a system as people write it."""
    return superscripted(name.replace("->", " → "))


def _columns(table: pd.DataFrame, *wanted: str) -> None:
    missing = [name for name in wanted if name not in table.columns]
    require(
        not missing and len(table) > 0,
        f"The table has the columns {', '.join(map(str, table.columns))} and {len(table)} rows: it must have "
        f"{', '.join(wanted)}, and at least one row.",
    )
