"""``ba3us demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group

from ba3us.cli.app import Json, app, show


@app.command()
def demo(
    json: Json = False,
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 3,
    steps: Annotated[int, typer.Option(help="Updates of every system.", min=1)] = 300,
    workers: Annotated[int, typer.Option(help="Runs at the same time (0: one per core).", min=0)] = 0,
    out: Annotated[Path, typer.Option(help="Where one of the runs, with its page, is written.")] = Path(
        "runs/demo"
    ),
) -> None:
    """Adapt from MNIST (ten digits) to scikit-learn's digits 0-4: real data, no download, seconds."""
    from ba3us import demo as demos

    outcome = demos.run(seeds=seeds, steps=steps, workers=workers, quiet=json, out=out)
    show(outcome.payload(), json, Group(outcome.table(), "", f"The page to look at: {outcome.page}"))
