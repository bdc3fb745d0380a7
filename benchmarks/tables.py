"""Tables as Markdown, and pages made of the runs in a database, for the benchmarks."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from ba3us import __version__
from ba3us.bench.database import Database
from ba3us.bench.study import commit


def markdown(table: pd.DataFrame) -> str:
    """Columns as they stand, the index left out."""
    lines = [list(table.columns), ["---"] * len(table.columns), *table.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def page_of_runs(
    parser: argparse.ArgumentParser, title: str, parts: Callable[[pd.DataFrame], list[str]]
) -> None:
    """A whole script: the finished runs of a database as a page, on the screen and, if asked for, in a file.

    Systems with a single seed are left out: they were begun, no more.
    """
    parser.add_argument("database", type=Path)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    with Database(given.database) as database:
        runs = database.table()
    runs = runs[runs["outcome"] == "ok"]
    runs = runs[runs.groupby(["protocol", "label"])["seed"].transform("nunique") > 1]
    command = "    " + shlex.join(["python", f"benchmarks/{parser.prog}", *sys.argv[1:]])
    made = f"Page of ba3us {__version__}, commit {commit()}."
    text = "\n\n".join([f"# {title}", command, made, *parts(runs)]) + "\n"
    print(text)
    if given.page:
        given.page.write_text(text, encoding="utf-8")
