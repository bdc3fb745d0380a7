"""``ba3us bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ba3us.cli.app import Json, app, show


@app.command()
def bench(
    protocol: Annotated[Path, typer.Argument(help="A YAML protocol (protocols/ has some).")],
    features: Annotated[Path | None, typer.Option(help="Folder of the feature files.")] = None,
    methods: Annotated[
        str, typer.Option(help="Names, comma-separated, or 'all'.")
    ] = "source-only,e-dann,ba3us",
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 3,
    steps: Annotated[int | None, typer.Option(help="Updates of every run.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="name=value for the methods, or method.name=value for one."),
    ] = None,
    label: Annotated[str, typer.Option(help="Row name in tables; {method} is replaced.")] = "{method}",
    out: Annotated[Path, typer.Option(help="Results, one JSON line per run; finished runs are kept.")] = Path(
        "runs/bench.jsonl"
    ),
    workers: Annotated[int, typer.Option(help="Runs at the same time (0: one per core).", min=0)] = 0,
    sort: Annotated[bool, typer.Option("--sort", help="Best average first.")] = False,
    json: Json = False,
) -> None:
    """Run methods × tasks × seeds on ready features; tables of last, min-entropy, oracle, cost, mistakes."""
    from ba3us import bench as benches

    read = benches.read_protocol(protocol, features)
    options = benches.parse_settings(settings or ()) | ({} if steps is None else {"steps": steps})
    todo = benches.jobs(read, benches.chosen_methods(methods), seeds, options, label)
    rows = benches.run(read, todo, out, workers, quiet=json)
    if json:
        show(rows.to_dict(orient="records"), json)
    else:
        print(f"## {read.name}")
        rows = benches.ranked(rows) if sort else rows
        whole = benches.overview(rows).join(benches.mistakes(rows))
        for table in (whole, benches.summarise(rows)):
            print(f"\n{benches.markdown(table)}")
