"""Drawings of the method: the framework (figure 1), and what uncertainty suppression does (figure 2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from ba3us.errors import optional_import
from ba3us.losses import complement_entropy
from ba3us.paper import style

_CLASSES = ("mug", "bottle", "pen", "phone", "mouse", "stapler")  # the first is the true one
_SAMPLES = {
    "An unsure source sample": (0.46, 0.36, 0.09, 0.05, 0.03, 0.01),
    "A certain source sample": (0.97, 0.02, 0.005, 0.003, 0.001, 0.001),
}
_STEPS, _RATE = 60, 1.0
_SHAPES = "osD^vp"  # a class each
_LENT = (0, (2, 1.5))  # the line of borrowed samples
_PALE_SOURCE, _PALE_TARGET, _PALE = "#E3EEF7", "#FBE9DD", "#F5F5F5"


def suppressed(steps: int = _STEPS, rate: float = _RATE) -> pd.DataFrame:
    """Probabilities of two source samples before and after gradient steps on L_wce^w (Eq. 6) alone.

    Columns sample, class, true, before, after, and `share`, the sample's part of the loss at first:
    (1 - p_a) over its sum.
    """
    before = torch.tensor(list(_SAMPLES.values()))
    before = before / before.sum(dim=1, keepdim=True)
    labels, weights = torch.zeros(len(before), dtype=torch.long), torch.ones(len(before))
    logits = before.log().requires_grad_()
    for _ in range(steps):
        (gradient,) = torch.autograd.grad(complement_entropy(logits, labels, weights), logits)
        logits = (logits - rate * gradient).detach().requires_grad_()
    unsure = 1 - before[:, 0]
    table = pd.DataFrame({"sample": [s for s in _SAMPLES for _ in _CLASSES], "class": _CLASSES * len(before)})
    return table.assign(
        true=table["class"] == _CLASSES[0],
        before=before.flatten().numpy(),
        after=logits.detach().softmax(dim=1).flatten().numpy(),
        share=(unsure / unsure.sum()).repeat_interleave(len(_CLASSES)).numpy(),
    )


def uncertainty(out: Path, formats: Sequence[str] = ("pdf", "png")) -> list[Path]:
    """Probability bars of an unsure and a certain source sample before and after uncertainty suppression."""
    table = suppressed()
    with style.canvas(style.TEXT, 2.35) as figure:
        panels = figure.subplots(1, len(_SAMPLES), sharey=True)
        for axes, (sample, of) in zip(panels, table.groupby("sample", sort=False)):
            places = range(len(of))
            for shift, moment, color, hatch in ((-0.2, "before", "white", "////"), (0.2, "after", "", "")):
                colours = [color or (style.BLUE if true else style.VERMILLION) for true in of["true"]]
                edges = [style.BLUE if true else style.VERMILLION for true in of["true"]]
                at = [i + shift for i in places]
                axes.bar(at, of[moment], 0.36, color=colours, edgecolor=edges, hatch=hatch, linewidth=0.7)
                for x, value in zip(at, of[moment]):
                    said = f"{value:.2f}".removeprefix("0") if value >= 0.005 else "<.01"
                    axes.text(x, value + 0.015, said, ha="center", fontsize=5.5)
            axes.set_title(f"{sample}: {of['share'].iloc[0]:.0%} of the weight in $L_{{wce}}^w$", loc="left")
            axes.set_xticks(places, of["class"])
            axes.get_xticklabels()[0].set(fontweight="bold", color=style.BLUE)
            axes.tick_params(axis="x", length=0)
        panels[0].set(ylabel="probability", ylim=(0, 1.08))
        _uncertainty_legend(figure, panels[0])
        return style.save(figure, out, table, formats)


def _uncertainty_legend(figure: Any, axes: Any) -> None:
    patches = optional_import("matplotlib.patches", "paper")
    edge = {"edgecolor": style.INK, "linewidth": 0.7}
    keys = [
        patches.Patch(facecolor="white", hatch="////", label="before", **edge),
        patches.Patch(facecolor=style.INK, label=f"after {_STEPS} gradient steps", **edge),
        patches.Patch(color=style.BLUE, label="true class: kept or raised"),
        patches.Patch(color=style.VERMILLION, label="wrong classes: flattened"),
    ]
    style.legend_above(figure, axes, keys)


def framework(out: Path, formats: Sequence[str] = ("pdf", "png")) -> list[Path]:
    """F, G and D, the source, borrowed and target batches, and the losses of Eq. 7."""
    with style.canvas(style.TEXT, 3.3, layout=None) as figure:
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, 140), ylim=(0, 66))
        axes.axis("off")
        _batches(axes)
        _modules(axes)
        _losses(axes)
        return style.save(figure, out, formats=formats)


def _batches(axes: Any) -> None:
    _box(axes, 1.5, 2, 35, 41, "none", style.TARGET, linestyle=(0, (4, 2)))
    _text(axes, 19, 39.6, "augmented target", 7, color=style.TARGET)
    rows = (
        (46, "source batch", "$B$ labelled samples", style.SOURCE, _PALE_SOURCE, _SHAPES),
        (22, "borrowed", r"$\rho B$ source samples, $\rho \to 0$", style.SOURCE, _PALE_SOURCE, "sD^"),
        (4, "target batch", "$B$ samples, no labels", style.TARGET, _PALE_TARGET, "oooss"),
    )
    for y, title, text, color, pale, shapes in rows:
        _box(axes, 4, y, 30, 15.5, pale, color)
        _text(axes, 19, y + 12.7, title, 8, fontweight="bold", color=color)
        for i, shape in enumerate(shapes):
            axes.plot(19 + 4 * (i - (len(shapes) - 1) / 2), y + 7.7, shape, color=color, markersize=4.5)
        _text(axes, 19, y + 2.8, text)
    _path(axes, [(7, 46), (7, 37.5)], style.SOURCE, _LENT)


def _modules(axes: Any) -> None:
    polygon = optional_import("matplotlib.patches", "paper").Polygon
    corners = [(47, 10), (47, 56), (61, 47), (61, 19)]
    axes.add_patch(polygon(corners, facecolor=_PALE, edgecolor=style.INK, linewidth=0.9, joinstyle="round"))
    for x, y, width, height in ((78, 43, 17, 16), (78, 8, 17, 16), (64.5, 12, 8.5, 8)):
        _box(axes, x, y, width, height, _PALE, style.INK)
    _box(axes, 74.5, 28.5, 28, 9, "white", style.FAINT)
    named = (54, 35, "F", "features"), (86.5, 53, "G", "classifier"), (86.5, 18, "D", "discriminator")
    for x, y, letter, name in named:
        _text(axes, x, y, f"${letter}$", 15)
        _text(axes, x, y - 7, name)
    _text(axes, 68.8, 16, "GRL", 7)
    _text(axes, 68.8, 6.6, "gradient\nreversal", 6)
    _text(axes, 88.5, 34.9, r"$m \propto \Sigma_j\,G(F(x_j^t))$", 7.5)
    _text(axes, 88.5, 31, r"$w(x) = 1 + e^{-H(x)}$", 7.5)
    ways: tuple[tuple[Any, str, Any], ...] = (
        ([(34, 53), (47, 53)], style.SOURCE, "-"),
        ([(34, 29.7), (47, 29.7)], style.SOURCE, _LENT),
        ([(34, 12.5), (47, 12.5)], style.TARGET, "-"),
        ([(61, 43.5), (67, 43.5), (67, 54), (78, 54)], style.SOURCE, "-"),
        ([(61, 39), (71, 39), (71, 48), (78, 48)], style.TARGET, "-"),
        ([(61, 25.5), (67, 25.5), (67, 20)], style.SOURCE, _LENT),
        ([(61, 28), (68.8, 28), (68.8, 20)], style.SOURCE, "-"),
        ([(61, 30.5), (70.6, 30.5), (70.6, 20)], style.TARGET, "-"),
        ([(73, 16), (78, 16)], style.INK, "-"),
        ([(86.5, 43), (86.5, 37.5)], style.TARGET, "-"),
    )
    for points, color, line in ways:
        _path(axes, points, color, line)


def _losses(axes: Any) -> None:
    rows = (
        (57, r"$L_{cls}^{w}$", "cross-entropy, Eq. 4", style.SOURCE, "$m$", False),
        (46.5, r"$\beta\,L_{wce}^{w}$", "AUS, Eq. 6", style.SOURCE, "$m$", True),
        (36, r"$\alpha\,L_{ent}$", "entropy, Eq. 3", style.TARGET, "", False),
        (11.5, r"$\lambda\,L_{adv}^{ba}$", "BAA, Eq. 5", style.INK, r"$w\,m$", True),
    )
    for y, formula, text, color, weights, ours in rows:
        _box(axes, 107, y, 32, 8.5, "#FFFBD6" if ours else "white", style.INK, linewidth=1.5 if ours else 0.8)
        _text(axes, 114, y + 4.2, formula, 9.5, color=color)
        text += f"\nweighted by {weights}" if weights else ""
        _text(axes, 121, y + 4.2, text, 6, ha="left", linespacing=1.4)
    _path(axes, [(95, 55), (100, 55), (100, 61.2), (107, 61.2)], style.SOURCE)
    _path(axes, [(95, 53), (102, 53), (102, 50.7), (107, 50.7)], style.SOURCE)
    _path(axes, [(95, 46), (102, 46), (102, 40.2), (107, 40.2)], style.TARGET)
    _path(axes, [(95, 15.7), (107, 15.7)], style.INK)
    _text(axes, 101, 17.8, "source: 1", 6)
    _text(axes, 101, 12.5, "target and\nborrowed: 0", 6)
    _text(axes, 123, 4, r"$\min_{F,G}\,\max_{D}$ of the sum (Eq. 7)", 7)


def _text(axes: Any, x: float, y: float, text: str, size: float = 6.5, **other: Any) -> None:
    axes.text(x, y, text, fontsize=size, **{"ha": "center", "va": "center", "linespacing": 1.1, **other})


def _box(
    axes: Any, x: float, y: float, width: float, height: float, face: str, edge: str, **other: Any
) -> None:
    fancy = optional_import("matplotlib.patches", "paper").FancyBboxPatch
    corners = f"round,pad=0,rounding_size={min(width, height) / 8}"
    looks = {"facecolor": face, "edgecolor": edge, "linewidth": 0.9, **other}
    axes.add_patch(fancy((x, y), width, height, corners, **looks))


def _path(axes: Any, points: list[tuple[float, float]], color: str, linestyle: Any = "-") -> None:
    """A line through the points with a head at its end."""
    axes.plot(*zip(*points), color=color, linestyle=linestyle, linewidth=1.1, zorder=1)
    (x0, y0), (x1, y1) = points[-2:]
    length = max(abs(x1 - x0), abs(y1 - y0))
    near = (x1 - 2 * (x1 - x0) / length, y1 - 2 * (y1 - y0) / length)
    head = {"arrowstyle": "-|>", "color": color, "linewidth": 0, "mutation_scale": 8}
    axes.annotate("", (x1, y1), near, arrowprops={**head, "shrinkA": 0, "shrinkB": 0})
