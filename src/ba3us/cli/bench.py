"""``ba3us paper``."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ba3us.cli.app import Json, app, show
from ba3us.errors import require

# --- bench ------------------------------------------------------------------------------------------------
# ``ba3us bench``.


def _images(help: str) -> Any:
    return typer.Option(help=help, rich_help_panel="Images")


Backbone = Annotated[str | None, _images("A timm name (default: the protocol's).")]
Weights = Annotated[Path | None, _images("A .safetensors or .pth file with the backbone's weights.")]
Train = Annotated[str | None, _images("head (default on a CPU), tail, all, or the stage to train from.")]
Views = Annotated[int | None, _images("Views kept where a part is frozen; 0: the centre (head 0, else 4).")]
Size = Annotated[int | None, _images("Side of the crops (the backbone's own).")]
Device = Annotated[str | None, _images("auto, cpu or cuda.")]
Precision = Annotated[str | None, _images("What is trained computes in float32, bfloat16 or float16.")]
CacheGb = Annotated[float | None, _images("What each cache may hold; 0: none (10).")]
Engine = Annotated[str, typer.Option(help="local: processes here; ray: the machines of a Ray cluster.")]
Address = Annotated[str, typer.Option(help="Of the Ray cluster's head; auto: the one this machine is in.")]
Workers = Annotated[int, typer.Option(help="Runs at the same time (0: one per core).", min=0)]
Steps = Annotated[int | None, typer.Option(help="Updates of every run.")]
EvaluateEvery = Annotated[
    int | None,
    typer.Option(help="Look at the target also every so many updates (at every refresh): finer curves.", min=1),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="name=value for the methods, or method.name=value for one.")
]
SkipCountCheck = Annotated[
    bool, typer.Option("--skip-count-check", help="Run although samples may be missing; the tables say so.")
]


def of_images(typed: dict[str, Any]) -> dict[str, Any]:
    """The fields of a spec, for images, that were typed."""
    from ba3us.bench.jobs import FIELDS

    fields = {name: typed[name] for name in FIELDS if typed[name] is not None}
    return {name: str(value) if isinstance(value, Path) else value for name, value in fields.items()}


def all_options(settings: list[str] | None, steps: int | None) -> dict[str, Any]:
    """Hyper-parameters as they were typed."""
    from ba3us.methods.base import parse_options

    options = parse_options(settings or ())
    require(
        steps is None or "steps" not in options, f"--steps {steps} stands beside --set steps: leave one out."
    )
    return options | ({} if steps is None else {"steps": steps})


def chosen_address(engine: str, address: str) -> str | None:
    """The cluster's, if one is to be used."""
    require(engine in ("local", "ray"), f"Unknown engine {engine!r}: choose local or ray.")
    return address if engine == "ray" else None


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
    steps: Steps = None,
    settings: Settings = None,
    evaluate_every: EvaluateEvery = None,
    selection: Annotated[
        str | None, typer.Option(help="Rules that choose a checkpoint; the first leads.")
    ] = None,
    label: Annotated[str, typer.Option(help="Row name in tables; {method} is replaced.")] = "{method}",
    out: Annotated[Path, typer.Option(help="Database of runs; finished ones are not run again.")] = Path(
        "runs/bench.sqlite"
    ),
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
    skip_count_check: SkipCountCheck = False,
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
    report: Annotated[Path | None, typer.Option(help="Write a page with tables and drawings (.html).")] = None,
    json: Json = False,
) -> None:
    """Run methods × tasks × seeds of a protocol; tables of accuracy by selection rule, cost and mistakes."""
    seen = of_images(locals())
    from ba3us import bench as benches
    from ba3us.data.writing import check_new_file, new_file

    if check:
        found, wrong = benches.check(protocol, root, tasks)
        show({"found": found, "wrong": wrong}, json)
        if not json:
            print("\n".join([*found, *(wrong or ["All is as expected."])]))
        raise typer.Exit(2 if wrong else 0)
    require(page is None or page.suffix == ".md", f"--page {page} is no .md file: give such a name.")
    form = benches.chosen_format(form, write)
    for file in (write, page):
        if file is not None:
            check_new_file(file)
    if report is not None:
        from ba3us.report.page import check_page

        check_page(report)
    study = benches.prepare(
        protocol,
        root,
        methods=methods,
        seeds=seeds,
        options=all_options(settings, steps),
        label=label,
        tasks=tasks,
        variants=variants,
        selection=selection,
        images=seen,
        skip_count_check=skip_count_check,
        evaluate_every=evaluate_every,
    )
    rows = benches.run(study, out, workers, retry_failed, not json, address=chosen_address(engine, address))
    ordered = benches.ranked(rows, study.protocol.selection[0]) if sort else rows
    made = benches.study_tables(study, ordered)
    text = benches.WRITERS[form](made)
    for file, content in ((write, text), (page, benches.page(study, made))):
        if file is not None:
            with new_file(file) as part:
                part.write_text(content, encoding="utf-8")
    if report is not None:
        from ba3us.report import write_bench_page

        write_bench_page(study, ordered, made, report)
    if json:
        show(jsonlib.loads(rows.to_json(orient="records")), json)
    elif write is None:
        print(text, end="")


# --- paper ------------------------------------------------------------------------------------------------
# ``ba3us paper``.


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
    skip_count_check: SkipCountCheck = False,
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
        skip_count_check=skip_count_check,
        show=not json,
    )
    files = [str(path) for path in produce(name, order)]
    table = Table("written")
    for file in files:
        table.add_row(file)
    show({"written": files}, json, table)
