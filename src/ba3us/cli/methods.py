"""``ba3us methods``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from ba3us.cli.app import Json, app, show


@app.command()
def methods(
    json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the documentation page.")] = False,
) -> None:
    """List the methods: what they are, how faithful, and what they need."""
    from ba3us import methods as registry

    if markdown:
        from ba3us.report import methods_page

        print(methods_page(), end="")
        return

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
    columns = ("name", "title", "setting", "fidelity", "needs")
    table = Table(*columns, title="Methods", caption="References and notes: docs/methods.md, or --json.")
    for row in rows:
        table.add_row(*(", ".join(row[c]) if c == "needs" else str(row[c]) for c in columns))
    show(rows, json, table)
