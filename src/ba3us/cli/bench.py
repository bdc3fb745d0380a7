"""``ba3us bench`` and ``ba3us paper``: many runs, their tables and figures."""

from __future__ import annotations

import functools
import inspect
import json as jsonlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ba3us.cli.app import Json, app, option, show
from ba3us.errors import require

_images = functools.partial(option, panel="Images")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of both commands; the defaults of those for images are the benchmark's."""

    root: Annotated[Path | None, option("Look for the data in this folder.")] = None
    tasks: Annotated[
        str | None, option("Run only these tasks, comma-separated: 'A->D,D->A'.", default="all")
    ] = None
    seeds: Annotated[int | None, option("Run this many seeds.", default="the protocol's", min=1)] = None
    steps: Annotated[int | None, option("Train every run for so many steps.")] = None
    settings: Annotated[
        list[str] | None, option("Set name=value for all methods, or method.name=value for one.", "--set")
    ] = None
    evaluate_every: Annotated[
        int | None,
        option(
            "Evaluate the target also every so many steps, for finer curves.",
            default="at refreshes only",
            min=1,
        ),
    ] = None
    workers: Annotated[int, option("Carry out so many runs at the same time; 0: one per core.", min=0)] = 0
    engine: Annotated[str, option("Use processes here (local) or the machines of a Ray cluster (ray).")] = (
        "local"
    )
    address: Annotated[
        str, option("Connect to this Ray cluster's head; auto: the cluster of this machine.")
    ] = "auto"
    backbone: Annotated[str | None, _images("Use this timm backbone.", default="the protocol's")] = None
    weights: Annotated[
        Path | None, _images("Load the backbone's weights from this .safetensors or .pth file.")
    ] = None
    train: Annotated[
        str | None,
        _images("Train the head, tail, all, or from a stage on.", default="head on a CPU, else tail"),
    ] = None
    views: Annotated[
        int | None,
        _images(
            "Keep so many augmented views where a part is frozen; 0: the centre.", default="head 0, else 4"
        ),
    ] = None
    size: Annotated[int | None, _images("Crop to this side in pixels.", default="the backbone's own")] = None
    device: Annotated[str | None, _images("Compute on auto, cpu or cuda.", default="auto")] = None
    precision: Annotated[str | None, _images("Train in float32, bfloat16 or float16.", default="float32")] = (
        None
    )
    cache_gb: Annotated[
        float | None, _images("Let each cache hold so many GB; 0: keep none.", default="10")
    ] = None
    skip_count_check: Annotated[
        bool, option("Run although samples may be missing; the tables say so.", "--skip-count-check")
    ] = False
    retry_failed: Annotated[bool, option("Run failed runs again.", "--retry-failed")] = False

    @property
    def image_settings(self) -> dict[str, Any]:
        """Fields of a spec for images, as far as they were given."""
        from ba3us.bench.jobs import IMAGE_FIELDS

        given = {name: getattr(self, name) for name in IMAGE_FIELDS}
        return {k: str(v) if isinstance(v, Path) else v for k, v in given.items() if v is not None}

    @property
    def method_options(self) -> dict[str, Any]:
        """Hyper-parameters of the methods."""
        from ba3us.methods.options import parse_options

        options = parse_options(self.settings or ())
        if self.steps is not None:
            message = f"--steps {self.steps} and --set steps are both given: leave one out."
            require("steps" not in options, message)
            options["steps"] = self.steps
        return options

    @property
    def cluster(self) -> str | None:
        """The address of the Ray cluster, if one is to be used."""
        require(self.engine in ("local", "ray"), f"Unknown engine {self.engine!r}: choose local or ray.")
        return self.address if self.engine == "ray" else None


