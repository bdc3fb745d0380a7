"""``ba3us methods``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ba3us.cli.adapt import caption
from ba3us.cli.app import Json, app, keep_memory, show
from ba3us.errors import require
from ba3us.progress import moment, visible

# --- check ------------------------------------------------------------------------------------------------
# ``ba3us check``.


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
        from ba3us.check import check as look
        from ba3us.run.spec import Spec
    spec = Spec(**given)
    if spec.kind == "images":
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
    from ba3us.check.cost import in_words
    from ba3us.methods.auto import NAME as AUTO

    spent = f"about {in_words(cost['seconds'])} and {cost['gigabytes']:.1f} GB here"
    if cost["system"] == AUTO:
        return "ba3us adapt", f"{spent}: the automatic choice"
    return f"--method {cost['system']} --train {cost['train']}", f"{spent} with {cost['updates']:,} updates"


# --- predict ----------------------------------------------------------------------------------------------
# ``ba3us predict``.


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
    from ba3us import adapt

    summary = adapt.predict(run, data, out, root=root, device=device, max_error=max_error, show=not json)
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


# --- report -----------------------------------------------------------------------------------------------
# ``ba3us report``.


@app.command()
def report(
    path: Annotated[
        Path, typer.Argument(help="A folder that 'ba3us adapt' wrote, or the database of 'bench'.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page to write (default: RUN/report.html, or beside the database).")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="The target's labels, for accuracy: .npy, .npz, .csv, a list, or class folders."),
    ] = None,
    protocol: Annotated[str | None, typer.Option(help="Of a database: which protocol to show.")] = None,
    json: Json = False,
) -> None:
    """Write a page of a run or a benchmark: one file that opens anywhere, without a network."""
    with moment("Loading torch", not json):
        from ba3us.report import write_run_page

    if path.is_file():
        from ba3us.bench.html_page import write_database_page

        require(labels is None, f"--labels is for runs, but {path} is a file: leave it out.")
        page = write_database_page(path, protocol, out)
    else:
        require(protocol is None, f"--protocol is for a database of runs, but {path} is none: leave it out.")
        page = write_run_page(path, labels, out, show=not json)
    show({"page": str(page), "bytes": page.stat().st_size}, json)
    if not json:
        print(page)


# --- export -----------------------------------------------------------------------------------------------
# ``ba3us export``.


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="A folder that 'ba3us adapt' wrote.")],
    onnx: Annotated[Path, typer.Option(help="The .onnx file to write.")],
    present_only: Annotated[
        bool, typer.Option("--present-only", help="Keep only the classes that are present or unsure.")
    ] = False,
    card: Annotated[
        Path | None, typer.Option(help="The model card (default: the .onnx file's name, .md).")
    ] = None,
    json: Json = False,
) -> None:
    """Write a run's model as an ONNX file that needs neither torch nor ba3us, and a model card."""
    with moment("Loading torch", not json):
        from ba3us.export import export as exported

    summary = exported(run, onnx, present_only=present_only, card=card, show=not json)
    given = summary["input"]
    table = Table("", "", title=summary["onnx"], show_header=False)
    for name, value in {
        "size": f"{summary['bytes'] / 1e6:.1f} MB",
        "input": f"{given['name']}, {given['type']} [{', '.join(map(str, given['shape']))}]",
        "classes": str(len(summary["classes"])),
        "checked on": summary["checked_on"],
        "largest difference": f"{summary['largest_difference']:.1e} in a probability",
        "card": summary["card"],
    }.items():
        table.add_row(name, value)
    show(summary, json, table)


# --- embed ------------------------------------------------------------------------------------------------
# ``ba3us embed``.


@app.command()
def embed(
    images: Annotated[
        Path, typer.Argument(help="A folder of class folders, a folder of images, or a list file.")
    ],
    out: Annotated[Path, typer.Option(help="The .npz file to write.")],
    backbone: Annotated[
        str,
        typer.Option(help="A timm name; resnet50 and vgg16 are the paper's, efficientnet_lite0 is offline."),
    ] = "efficientnet_lite0",
    weights: Annotated[Path | None, typer.Option(help="A .safetensors or .pth file with weights.")] = None,
    root: Annotated[Path | None, typer.Option(help="Where the paths of a list file start.")] = None,
    classes: Annotated[Path | None, typer.Option(help="Class names of a list file, one per line.")] = None,
    unlabelled: Annotated[bool, typer.Option("--unlabelled", help="Take no labels from the folders.")] = False,
    workers: Annotated[int, typer.Option(help="Threads (0: one per core).", min=0)] = 0,
    cache_gb: Annotated[float, typer.Option(help="What the cache of decoded images may hold.")] = 10.0,
    json: Json = False,
) -> None:
    """Turn images into features, once and for all: a .npz file for adapt, predict and bench."""
    from ba3us.embed import embed_to_file

    keep_memory()
    summary = embed_to_file(
        images,
        out,
        backbone=backbone,
        weights=weights,
        root=root,
        classes=classes,
        labelled=False if unlabelled else None,
        workers=workers or None,
        cache_gb=cache_gb,
        progress=not json,
    )
    table = Table("", "", title="Features", show_header=False)
    for key, value in summary.items():
        if value is not None:
            table.add_row(key.replace("_", " "), str(value))
    show(summary, json, table)


# --- demo -------------------------------------------------------------------------------------------------
# ``ba3us demo``.


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


# --- methods ----------------------------------------------------------------------------------------------
# ``ba3us methods``.


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
    from ba3us.methods import entries

    rows = [entry.described() for entry in entries()]
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
