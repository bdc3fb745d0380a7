"""What a page is made of: words, tables, charts and pictures, each of them data for the one template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from markupsafe import Markup

Cell = str | Markup


@dataclass(frozen=True)
class Words:
    """A paragraph; an `aside` is set apart from the text."""

    kind: ClassVar[str] = "words"
    text: str
    aside: bool = False


@dataclass(frozen=True)
class Verdict:
    """The answer in words, the reasons for it, and the figures behind them; `tone` is how it is set."""

    kind: ClassVar[str] = "verdict"
    tone: str
    sentence: str
    reasons: Sequence[str] = ()
    figures: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Table:
    """Rows under a heading; `numeric` columns are set flush right, rows in `marked` stand out.

    Of a long table the rows from `fold` on are behind a button; a `closed` table is behind its caption.
    """

    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numeric: Sequence[int] = ()
    marked: Sequence[int] = ()
    fold: int = 25
    closed: bool = False
    notes: Sequence[str] = ()

    @property
    def folded(self) -> bool:
        """Whether it is long enough to be folded; one or two rows are not worth a button."""
        return len(self.rows) > self.fold + 2


class Spot(NamedTuple):
    """A place of a drawing that answers to a pointer or an arrow key; `groups` are the keys it belongs to."""

    x: float
    y: float
    text: str
    groups: Sequence[str] = ()


class Key(NamedTuple):
    """A legend's entry: which group it switches, what it is called, and how it is drawn.

    `look` are classes of ``page.css``, `mark` is the path of what stands in the chart, 22 by 12.
    """

    group: str
    name: str
    look: str
    mark: str = "M1 6h20"


@dataclass(frozen=True)
class Chart:
    """A drawing with its words: `summary` says what is to be seen to those who do not see it."""

    kind: ClassVar[str] = "chart"
    title: str
    summary: str
    drawing: Markup
    spots: Sequence[Spot] = ()
    legend: Sequence[Key] = ()


@dataclass(frozen=True)
class Charts:
    """Parts beside each other, as far as there is room; `choices` are (name, words) of ways to colour them."""

    kind: ClassVar[str] = "charts"
    parts: Sequence[Chart | Table]
    choices: Sequence[tuple[str, str]] = ()
    small: bool = False


class Picture(NamedTuple):
    """An image as a data URI, with what is known of it."""

    data: str
    name: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Pictures:
    """A row of small images."""

    kind: ClassVar[str] = "pictures"
    title: str
    pictures: Sequence[Picture]


@dataclass(frozen=True)
class Code:
    """Text to be copied; with a `caption` it is behind that."""

    kind: ClassVar[str] = "code"
    text: str
    caption: str = ""


Part = Words | Verdict | Table | Chart | Charts | Pictures | Code


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading of its own."""

    name: str
    title: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Page:
    """Everything that the template shows."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    footer: str = ""
    lead: Sequence[Part] = field(default_factory=tuple)
