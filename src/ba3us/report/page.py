"""Pages: one HTML file each, with style, script and pictures inside, that may load nothing from the network.

A page is made of parts (words, tables, charts, pictures): data, which the one template ``page.html`` shows.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import ClassVar, NamedTuple

import jinja2
from markupsafe import Markup

from ba3us import __version__
from ba3us.data.writing import check_new_file, new_file
from ba3us.errors import require

Cell = str | Markup


@dataclass(frozen=True)
class Words:
    """A paragraph; an `aside` is set apart from the text."""

    kind: ClassVar[str] = "words"
    text: str
    aside: bool = False


@dataclass(frozen=True)
class Verdict:
    """The answer in words, its reasons and figures. `tone` (good, bad, unknown, plain) gives its colour."""

    kind: ClassVar[str] = "verdict"
    tone: str
    sentence: str
    reasons: Sequence[str] = ()
    figures: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Table:
    """Rows under a heading. `numeric` columns are aligned right; the rows in `marked` are highlighted.

    A button unfolds the rows from `fold` on. A `closed` table opens with a click on its caption.
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
        """Whether it is long enough for a button; one or two rows are not."""
        return len(self.rows) > self.fold + 2


class Key(NamedTuple):
    """An entry of a legend: the group that it switches, its name, and how it is drawn.

    `class_` are classes of ``page.css``; `mark` is a path inside 22 by 12.
    """

    group: str
    name: str
    class_: str
    mark: str = "M1 6h20"


@dataclass(frozen=True)
class Chart:
    """A drawing with its words: `summary` says what can be seen to those who can't see it."""

    kind: ClassVar[str] = "chart"
    title: str
    summary: str
    drawing: Markup
    legend: Sequence[Key] = ()


@dataclass(frozen=True)
class Charts:
    """Parts beside each other if there is room. `choices` are (name, words) of ways to colour them."""

    kind: ClassVar[str] = "charts"
    parts: Sequence[Chart | Table]
    choices: Sequence[tuple[str, str]] = ()
    small: bool = False


class Picture(NamedTuple):
    """An image as a data URI, its name, and lines below it."""

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
    """Text to copy. With a `caption` it is folded away behind it."""

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
    """What the template shows."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    footer: str = ""
    lead: Sequence[Part] = field(default_factory=tuple)


def check_page(out: Path) -> None:
    """Fail before the work if `out` can't become a page."""
    require(out.suffix.lower() in (".html", ".htm"), f"The page {out} must end in .html.")
    check_new_file(out)


def write_page(page: Page, out: Path) -> None:
    """Write the whole page or nothing. Names that are not valid text are written with escapes: ``\\udcff``."""
    with new_file(out) as part:
        part.write_text(html(page), encoding="utf-8", errors="backslashreplace")


def html(page: Page) -> str:
    """The page as text. Everything is escaped except the style, the script and the drawings."""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    style, script, template = (
        files("ba3us.report").joinpath(name).read_text(encoding="utf-8")
        for name in ("page.css", "page.js", "page.html")
    )
    policy = {  # only this style and this script, only embedded images, no network
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": _digest(style),
        "script-src": _digest(script),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return environment.from_string(template).render(
        page=page,
        version=__version__,
        style=Markup(style),
        script=Markup(script),
        policy="; ".join(f"{directive} {sources}" for directive, sources in policy.items()),
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
