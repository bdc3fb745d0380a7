"""``ba3us export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ba3us.cli.app import Json, app, show
from ba3us.progress import moment


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="A folder that 'ba3us adapt' wrote.")],
    onnx: Annotated[Path, typer.Option(help="The .onnx file to write.")],
    present_only: Annotated[
        bool, typer.Option("--present-only", help="Keep only the classes that are present or unsure.")
    ] = False,
    card: Annotated[
        Path | None, typer.Option(help="The model card (default: the .onnx file's name, .md).")
    ] = None,
    json: Json = False,
) -> None:
    """Write a run's model as an ONNX file that needs neither torch nor ba3us, and a model card."""
    with moment("Loading torch", not json):
        from ba3us.export import export as exported

    summary = exported(run, onnx, present_only=present_only, card=card, show=not json)
    given = summary["input"]
    table = Table("", "", title=summary["onnx"], show_header=False)
    for name, value in {
        "size": f"{summary['bytes'] / 1e6:.1f} MB",
        "input": f"{given['name']}, {given['type']} [{', '.join(map(str, given['shape']))}]",
        "classes": str(len(summary["classes"])),
        "checked on": summary["checked_on"],
        "largest difference": f"{summary['largest_difference']:.1e} in a probability",
        "card": summary["card"],
    }.items():
        table.add_row(name, value)
    show(summary, json, table)
