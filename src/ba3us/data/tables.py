"""CSV files that are safe to open in a spreadsheet, and can be read back as they were meant."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from ba3us.errors import UserError, require

_RUN = "[=+\\-@\t\r]"  # what a spreadsheet takes for the start of a formula
_FORMULA, _MARKED = re.compile(f"'*{_RUN}"), re.compile(f"'+{_RUN}")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@contextmanager
def new_table(path: Path, columns: Iterable[str]) -> Iterator[Callable[[Iterable[Any]], Any]]:
    """A CSV file, as a function that writes a row to it; texts that a spreadsheet would run are marked."""
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        lines = csv.writer(_Ends(file), lineterminator="\r\n")
        lines.writerow(columns)
        yield lambda row: lines.writerow([marked(cell) for cell in row])


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a file that :func:`new_table` made, marks taken off."""
    try:
        with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            columns, *rows = csv.reader(file, strict=True)
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"The table {path} can't be read ({error}): make it again.") from error
    for number, row in enumerate(rows, start=1):
        require(
            len(row) in (0, len(columns)),
            f"The table {path} has {len(row)} cells in row {number} for {len(columns)} columns: make it again.",
        )
    return [{key: unmarked(text) for key, text in zip(columns, row)} for row in rows if row]


def marked(cell: Any) -> Any:
    """A text that begins like a formula and is no number, behind a single quote; all else as it is.

    A quote before such a beginning is doubled, so that :func:`unmarked` gives back every text.
    """
    formula = isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if formula else cell


def unmarked(text: str) -> str:
    """What :func:`marked` was given."""
    return text[1:] if _MARKED.match(text) else text


class _Ends:
    """Gives lines the system's ends: a cell with a carriage return is only quoted where lines end with one."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, line: str) -> int:
        return self._file.write(line.removesuffix("\r\n") + os.linesep)
