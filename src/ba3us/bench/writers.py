"""Tables as text: for the terminal, Markdown, LaTeX, CSV and HTML."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from ba3us.bench.paper import superscripted
from ba3us.bench.tables import Cell, Table
from ba3us.errors import UserError, require

_STYLES = {"best": "bold", "second": "underline", "": ""}
_LATEX = {
    "±": r"$\pm$",
    "×": r"$\times$",
    "≈": r"$\approx$",
    "→": r"$\to$",
    "³": "$^3$",
    "–": "--",
    "≥": r"$\ge$",
}
_LATEX |= {c: f"\\{c}" for c in "&%$#_{}"} | {">": "$>$", "<": "$<$", "\\": r"\textbackslash{}"}
_LATEX |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= dict(zip("αβξλρκ", (rf"$\{name}$" for name in ("alpha", "beta", "xi", "lambda", "rho", "kappa"))))
_FITTED = r"\resizebox{\ifdim\width>\linewidth \linewidth\else \width\fi}{!}{"  # only ever smaller


def terminal(tables: Sequence[Table]) -> str:
    """For people at a terminal, in its width."""
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = 160
    with console.capture() as captured:
        for table in _for_people(tables):
            shown = RichTable(box=SIMPLE, title=Text(table.title), caption=Text("\n".join(table.notes)))
            for column in table.columns:
                shown.add_column(column, overflow="fold")
            for row in table.rows:
                shown.add_row(*(Text(cell.text, style=_STYLES[cell.mark]) for cell in row))
            console.print(shown)
    return captured.get()


def markdown(tables: Sequence[Table]) -> str:
    """With a heading each; best in bold, second best underlined."""
    marks = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
    parts = []
    for table in _for_people(tables):
        lines = [table.columns, ["---"] * len(table.columns)]
        lines += [
            [marks[cell.mark].format(cell.text.replace("|", r"\|")) for cell in row] for row in table.rows
        ]
        rows = ["| " + " | ".join(line) + " |" for line in lines]
        parts.append("\n".join([f"## {table.title}", "", *rows, *(f"\n{note}" for note in table.notes)]))
    return "\n\n".join(parts) + "\n"


def latex(tables: Sequence[Table]) -> str:
    """Floats with booktabs' rules, made smaller where they don't fit the line (graphicx); notes below."""
    marks = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "": "{}"}
    parts = ["% \\usepackage{booktabs,graphicx}\n"]
    for table in _for_people(tables):
        head = " & ".join(map(_tex, table.columns))
        rows = [" & ".join(marks[cell.mark].format(_tex(cell.text)) for cell in row) for row in table.rows]
        body = "".join(rf"{row} \\" + "\n" for row in rows)
        places = "l" + "r" * (len(table.columns) - 1)
        notes = "".join(f"{_tex(note)}\n" for note in table.notes)
        parts.append(
            f"\\begin{{table}}\n\\centering\n\\caption{{{_tex(table.title)}}}\n{_FITTED}%\n"
            f"\\begin{{tabular}}{{{places}}}\n\\toprule\n{head} \\\\\n\\midrule\n{body}\\bottomrule\n"
            f"\\end{{tabular}}}}\n\\par\\smallskip\\raggedright\\footnotesize\n{notes}\\end{{table}}\n"
        )
    return "\n".join(parts)


def comma_separated(tables: Sequence[Table]) -> str:
    """One table after the other, each below a line with its title."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    for table in tables:
        lines.writerow([f"# {table.title}"])
        lines.writerow(table.columns)
        lines.writerows([cell.text for cell in row] for row in table.rows)
    return out.getvalue()


def web(tables: Sequence[Table]) -> str:
    """A page that needs nothing else."""
    marks = {"best": "<b>{}</b>", "second": "<u>{}</u>", "": "{}"}
    parts = []
    for table in _for_people(tables):
        head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
        cells = [[f"<td>{marks[c.mark].format(html.escape(c.text))}</td>" for c in row] for row in table.rows]
        body = "".join(f"<tr>{''.join(row)}</tr>\n" for row in cells)
        notes = "".join(f"<p>{html.escape(note)}</p>\n" for note in table.notes)
        parts.append(f"<h2>{html.escape(table.title)}</h2>\n<table>\n<tr>{head}</tr>\n{body}</table>\n{notes}")
    return f'<!doctype html>\n<meta charset="utf-8">\n<title>ba3us bench</title>\n{"".join(parts)}'


WRITERS: dict[str, Callable[[Sequence[Table]], str]] = {
    "terminal": terminal,
    "markdown": markdown,
    "latex": latex,
    "csv": comma_separated,
    "html": web,
}
_SUFFIXES = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".html": "html", ".txt": "terminal"}


def chosen_format(given: str | None, file: Path | None) -> str:
    """The format asked for, else that of the file's name, else the terminal's."""
    if given is not None:
        require(given in WRITERS, f"Unknown format {given!r}: choose one of {', '.join(WRITERS)}.")
        return given
    if file is None:
        return "terminal"
    if file.suffix not in _SUFFIXES:
        raise UserError(f"No format goes with {file}: end it in {', '.join(_SUFFIXES)}, or add --format.")
    return _SUFFIXES[file.suffix]


def _for_people(tables: Sequence[Table]) -> list[Table]:
    """The same with names as they are printed, and ≈ in the cells that have it."""

    def read(cell: Cell) -> Cell:
        return replace(cell, text=superscripted(cell.text) + (" ≈" if cell.near else ""))

    return [
        replace(
            table,
            rows=[[read(cell) for cell in row] for row in table.rows],
            notes=[superscripted(note) for note in table.notes],
        )
        for table in tables
    ]


def _tex(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in text.replace("->", "→"))
