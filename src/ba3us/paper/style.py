"""The common look of all figures: colours, lines and sizes that survive grey print and colour blindness."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ba3us.data.writing import new_file
from ba3us.errors import optional_import

COLUMN, TEXT = 3.4, 7.0  # inches: one column, and the whole text
INK, FAINT = "#333333", "#B0B0B0"

# Okabe and Ito's colours that stay apart as greys, too; their yellow is too light for lines on white
BLACK, VERMILLION, BLUE, SKY, PURPLE = "#000000", "#D55E00", "#0072B2", "#56B4E9", "#CC79A7"
YELLOW = "#F0E442"
SOURCE, TARGET = BLUE, VERMILLION


class Look(NamedTuple):
    """How one system is drawn: told apart by each of the three alone."""

    color: str
    linestyle: Any
    marker: str


LOOKS = (
    Look(BLACK, (0, (1, 1.4)), "s"),
    Look(SKY, (0, (5, 1.6)), "^"),
    Look(BLUE, (0, (6, 1.5, 1, 1.5)), "D"),
    Look(VERMILLION, "-", "o"),
    Look(PURPLE, (0, (3, 1, 1, 1, 1, 1)), "v"),
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


_FAMILY = ("Source only", "E-DANN", "BAA", "BA3US")  # each looks the same in every figure


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A look for every name: the paper's own systems have theirs, others go by place, five of them."""
    found = list(dict.fromkeys(names))
    order = _FAMILY if {*found} <= {*_FAMILY} else found
    return {name: LOOKS[order.index(name) % len(LOOKS)] for name in found}


@contextmanager
def canvas(width: float, height: float, layout: str | None = "constrained") -> Iterator[Any]:
    """A figure of that many inches in the common style; nothing global is touched."""
    matplotlib = optional_import("matplotlib", "paper")
    figures = optional_import("matplotlib.figure", "paper")
    with matplotlib.rc_context(_RC):
        yield figures.Figure(figsize=(width, height), layout=layout)


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
