"""The command line: it parses and calls, nothing more."""

from __future__ import annotations

import json as jsonlib
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ba3us.errors import UserError

app = typer.Typer(
    name="ba3us",
    help="Partial domain adaptation: adapt a classifier to a target that holds only some of the source's classes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def main() -> None:
    """Entry point: bad input is one sentence on the standard error and exit code 2."""
    try:
        app()
    except UserError as error:
        Console(stderr=True, soft_wrap=True, markup=False, highlight=False).print(f"ba3us: {error}")
        sys.exit(2)


def show(payload: Any, json: bool, table: Table | None = None) -> None:
    """Print `payload` as JSON, or the table for people."""
    if json:
        print(jsonlib.dumps(payload, ensure_ascii=False, indent=2))
    elif table is not None:
        Console().print(table)


@app.command()
def demo(
    json: Json = False,
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 3,
    workers: Annotated[int, typer.Option(help="Runs at the same time (0: one per core).", min=0)] = 0,
) -> None:
    """Adapt from MNIST (ten digits) to scikit-learn's digits 0-4: real data, no download, about a minute."""
    from ba3us import demo as demos

    outcome = demos.run(seeds=seeds, workers=workers, quiet=json)
    show(outcome.payload(), json, outcome.table())


@app.command()
def methods(json: Json = False) -> None:
    """List the methods: what they are, how faithful, and what they need."""
    from ba3us import methods as registry

    rows = [
        {
            "name": e.name,
            "title": e.info.title,
            "setting": e.info.setting,
            "fidelity": e.info.fidelity,
            "needs": list(e.info.needs),
            "reference": e.info.reference,
            "note": e.info.note,
        }
        for e in registry.entries()
    ]
    table = Table("name", "title", "setting", "fidelity", "needs", "reference", title="Methods")
    for row in rows:
        table.add_row(*(", ".join(v) if isinstance(v, list) else v for k, v in row.items() if k != "note"))
    show(rows, json, table)


if __name__ == "__main__":
    main()
