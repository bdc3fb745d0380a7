"""``ba3us report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ba3us.cli.app import Json, app, show
from ba3us.errors import require
from ba3us.progress import moment


@app.command()
def report(
    path: Annotated[
        Path, typer.Argument(help="A folder that 'ba3us adapt' wrote, or the database of 'bench'.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page to write (default: RUN/report.html, or beside the database).")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="The target's labels, for accuracy: .npy, .npz, .csv, a list, or class folders."),
    ] = None,
    protocol: Annotated[str | None, typer.Option(help="Of a database: which protocol to show.")] = None,
    json: Json = False,
) -> None:
    """Write a page of a run or a benchmark: one file that opens anywhere, without a network."""
    with moment("Loading torch", not json):
        from ba3us.report import write_database_page, write_run_page

    if path.is_file():
        require(labels is None, f"--labels is for runs, but {path} is a file: leave it out.")
        page = write_database_page(path, protocol, out)
    else:
        require(protocol is None, f"--protocol is for a database of runs, but {path} is none: leave it out.")
        page = write_run_page(path, labels, out, show=not json)
    show({"page": str(page), "bytes": page.stat().st_size}, json)
    if not json:
        print(page)
