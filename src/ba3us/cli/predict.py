"""``ba3us predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ba3us.cli.adapt import caption
from ba3us.cli.app import Json, app, show


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="A folder that 'ba3us adapt' wrote.")],
    data: Annotated[
        Path, typer.Argument(help="What the run is on: .npz or .npy, or a folder or list of images.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "--csv", help="Where to write row or path, class, probability: .csv or .parquet."
        ),
    ],
    root: Annotated[Path | None, typer.Option(help="Where the paths of a list file start.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    json: Json = False,
) -> None:
    """Predict more data with the model of a run."""
    from ba3us import engine

    summary = engine.predict(run, data, out, root=root, device=device, show=not json)
    title = f"{summary['rows']} predictions in {out}"
    table = Table("class", "rows", title=title, caption=caption(summary))
    for row in sorted(summary["predicted"], key=lambda row: -row["rows"]):
        table.add_row(str(row["class"]), str(row["rows"]))
    show(summary, json, table)
