"""One file with everything in it: the template filled in, style and script inlined, the network shut out."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup

from ba3us import __version__
from ba3us.data.writing import check_new_file, new_file
from ba3us.errors import require
from ba3us.report.parts import Page

_HERE = files("ba3us.report")


def check_page(out: Path) -> None:
    """Fail before the work if `out` can't become a page."""
    require(out.suffix.lower() in (".html", ".htm"), f"The page {out} must end in .html.")
    check_new_file(out)


def write_page(page: Page, out: Path) -> None:
    """Write the page at once or not at all; bytes of names that are no text are written as ``\\udcff``."""
    with new_file(out) as part:
        part.write_text(html(page), encoding="utf-8", errors="backslashreplace")


def html(page: Page) -> str:
    """The page as text. Everything but our own style, script and drawings is escaped."""
    made = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    style, script = (_read(name) for name in ("page.css", "page.js"))
    return made.from_string(_read("page.html")).render(
        page=page,
        version=__version__,
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
    )


def _policy(style: str, script: str) -> str:
    """What a browser may do with the page: run and style it with these very texts, show embedded images."""
    allowed = {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": _digest(style),
        "script-src": _digest(script),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{what} {where}" for what, where in allowed.items())


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
