"""All commands but ``adapt``, ``bench`` and ``paper``: each calls the library and shows a summary."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ba3us.cli.adapt import caption
from ba3us.cli.app import Json, app, keep_memory, option, show
from ba3us.errors import require
from ba3us.progress import moment, visible

_STYLES = {"stop": "bold red", "warning": "yellow", "note": ""}

RunPath = Annotated[Path, typer.Argument(help="A folder that 'ba3us adapt' wrote.")]
Backbone = Annotated[str | None, option("Use this timm backbone.", default="efficientnet_lite0, offline")]
Weights = Annotated[
    Path | None, option("Load the backbone's weights from this file.", default="those of the backbone's name")
]
Root = Annotated[Path | None, option("Start the paths of list files here.", default="the list's folder")]
Classes = Annotated[
    Path | None, option("Read the class names of a list file, one per line.", default="its numbers")
]
Device = Annotated[str | None, option("Compute on auto, cpu or cuda.", default="auto")]


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
def check(
    source: Annotated[
        Path,
        typer.Argument(help="Labelled: a folder of class folders, a list file, .npz, or .npy with --labels."),
    ],
    target: Annotated[Path, typer.Argument(help="Unlabelled: a folder or list file of images, .npz or .npy.")],
    labels: Annotated[Path | None, option("Read the source's labels from this .npy file.")] = None,
    root: Root = None,
    classes: Classes = None,
    backbone: Backbone = None,
    weights: Weights = None,
    no_cost: Annotated[bool, option("Do not time training on this machine.", "--no-cost")] = False,
    workers: Annotated[
        int | None, option("Decode images in so many threads.", default="one per core", min=1)
    ] = None,
    cache_gb: Annotated[
        float | None, option("Let the cache hold so many GB; 0: keep none.", default="10")
    ] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Look for what could go wrong before training; findings are not an error (exit code 0)."""
    fields: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in locals().items()
        if value is not None and name not in ("json", "no_cost")
    }
    with moment("Loading torch", not json):
        from ba3us.check import check
        from ba3us.run.spec import Spec
    spec = Spec(**fields)
    if spec.kind == "images":
        keep_memory()
    findings = check(spec, show=not json, cost=not no_cost).summary()
    summary = {"source": str(source), "target": str(target)} | findings
    show(summary, json, _findings(summary))


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
    root: Root = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Predict more data with a run's model: class, probability, calibrated confidence, whether to abstain."""
    from ba3us import adapt

    summary = adapt.predict(run, data, out, root=root, device=device, max_error=max_error, show=not json)
    title = f"{summary['rows']} predictions in {visible(out)}"
    table = Table("class", "samples", title=title, caption=caption(summary))
    for row in sorted(summary["predicted"], key=lambda row: -row["rows"]):
        table.add_row(visible(row["class"]), str(row["rows"]))
    show(summary, json, Group(table, "", _abstained(summary)))


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
def embed(
    images: Annotated[
        Path, typer.Argument(help="A folder of class folders, a folder of images, or a list file.")
    ],
    out: Annotated[Path, option("Write the features to this .npz file.")],
    backbone: Annotated[
        str, option("Use this timm backbone; the paper's are resnet50.tv_in1k and vgg16.tv_in1k.")
    ] = "efficientnet_lite0",
    weights: Weights = None,
    root: Root = None,
    classes: Classes = None,
    unlabelled: Annotated[bool, option("Take no labels from the folders.", "--unlabelled")] = False,
    workers: Annotated[int, option("Decode images in so many threads; 0: one per core.", min=0)] = 0,
    cache_gb: Annotated[float, option("Let the cache of decoded images hold so many GB; 0: keep none.")] = 10.0,
    json: Json = False,
) -> None:
    """Turn images into features once: a .npz file for adapt, predict and bench."""
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
    table = Table(title=f"{len(rows)} methods", caption=caption)
    for column in (columns := ("name", "title", "setting", "losses", "settings", "needs")):
        table.add_column("settings by default" if column == "settings" else column, no_wrap=column == "name")
    for row in rows:
        table.add_row(*(", ".join(row[c]) if c == "needs" else row[c] for c in columns))
    show(rows, json, table)


# --- what is shown ------------------------------------------------------------------------------------------


def _pairs(title: str, rows: dict[str, str]) -> Table:
    table = Table("", "", title=title, show_header=False)
    for row in rows.items():
        table.add_row(*row)
    return table


def _findings(summary: dict[str, Any]) -> Group:
    """Show the figures of both domains, the findings, and which checks were left out."""
    counts = summary["counts"]
    others = [f"{counts[level]} {level}{'s' * (counts[level] != 1)}" for level in ("warning", "note")]
    title = f"{counts['stop']} to stop for, {', '.join(others)}"
    parts: list[RenderableType] = [_pairs("The two domains", _facts(summary["facts"])), ""]
    if summary["findings"]:
        table = Table("", "what was found", "what to do", title=title, show_lines=True)
        for finding in summary["findings"]:
            level = Text(finding["level"], _STYLES[finding["level"]])
            table.add_row(level, finding["text"], finding["advice"])
        parts.append(table)
    else:
        parts.append("Nothing was found that speaks against training.")
    return Group(*parts, *summary["passed_over"])


def _facts(facts: dict[str, Any]) -> dict[str, str]:
    rows = {domain: _domain(facts[domain]) for domain in ("source", "target")}
    if "domains" in facts:
        count, known = len(facts["classes_seen_in_target"]), len(facts["source"]["classes"])
        rows["domains"] = facts["domains"]
        rows["κ of neighbours"] = f"{facts['neighbours_kappa']:.2f}"
        rows["target looks like"] = f"{count} of the source's {known} classes, roughly"
    return rows | dict(_cost(cost) for cost in facts.get("cost", ()))


def _domain(facts: dict[str, Any]) -> str:
    texts = [
        f"{facts['images']:,} images" if "images" in facts else f"{facts['rows']:,} samples of {facts['shape']}"
    ]
    if counts := facts.get("classes"):
        texts.append(f"{len(counts)} classes of {min(counts.values()):,} to {max(counts.values()):,}")
    if "median" in facts:
        texts.append("×".join(map(str, facts["median"])) + " pixels (median)")
        texts.append(", ".join(f"{mode} {count:,}" for mode, count in facts["modes"].items()))
    return "; ".join(texts)


def _cost(cost: dict[str, Any]) -> tuple[str, str]:
    from ba3us.check.cost import in_words
    from ba3us.methods.auto import NAME as AUTO

    spent = f"about {in_words(cost['seconds'])} and {cost['gigabytes']:.1f} GB here"
    if cost["method"] == AUTO:
        return "ba3us adapt", f"{spent}: the automatic choice"
    return f"--method {cost['method']} --train {cost['train']}", f"{spent} with {cost['steps']:,} steps"


def _abstained(summary: dict[str, Any]) -> str:
    """Say for how many samples the table abstains, and whether the error level can be promised."""
    if summary["abstained"] is None:
        return "The run has no calibration: confidence and abstain are empty."
    sentences = [
        f"At an error level of {100 * summary['max_error']:g} % the table abstains from "
        f"{summary['abstained']} of {summary['rows']} samples."
    ]
    if summary["cautions"]:
        sentences += ["No error level can be promised here.", *summary["cautions"]]
    return " ".join(sentences)
