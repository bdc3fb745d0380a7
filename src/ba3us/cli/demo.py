"""``ba3us demo``."""

from __future__ import annotations

from typing import Annotated

import typer

from ba3us.cli.app import Json, app, show


@app.command()
def demo(
    json: Json = False,
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 3,
    steps: Annotated[int, typer.Option(help="Updates of every system.", min=1)] = 300,
    workers: Annotated[int, typer.Option(help="Runs at the same time (0: one per core).", min=0)] = 0,
) -> None:
    """Adapt from MNIST (ten digits) to scikit-learn's digits 0-4: real data, no download, seconds."""
    from ba3us import demo as demos

    outcome = demos.run(seeds=seeds, steps=steps, workers=workers, quiet=json)
    show(outcome.payload(), json, outcome.table())
