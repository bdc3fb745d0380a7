"""All commands but ``adapt``, ``bench`` and ``paper``: each calls the library and shows a summary."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from ba3us.cli.adapt import caption
from ba3us.cli.app import LABELLED, UNLABELLED, Json, app, keep_memory, option, show
from ba3us.cli.options import with_options
from ba3us.errors import require
from ba3us.progress import moment, visible

RunPath = Annotated[Path, typer.Argument(help="A folder that 'ba3us adapt' wrote.")]


@app.command()
def demo(
    json: Json = False,
    seeds: Annotated[int, option("Train every method with so many seeds.", min=1)] = 3,
    steps: Annotated[int, option("Train for so many steps.", min=1)] = 300,
    workers: Annotated[int, option("Train so many runs at the same time; 0: one per core.", min=0)] = 0,
    out: Annotated[Path, option("Write one of the runs, with its page, to this directory.")] = Path(
        "runs/demo"
    ),
) -> None:
    """Adapt from MNIST (ten digits) to scikit-learn's digits 0-4: real data, no download, seconds."""
    from ba3us import demo

    outcome = demo.run(seeds=seeds, steps=steps, workers=workers, quiet=json, out=out)
    show(outcome.summary(), json, Group(outcome.table(), "", f"Report: {outcome.page}"))


@app.command()
@with_options("labels", "root", "classes", "backbone", "weights", "workers", "cache_gb", "device")
def check(
    source: Annotated[Path, LABELLED],
    target: Annotated[Path, UNLABELLED],
    no_cost: Annotated[bool, option("Do not time training on this machine.", "--no-cost")] = False,
    json: Json = False,
    **options: Any,
) -> None:
    """Look for what could go wrong before training; findings are not an error (exit code 0)."""
    with moment("Loading torch", not json):
        from ba3us.check import check
        from ba3us.check.cost import in_words
        from ba3us.methods.auto import NAME as AUTO
        from ba3us.run.spec import Spec

    spec = Spec(source=str(source), target=str(target), **options)
    if spec.kind == "images":
        keep_memory()
    findings = check(spec, show=not json, cost=not no_cost).summary()
    facts, counts, rows = findings["facts"], findings["counts"], {}
    for domain in ("source", "target"):
        figures = facts[domain]
        if "images" in figures:
            texts = [f"{figures['images']:,} images"]
        else:
            texts = [f"{figures['rows']:,} samples of {figures['shape']}"]
        if sizes := figures.get("classes"):
            texts.append(f"{len(sizes)} classes of {min(sizes.values()):,} to {max(sizes.values()):,}")
        if "median" in figures:
            texts.append("×".join(map(str, figures["median"])) + " pixels (median)")
            texts.append(", ".join(f"{mode} {count:,}" for mode, count in figures["modes"].items()))
        rows[domain] = "; ".join(texts)
    if "domains" in facts:
        count, known = len(facts["classes_seen_in_target"]), len(facts["source"]["classes"])
        rows["domains"] = facts["domains"]
        rows["κ of neighbours"] = f"{facts['neighbours_kappa']:.2f}"
        rows["target looks like"] = f"{count} of the source's {known} classes, roughly"
    for cost in facts.get("cost", ()):
        spent = f"about {in_words(cost['seconds'])} and {cost['gigabytes']:.1f} GB here"
        if cost["method"] == AUTO:
            rows["ba3us adapt"] = f"{spent}: the automatic choice"
        else:
            words = f"--method {cost['method']} --train {cost['train']}"
            rows[words] = f"{spent} with {cost['steps']:,} steps"
    table: RenderableType = "Nothing was found that speaks against training."
    if findings["findings"]:
        others = [f"{counts[level]} {level}{'s' * (counts[level] != 1)}" for level in ("warning", "note")]
        title = f"{counts['stop']} to stop for, {', '.join(others)}"
        table = Table("", "what was found", "what to do", title=title, show_lines=True)
        styles = {"stop": "bold red", "warning": "yellow", "note": ""}
        for finding in findings["findings"]:
            level = Text(finding["level"], styles[finding["level"]])
            table.add_row(level, finding["text"], finding["advice"])
    tables = Group(_pairs("The two domains", rows), "", table, *findings["passed_over"])
    show({"source": str(source), "target": str(target)} | findings, json, tables)


