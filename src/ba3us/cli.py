"""The command line: it parses and calls, nothing more."""

from __future__ import annotations

import json as jsonlib
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ba3us.errors import UserError, require

app = typer.Typer(
    name="ba3us",
    help="Partial domain adaptation: for a target that holds only some of the source's classes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def main() -> None:
    """Entry point: bad input is one sentence on the standard error and exit code 2."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception, so that temporary files are removed
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
        Console(markup=False, emoji=False).print(table)  # names of files and classes are shown as they are


@app.command()
def demo(
    json: Json = False,
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 3,
    steps: Annotated[int, typer.Option(help="Updates after the warm start.", min=1)] = 600,
    workers: Annotated[int, typer.Option(help="Runs at the same time (0: one per core).", min=0)] = 0,
) -> None:
    """Adapt from MNIST (ten digits) to scikit-learn's digits 0-4: real data, no download, under two minutes."""
    from ba3us import demo as demos

    outcome = demos.run(seeds=seeds, steps=steps, workers=workers, quiet=json)
    show(outcome.payload(), json, outcome.table())


@app.command()
def adapt(
    source: Annotated[
        Path,
        typer.Argument(help="Labelled: a folder of class folders, a list file, .npz, or .npy with --labels."),
    ],
    target: Annotated[Path, typer.Argument(help="Unlabelled: a folder or list file of images, .npz or .npy.")],
    out: Annotated[Path, typer.Option(help="The run directory to write.")],
    method: Annotated[str, typer.Option(help="A name that 'ba3us methods' lists.")] = "ba3us",
    settings: Annotated[list[str] | None, typer.Option("--set", help="name=value for the method.")] = None,
    steps: Annotated[int, typer.Option(help="Updates of the network.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of initial weights, batches and dropout.")] = 0,
    labels: Annotated[Path | None, typer.Option(help="The source's labels, .npy.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads; results depend on them.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
    backbone: Annotated[
        str | None, typer.Option(help="Images: a timm name; efficientnet_lite0 (default) needs no network.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Images: the backbone's weights.")] = None,
    train: Annotated[
        str | None, typer.Option(help="Images: head, tail (default), all, or the stage to train from.")
    ] = None,
    views: Annotated[int | None, typer.Option(help="Images: views kept where a part is frozen (4).")] = None,
    size: Annotated[int | None, typer.Option(help="Images: side of the crops (the backbone's own).")] = None,
    ten_crop: Annotated[bool | None, typer.Option("--ten-crop", help="Images: for methods with views.")] = None,
    cache_gb: Annotated[float | None, typer.Option(help="Images: what the cache may hold (10).")] = None,
    precision: Annotated[str | None, typer.Option(help="Images: float32, bfloat16 or float16.")] = None,
    compile: Annotated[bool | None, typer.Option("--compile", help="Images: torch.compile.")] = None,
    workers: Annotated[int | None, typer.Option(help="Images: threads that decode.")] = None,
    root: Annotated[Path | None, typer.Option(help="Images: where the paths of list files start.")] = None,
    classes: Annotated[Path | None, typer.Option(help="Images: class names of a list file.")] = None,
    resume: Annotated[bool | None, typer.Option("--resume", help="Images: go on if interrupted.")] = None,
    accelerator: Annotated[
        str | None, typer.Option("--accelerator", "--device", help="auto, cpu or cuda.")
    ] = None,
    devices: Annotated[str | None, typer.Option(help="Processes per node: a number, or auto.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Machines that run this command together.")] = None,
    json: Json = False,
) -> None:
    """Adapt a classifier to a target; writes the model, predictions and which classes are present."""
    # torch warns of an option that a backbone with unused parameters needs
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from ba3us import image_runs, runs
    from ba3us.methods.options import parse_options
    from ba3us.training.devices import launched

    shown: dict[str, Any] = {"backbone": backbone, "weights": weights, "train": train, "views": views}
    shown |= {"size": size, "ten_crop": ten_crop, "cache_gb": cache_gb, "precision": precision}
    shown |= {"compile": compile, "workers": workers}
    given = {name: value for name, value in shown.items() if value is not None}
    listed: dict[str, Any] = {"root": root, "classes": classes, "resume": resume}
    asked = {name: value for name, value in listed.items() if value is not None}
    common: dict[str, Any] = {
        "method": method,
        "steps": steps,
        "options": parse_options(settings or ()),
        "seed": seed,
        "threads": threads,
        "overwrite": overwrite,
    }
    with launched(accelerator, devices, nodes) as team:
        common["verbose"] = team.first and not json
        if image_runs.are_images(source, target, {"labels": labels}, given | asked):
            options = image_runs.ImageOptions(device=accelerator or "auto", **given)
            summary = image_runs.adapt_images(source, target, out, images=options, **asked, **common)
        else:
            summary = runs.adapt(source, target, out, labels=labels, **common)
    if not team.first:
        return
    counts = len(summary["classes_present"]), len(summary["classes"])
    title = f"{summary['run']}: {counts[0]} of {counts[1]} classes are present"
    table = Table("class", "share of predictions", "mean probability", title=title, caption=_caption(summary))
    for row in sorted(summary["classes"], key=lambda row: -row["share"]):
        if row["present"]:
            table.add_row(str(row["class"]), f"{row['share']:.1%}", f"{row['mean_probability']:.1%}")
    show(summary, json, table)


def _caption(summary: dict[str, Any]) -> str | None:
    """What was left out, and what else somebody should know."""
    notes = list(summary.get("notes", ()))
    if count := summary.get("skipped"):
        were = "file was" if count == 1 else "files were"
        notes.append(f"{count} {were} left out: see {summary['skipped_file']}.")
    return " ".join(notes) or None


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="A folder that 'ba3us adapt' wrote.")],
    data: Annotated[
        Path, typer.Argument(help="What the run is on: .npz or .npy, or a folder or list of images.")
    ],
    csv: Annotated[
        Path, typer.Option("--csv", "--out", help="Where to write: row or path, class, probability.")
    ],
    root: Annotated[Path | None, typer.Option(help="Where the paths of a list file start.")] = None,
    json: Json = False,
) -> None:
    """Predict more data with the model of a run."""
    from ba3us import image_runs, runs

    if image_runs.is_image_run(run):
        summary = image_runs.predict_images(run, data, csv, root=root, verbose=not json)
    else:
        summary = runs.predict(run, data, csv)
    title = f"{summary['rows']} predictions in {summary['csv']}"
    table = Table("class", "rows", title=title, caption=_caption(summary))
    for row in sorted(summary["predicted"], key=lambda row: -row["rows"]):
        table.add_row(str(row["class"]), str(row["rows"]))
    show(summary, json, table)


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
    from ba3us.embedding import embed_to_file

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


