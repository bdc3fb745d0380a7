"""A small run with names that would break a careless page, and a page taken apart."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from arrays_toys import FAST, clouds
from ba3us.adapt import adapt
from ba3us.run.spec import Spec
from toys import CLASSES

NASTY = [
    "</script><script>alert(1)</script>",
    "=cmd|' /C calc'!A0\nsecond \u2028 line",
    "\u202eفیل\u202c 🦊",
    '"quo\'ted" & <b>bold</b>',
]
assert len(NASTY) == CLASSES and sorted(NASTY) != NASTY
PATHS = '{{ 7*7 }} <img src=x onerror="alert(2)">/{}.jpg'
VOID = {"meta", "link", "br", "img", "input"}


def write_data(folder: Path, names: list[str] = NASTY) -> None:
    """A labelled source and a target with paths; ``t.npz`` has labels, which adapt does not look at."""
    x, y, xt, yt = clouds()
    number = {name: i for i, name in enumerate(sorted(set(y)))}
    labels, true = (np.array([number[name] for name in each]) for each in (y, yt))
    paths = [PATHS.replace("{}", str(i)) for i in range(len(xt))]
    np.savez(folder / "s.npz", features=x, labels=labels, class_names=np.array(names))
    np.savez(folder / "t.npz", features=xt, labels=true, class_names=np.array(names), paths=paths)


def make_run(folder: Path, out: str = "run", method: str = "ba3us", **options: Any) -> Path:
    """A run on the data of `folder`."""
    known = FAST["method_params"] if method == "ba3us" else {"bottleneck": 8}
    spec = Spec(
        source=str(folder / "s.npz"),
        target=str(folder / "t.npz"),
        method=method,
        method_params={"steps": 20, **known, **options},
        n_threads=1,
    )
    adapt(spec, folder / out)
    return folder / out


class Taken(HTMLParser):
    """A page as a list of (tag, attributes, text below it); tags must close."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text, self.elements, self.open = text, list[tuple[str, dict[str, str | None], list[str]]](), []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))
        if tag not in VOID:
            self.open.append(self.elements[-1])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1][0] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for _, _, words in self.open:
            words.append(data)

    def all(self, tag: str, class_: str | None = None) -> list[tuple[dict[str, str | None], str]]:
        """Attributes and whole text of every element of that name (and class)."""
        return [
            (attributes, "".join(words))
            for name, attributes, words in self.elements
            if name == tag and (class_ is None or class_ in (attributes.get("class") or "").split())
        ]

    def texts(self, tag: str, class_: str | None = None) -> list[str]:
        """Whole texts alone, with blanks as they are."""
        return [words for _, words in self.all(tag, class_)]

    def section(self, name: str) -> str:
        """The text of a section, with single blanks."""
        (found,) = (words for attributes, words in self.all("section") if attributes["id"] == name)
        return " ".join(found.split())

    def table(self, caption: str) -> list[list[str]]:
        """The cells of the table with that caption, heading first."""
        html = next(part for part in self.text.split("<table>")[1:] if f">{caption}</caption>" in part)
        inner = Taken(f"<table>{html.partition('</table>')[0]}</table>")
        rows: list[list[str]] = []
        for tag, _, words in inner.elements:
            if tag == "tr":
                rows.append([])
            if tag in ("th", "td"):
                rows[-1].append("".join(words).replace("\N{NO-BREAK SPACE}", " "))
        return rows

    def tips(self) -> list[list[str]]:
        """Tooltips, chart by chart."""
        drawings = [figure.partition("</svg>")[0] for figure in self.text.split('<div class="plot"')[1:]]
        return [Taken(f"<svg{drawing.partition('<svg')[2]}</svg>").texts("title") for drawing in drawings]


def taken(path: Path) -> Taken:
    """Read a page and take it apart."""
    return Taken(path.read_text(encoding="utf-8"))


def write_study(folder: Path) -> Path:
    """Two domains of the same classes, the first two of which are in a target, and a protocol over them."""
    x, y, _, _ = clouds()
    names, labels = np.unique(y, return_inverse=True)
    noise = np.random.default_rng(1).normal(0, 3, x.shape).astype(np.float32)
    np.savez(folder / "one.npz", features=x, labels=labels, class_names=names)
    np.savez(folder / "two.npz", features=x + noise + 1, labels=labels, class_names=names)
    text = "domains: {P: one.npz, Q: two.npz}\ntasks: [P->Q, Q->P]\ntarget: {first: 2}\n"
    (folder / "toy.yaml").write_text(text, encoding="utf-8")
    return folder / "toy.yaml"