@app.command()
def report(
    path: Annotated[
        Path, typer.Argument(help="A folder that 'ba3us adapt' wrote, or the database of 'ba3us bench'.")
    ],
    out: Annotated[
        Path | None, option("Write the page to this file.", default="RUN/report.html, or beside the database")
    ] = None,
    labels: Annotated[
        Path | None,
        option("Read the target's labels, for accuracy: .npy, .npz, .csv, a list, or class folders."),
    ] = None,
    protocol: Annotated[
        str | None, option("Show the runs of this protocol, of a database.", default="the only one")
    ] = None,
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
        require(protocol is None, f"--protocol is for a database of runs, but {path} is not one: leave it out.")
        page = write_run_page(path, labels, out, show=not json)
    show({"page": str(page), "bytes": page.stat().st_size}, json)
    if not json:
        print(page)


@app.command()
@with_options("root", "device")
def predict(
    run: RunPath,
    data: Annotated[
        Path, typer.Argument(help="Data of the run's kind: .npz or .npy, or a folder or list of images.")
    ],
    out: Annotated[
        Path, option("Write a table with a row for each sample: .csv or .parquet.", "--out", "--csv")
    ],
    max_error: Annotated[
        float | None,
        option("Abstain so that at most this proportion of the other predictions is wrong.", default="0.05"),
    ] = None,
    json: Json = False,
    **options: Any,
) -> None:
    """Predict more data with a run's model: class, probability, calibrated confidence, whether to abstain."""
    from ba3us import adapt

    summary = adapt.predict(run, data, out, max_error=max_error, show=not json, **options)
    title = f"{summary['rows']} predictions in {visible(out)}"
    table = Table("class", "samples", title=title, caption=caption(summary))
    for row in sorted(summary["predicted"], key=lambda row: -row["rows"]):
        table.add_row(visible(row["class"]), str(row["rows"]))
    if summary["abstained"] is None:
        sentences = ["The run has no calibration: confidence and abstain are empty."]
    else:
        sentences = [
            f"At an error level of {100 * summary['max_error']:g} % the table abstains from "
            f"{summary['abstained']} of {summary['rows']} samples."
        ]
        if summary["cautions"]:
            sentences += ["No error level can be promised here.", *summary["cautions"]]
    show(summary, json, Group(table, "", " ".join(sentences)))


@app.command()
def export(
    run: RunPath,
    onnx: Annotated[Path, option("Write the model to this .onnx file.")],
    present_only: Annotated[
        bool, option("Keep only the classes that are present or uncertain.", "--present-only")
    ] = False,
    card: Annotated[
        Path | None, option("Write the model card to this file.", default="the .onnx file's name, .md")
    ] = None,
    json: Json = False,
) -> None:
    """Write a run's model as an ONNX file that needs neither torch nor ba3us, and a model card."""
    with moment("Loading torch", not json):
        from ba3us.export import export

    summary = export(run, onnx, present_only=present_only, card=card, show=not json)
    inputs = summary["input"]
    rows = {
        "size": f"{summary['bytes'] / 1e6:.1f} MB",
        "input": f"{inputs['name']}, {inputs['type']} [{', '.join(map(str, inputs['shape']))}]",
        "classes": str(len(summary["classes"])),
        "checked on": summary["checked_on"],
        "largest difference": f"{summary['largest_difference']:.1e} in a probability",
        "card": summary["card"],
    }
    show(summary, json, _pairs(summary["onnx"], rows))


@app.command()
@with_options("weights", "root", "classes", "cache_gb")
def embed(
    images: Annotated[
        Path, typer.Argument(help="A folder of class folders, a folder of images, or a list file.")
    ],
    out: Annotated[Path, option("Write the features to this .npz file.")],
    backbone: Annotated[
        str, option("Use this timm backbone; the paper's are resnet50.tv_in1k and vgg16.tv_in1k.")
    ] = "efficientnet_lite0",
    unlabelled: Annotated[bool, option("Take no labels from the folders.", "--unlabelled")] = False,
    workers: Annotated[int, option("Decode images in so many threads; 0: one per core.", min=0)] = 0,
    json: Json = False,
    **options: Any,
) -> None:
    """Turn images into features once: a .npz file for adapt, predict and bench."""
    from ba3us.embed import embed_to_file

    keep_memory()
    summary = embed_to_file(
        images,
        out,
        backbone=backbone,
        labelled=False if unlabelled else None,
        workers=workers or None,
        progress=not json,
        **options,
    )
    rows = {key.replace("_", " "): str(value) for key, value in summary.items() if value is not None}
    show(summary, json, _pairs("Features", rows))


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
        "default: published, or ba3us defaults and how many options differ. More: docs/methods.md, or --json."
    )
    table = Table(
        Column("name", no_wrap=True),
        *("title", "setting", "losses", "settings by default", "needs"),
        title=f"{len(rows)} methods",
        caption=caption,
    )
    for row in rows:
        columns = (row[column] for column in ("name", "title", "setting", "losses", "settings"))
        table.add_row(*columns, ", ".join(row["needs"]))
    show(rows, json, table)


def _pairs(title: str, rows: dict[str, str]) -> Table:
    table = Table("", "", title=title, show_header=False)
    for row in rows.items():
        table.add_row(*row)
    return table
