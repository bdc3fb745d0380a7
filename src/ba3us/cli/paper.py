"""``ba3us paper``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ba3us.cli.app import Json, app, show
from ba3us.cli.bench import (
    Address,
    Anyway,
    Backbone,
    CacheGb,
    Device,
    Engine,
    EvaluateEvery,
    Precision,
    Settings,
    Size,
    Steps,
    Train,
    Views,
    Weights,
    Workers,
    all_options,
    chosen_address,
    of_images,
)


@app.command()
def paper(
    name: Annotated[str, typer.Argument(help="table1 … table6 or figure1 … figure5.")],
    root: Annotated[
        Path | None, typer.Option(help="Folder of the datasets (office31, office-home, …).")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for tables and figures.")] = Path("paper"),
    db: Annotated[Path, typer.Option(help="Database of runs; finished ones are not run again.")] = Path(
        "runs/paper.sqlite"
    ),
    protocol: Annotated[str | None, typer.Option(help="Another protocol in place of the paper's.")] = None,
    tasks: Annotated[str | None, typer.Option(help="Only these, comma-separated: 'A->D,D->A'.")] = None,
    methods: Annotated[str | None, typer.Option(help="Only these, comma-separated.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many (default: the protocol's).", min=1)] = None,
    steps: Steps = None,
    settings: Settings = None,
    evaluate_every: EvaluateEvery = None,
    workers: Workers = 0,
    engine: Engine = "local",
    address: Address = "auto",
    backbone: Backbone = None,
    weights: Weights = None,
    train: Train = None,
    views: Views = None,
    size: Size = None,
    device: Device = None,
    precision: Precision = None,
    cache_gb: CacheGb = None,
    anyway: Anyway = False,
    json: Json = False,
) -> None:
    """Write a table or figure of the BA³US paper from your data: runs what is missing, then the files."""
    seen = of_images(locals())
    from ba3us.paper.produce import Order, produce

    order = Order(
        out=out,
        database=db,
        root=root,
        protocol=protocol,
        tasks=tasks,
        methods=methods,
        seeds=seeds,
        options=all_options(settings, steps),
        evaluate_every=evaluate_every,
        images=seen,
        workers=workers,
        address=chosen_address(engine, address),
        anyway=anyway,
        show=not json,
    )
    files = [str(path) for path in produce(name, order)]
    table = Table("written")
    for file in files:
        table.add_row(file)
    show({"written": files}, json, table)
