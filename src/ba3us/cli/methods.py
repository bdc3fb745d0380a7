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
    """List the methods: what they are, whose losses and settings they have, and what they need."""
    if markdown:
        from ba3us.report import methods_page

        print(methods_page(), end="")
        return
    from ba3us import catalogue

    rows = catalogue.read()
    caption = (
        "losses: checked against an original's numbers, textbook form, variant or reconstruction. Settings by "
        "default: published, or ours and how many options differ. More: docs/methods.md, or --json."
    )
    table = Table(title=f"{len(rows)} systems", caption=caption)
    for column in (columns := ("name", "title", "setting", "losses", "settings", "needs")):
        table.add_column("settings by default" if column == "settings" else column, no_wrap=column == "name")
    for row in rows:
        table.add_row(*(", ".join(row[c]) if c == "needs" else row[c] for c in columns))
    show(rows, json, table)
