"""``ba3us check``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ba3us.cli.app import Json, app, show
from ba3us.cli.memory import keep_memory
from ba3us.progress import moment

_STYLES = {"stop": "bold red", "warning": "yellow", "note": ""}


@app.command()
def check(
    source: Annotated[
        Path,
        typer.Argument(help="Labelled: a folder of class folders, a list file, .npz, or .npy with --labels."),
    ],
    target: Annotated[Path, typer.Argument(help="Unlabelled: a folder or list file of images, .npz or .npy.")],
    labels: Annotated[Path | None, typer.Option(help="The source's labels, .npy.")] = None,
    root: Annotated[Path | None, typer.Option(help="Where the paths of list files start.")] = None,
    classes: Annotated[Path | None, typer.Option(help="Class names of a list file, one per line.")] = None,
    backbone: Annotated[
        str | None, typer.Option(help="A timm name; efficientnet_lite0, the default, needs no network.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="The backbone's weights.")] = None,
    no_cost: Annotated[bool, typer.Option("--no-cost", help="Do not time training on this machine.")] = False,
    workers: Annotated[int | None, typer.Option(help="Threads that decode.", min=1)] = None,
    cache_gb: Annotated[float | None, typer.Option(help="What the cache may hold; 0: none (10).")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    json: Json = False,
) -> None:
    """Look for what could go wrong before training; findings are no error (exit code 0)."""
    given: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in locals().items()
        if value is not None and name not in ("json", "no_cost")
    }
    with moment("Loading torch", not json):
        from ba3us.checking import check as look
        from ba3us.engine import Spec
    spec = Spec(**given)
    if spec.of_images:
        keep_memory()
    summary = look(spec, show=not json, cost=not no_cost).summary()
    summary = {"source": str(source), "target": str(target)} | summary
    show(summary, json, _shown(summary))


def _shown(summary: dict[str, Any]) -> Group:
    """Figures, then findings, then what was not looked at."""
    counts = summary["counts"]
    many = [f"{n} {what}{'s' * (n != 1)}" for what in ("warning", "note") for n in [counts[what]]]
    title = f"{counts['stop']} to stop for, {', '.join(many)}"
    parts: list[RenderableType] = [_facts(summary["facts"]), ""]
    if summary["findings"]:
        table = Table("", "what was found", "what to do", title=title, show_lines=True)
        for found in summary["findings"]:
            table.add_row(Text(found["level"], _STYLES[found["level"]]), found["text"], found["advice"])
        parts.append(table)
    else:
        parts.append("Nothing was found that speaks against training.")
    return Group(*parts, *summary["passed_over"])


def _facts(facts: dict[str, Any]) -> Table:
    table = Table("", "", title="The two domains", show_header=False)
    for domain in ("source", "target"):
        table.add_row(domain, _domain(facts[domain]))
    if "domains" in facts:
        table.add_row("domains", facts["domains"])
        table.add_row("κ of neighbours", f"{facts['neighbours_kappa']:.2f}")
        known, seen = len(facts["source"]["classes"]), len(facts["classes_seen_in_target"])
        table.add_row("target looks like", f"{seen} of the source's {known} classes, roughly")
    for cost in facts.get("cost", ()):
        table.add_row(*_cost(cost))
    return table


def _domain(facts: dict[str, Any]) -> str:
    said = [
        f"{facts['images']:,} images" if "images" in facts else f"{facts['rows']:,} rows of {facts['shape']}"
    ]
    if each := facts.get("classes"):
        said.append(f"{len(each)} classes of {min(each.values()):,} to {max(each.values()):,}")
    if "median" in facts:
        said.append("×".join(map(str, facts["median"])) + " pixels (median)")
        said.append(", ".join(f"{mode} {count:,}" for mode, count in facts["modes"].items()))
    return "; ".join(said)


def _cost(cost: dict[str, Any]) -> tuple[str, str]:
    from ba3us.engine.estimate import in_words
    from ba3us.methods.auto import NAME as AUTO

    spent = f"about {in_words(cost['seconds'])} and {cost['gigabytes']:.1f} GB here"
    if cost["system"] == AUTO:
        return "ba3us adapt", f"{spent}: the automatic choice"
    return f"--method {cost['system']} --train {cost['train']}", f"{spent} with {cost['updates']:,} updates"
