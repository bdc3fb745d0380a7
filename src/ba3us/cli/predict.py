"""``ba3us predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table

from ba3us.cli.adapt import caption
from ba3us.cli.app import Json, app, show
from ba3us.progress import visible


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="A folder that 'ba3us adapt' wrote.")],
    data: Annotated[
        Path, typer.Argument(help="What the run is on: .npz or .npy, or a folder or list of images.")
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "--csv", help="The table to write, a row for each sample: .csv or .parquet."),
    ],
    max_error: Annotated[
        float | None,
        typer.Option(help="Abstain where else more than this share of the rest would be wrong (0.05)."),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Where the paths of a list file start.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    json: Json = False,
) -> None:
    """Predict more data with a run's model: class, probability, calibrated confidence, whether to abstain."""
    from ba3us import engine

    summary = engine.predict(run, data, out, root=root, device=device, max_error=max_error, show=not json)
    title = f"{summary['rows']} predictions in {visible(out)}"
    table = Table("class", "rows", title=title, caption=caption(summary))
    for row in sorted(summary["predicted"], key=lambda row: -row["rows"]):
        table.add_row(visible(row["class"]), str(row["rows"]))
    show(summary, json, Group(table, "", _abstained(summary)))


def _abstained(summary: dict[str, Any]) -> str:
    """Of how many rows the table abstains, and whether that is worth what it says."""
    if summary["abstained"] is None:
        return "The run has no calibration: confidence and abstain are empty."
    share = f"{summary['abstained']} of {summary['rows']} rows"
    said = [f"At an error level of {100 * summary['max_error']:g} % the table abstains from {share}."]
    return " ".join(
        said + ["No error level can be promised here."] * bool(summary["cautions"]) + summary["cautions"]
    )