def _with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `run` of a command by the fields of :class:`RunOptions`."""
    shared = inspect.signature(RunOptions, eval_str=True).parameters

    @functools.wraps(command)
    def called(**given: Any) -> None:
        run = RunOptions(**{name: given.pop(name) for name in shared})
        command(**given, run=run)

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        parameters += shared.values() if parameter.name == "run" else [parameter]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _exit_if_failed(failed: int, total: int) -> None:
    """End with exit code 1 if runs failed."""
    if failed:
        typer.echo(f"ba3us: {failed} of {total} runs failed: add --retry-failed to run them again.", err=True)
        raise typer.Exit(1)


@app.command()
@_with_run_options
def bench(
    *,
    protocol: Annotated[str, typer.Argument(help="Name a protocol that comes along, or a YAML file.")],
    methods: Annotated[
        str, option("Run these methods, comma-separated, or 'all'.")
    ] = "source-only,e-dann,ba3us",
    variants: Annotated[str | None, option("Run only these targets, comma-separated.", default="all")] = None,
    selection: Annotated[
        str | None, option("Choose checkpoints by these rules; the first leads.", default="the protocol's")
    ] = None,
    label: Annotated[str, option("Call the rows of tables so; {method} is replaced.")] = "{method}",
    out: Annotated[Path, option("Keep results in this database; finished runs are not run again.")] = Path(
        "runs/bench.sqlite"
    ),
    run: RunOptions,
    check: Annotated[
        bool, option("Compare the data with what is expected, and run nothing.", "--check")
    ] = False,
    sort: Annotated[bool, option("Put the best average first.", "--sort")] = False,
    form: Annotated[
        str | None,
        option(
            "Write terminal, markdown, latex, csv or html.",
            "--format",
            default="by the name of --write, else terminal",
        ),
    ] = None,
    write: Annotated[Path | None, option("Write the tables to this file.")] = None,
    page: Annotated[Path | None, option("Write a page with command, versions and tables (.md).")] = None,
    report: Annotated[Path | None, option("Write a page with tables and drawings (.html).")] = None,
    json: Json = False,
) -> None:
    """Run methods × tasks × seeds of a protocol; tables of accuracy by selection rule, cost and mistakes."""
    from ba3us import bench as benchmark
    from ba3us.data.writing import check_new_file, new_file

    if check:
        descriptions, problems = benchmark.check(protocol, run.root, run.tasks)
        show({"found": descriptions, "wrong": problems}, json)
        if not json:
            print("\n".join([*descriptions, *(problems or ["All is as expected."])]))
        raise typer.Exit(2 if problems else 0)
    require(page is None or page.suffix == ".md", f"--page {page} is not a .md file: give such a name.")
    form = benchmark.chosen_format(form, write)
    for file in (write, page):
        if file is not None:
            check_new_file(file)
    if report is not None:
        from ba3us.report.page import check_page

        check_page(report)
    study = benchmark.prepare(
        protocol,
        run.root,
        methods=methods,
        seeds=run.seeds,
        options=run.method_options,
        label=label,
        tasks=run.tasks,
        variants=variants,
        selection=selection,
        images=run.image_settings,
        skip_count_check=run.skip_count_check,
        evaluate_every=run.evaluate_every,
    )
    rows = benchmark.run(study, out, run.workers, run.retry_failed, not json, address=run.cluster)
    ordered = benchmark.ranked(rows, study.protocol.selection[0]) if sort else rows
    tables = benchmark.study_tables(study, ordered)
    text = benchmark.WRITERS[form](tables)
    for file, content in ((write, text), (page, benchmark.page(study, tables))):
        if file is not None:
            with new_file(file) as part:
                part.write_text(content, encoding="utf-8")
    if report is not None:
        from ba3us.bench.html_page import write_bench_page

        write_bench_page(study, ordered, tables, report)
    if json:
        show(jsonlib.loads(rows.to_json(orient="records")), json)
    elif write is None:
        print(text, end="")
    _exit_if_failed(benchmark.count_failed(rows), len(rows))


@app.command()
@_with_run_options
def paper(
    *,
    name: Annotated[str, typer.Argument(help="Name one of table1 … table6 or figure1 … figure5.")],
    out: Annotated[Path, option("Write tables and figures to this folder.")] = Path("paper"),
    db: Annotated[Path, option("Keep results in this database; finished runs are not run again.")] = Path(
        "runs/paper.sqlite"
    ),
    protocol: Annotated[str | None, option("Run another protocol in place of the paper's.")] = None,
    methods: Annotated[
        str | None, option("Run only these methods, comma-separated.", default="the paper's")
    ] = None,
    run: RunOptions,
    json: Json = False,
) -> None:
    """Write a table or figure of the BA³US paper from your data: runs what is missing, then the files."""
    from ba3us.paper.produce import Order, produce

    order = Order(
        out=out,
        database=db,
        root=run.root,
        protocol=protocol,
        tasks=run.tasks,
        methods=methods,
        seeds=run.seeds,
        options=run.method_options,
        evaluate_every=run.evaluate_every,
        images=run.image_settings,
        workers=run.workers,
        address=run.cluster,
        skip_count_check=run.skip_count_check,
        retry_failed=run.retry_failed,
        show=not json,
    )
    product = produce(name, order)
    files = [str(path) for path in product.files]
    table = Table("written")
    for file in files:
        table.add_row(file)
    show({"written": files}, json, table)
    _exit_if_failed(product.failed, product.runs)