@app.command()
def bench(
    protocol: Annotated[str, typer.Argument(help="The name of a protocol that comes along, or a YAML file.")],
    root: Annotated[Path | None, typer.Option(help="Folder of the data.")] = None,
    methods: Annotated[
        str, typer.Option(help="Names, comma-separated, or 'all'.")
    ] = "source-only,e-dann,ba3us",
    seeds: Annotated[int | None, typer.Option(help="How many (default: the protocol's).", min=1)] = None,
    tasks: Annotated[str | None, typer.Option(help="Only these, comma-separated: 'A->D,D->A'.")] = None,
    variants: Annotated[str | None, typer.Option(help="Only these targets, comma-separated.")] = None,
    steps: Annotated[int | None, typer.Option(help="Updates of every run.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="name=value for the methods, or method.name=value for one."),
    ] = None,
    selection: Annotated[
        str | None, typer.Option(help="Rules that choose a checkpoint; the first leads.")
    ] = None,
    label: Annotated[str, typer.Option(help="Row name in tables; {method} is replaced.")] = "{method}",
    out: Annotated[Path, typer.Option(help="Database of runs; finished ones are not run again.")] = Path(
        "runs/bench.sqlite"
    ),
    workers: Annotated[int, typer.Option(help="Runs at the same time (0: one per core).", min=0)] = 0,
    check: Annotated[
        bool, typer.Option("--check", help="Compare the data with what is expected; no run.")
    ] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed ones again.")] = False,
    sort: Annotated[bool, typer.Option("--sort", help="Best average first.")] = False,
    form: Annotated[
        str | None, typer.Option("--format", help="terminal, markdown, latex, csv or html.")
    ] = None,
    write: Annotated[Path | None, typer.Option(help="Write the tables to this file.")] = None,
    page: Annotated[
        Path | None, typer.Option(help="Write a page with command, versions and tables (.md).")
    ] = None,
    json: Json = False,
) -> None:
    """Run methods × tasks × seeds of a protocol; tables of accuracy by selection rule, cost and mistakes."""
    from ba3us import bench as benches
    from ba3us.data.writing import check_new_file, new_file
    from ba3us.methods.options import parse_options

    if check:
        found, wrong = benches.check(protocol, root, tasks)
        show({"found": found, "wrong": wrong}, json)
        if not json:
            print("\n".join([*found, *(wrong or ["All is as expected."])]))
        raise typer.Exit(2 if wrong else 0)
    options = parse_options(settings or ())
    require(
        steps is None or "steps" not in options, f"--steps {steps} stands beside --set steps: leave one out."
    )
    form = benches.chosen_format(form, write)
    for file in (write, page):
        if file is not None:
            check_new_file(file)
    study = benches.prepare(
        protocol,
        root,
        methods=methods,
        seeds=seeds,
        options=options | ({} if steps is None else {"steps": steps}),
        label=label,
        tasks=tasks,
        variants=variants,
        selection=selection,
    )
    rows = benches.run(study, out, workers, retry_failed, show=not json)
    made = benches.study_tables(study, rows, sort)
    text = benches.WRITERS[form](made)
    for file, content in ((write, text), (page, benches.page(study, made))):
        if file is not None:
            with new_file(file) as part:
                part.write_text(content, encoding="utf-8")
    if json:
        show(jsonlib.loads(rows.to_json(orient="records")), json)
    elif write is None:
        print(text, end="")


if __name__ == "__main__":
    main()
