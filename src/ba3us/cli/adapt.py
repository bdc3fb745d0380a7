"""``ba3us adapt``."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ba3us.cli.app import Json, app, keep_memory, show, with_options
from ba3us.errors import UserError, require
from ba3us.progress import moment, say, visible


def _option(group: str, help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=group)


_DATA, _IMAGES, _TRAINING, _DEVICES = "Features", "Images", "Training", "Devices"
_MOST = 30  # classes shown
_OF_AUTO = ("preset", "time_limit", "force")
_NOT_SPEC = (
    "config",
    "out",
    "overwrite",
    "resume",
    "report",
    "tensorboard",
    "json",
    "settings",
    "steps",
    *_OF_AUTO,
)


@app.command()
def adapt(
    source: Annotated[
        Path | None,
        typer.Argument(help="Labelled: a folder of class folders, a list file, .npz, or .npy with --labels."),
    ] = None,
    target: Annotated[
        Path | None, typer.Argument(help="Unlabelled: a folder or list file of images, .npz or .npy.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run directory to write (default: runs/NAME OF TARGET).")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A spec in YAML, such as a run's spec.yaml; options here go over it.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where the run in --out was interrupted.")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Write the page report.html into the run directory.")
    ] = True,
    tensorboard: Annotated[
        Path | None, typer.Option(help="A folder for TensorBoard: losses and label-free scores as they come.")
    ] = None,
    json: Json = False,
    method: Annotated[
        str | None, _option(_TRAINING, "auto (the default), or a name that 'ba3us methods' lists.")
    ] = None,
    preset: Annotated[str | None, _option(_TRAINING, "Of auto: fast (the default) or best.")] = None,
    time_limit: Annotated[
        float | None, _option(_TRAINING, "Of auto: begin no further system after so many seconds.")
    ] = None,
    force: Annotated[
        bool | None, _option(_TRAINING, "Of auto: serve what was adapted even without evidence.", "--force")
    ] = None,
    settings: Annotated[list[str] | None, _option(_TRAINING, "name=value for the method.", "--set")] = None,
    steps: Annotated[int | None, _option(_TRAINING, "Updates of the network.")] = None,
    protocol: Annotated[str | None, _option(_TRAINING, "Settings published for a dataset: office31, …")] = None,
    task: Annotated[str | None, _option(_TRAINING, "One of the protocol's tasks, such as 'A->W'.")] = None,
    selection: Annotated[str | None, _option(_TRAINING, "Which checkpoint is kept (default: entropy).")] = None,
    evaluate_every: Annotated[
        int | None, _option(_TRAINING, "Look at the target also every so many updates (at every refresh).")
    ] = None,
    standardize: Annotated[
        bool | None, _option(_DATA, "Scale columns by the source's (default: if they are far from unit scale).")
    ] = None,
    seed: Annotated[int | None, _option(_TRAINING, "Of initial weights, batches and dropout (0).")] = None,
    n_threads: Annotated[
        int | None, _option(_TRAINING, "CPU threads; results depend on them.", "--threads")
    ] = None,
    on_nan: Annotated[
        str | None,
        _option(
            _TRAINING, "When a loss is no number: stop (default), or retry from the last good state, slower."
        ),
    ] = None,
    on_collapse: Annotated[
        str | None,
        _option(_TRAINING, "When predictions fall onto few classes: continue (default) or stop; it is said."),
    ] = None,
    correct_prior: Annotated[
        bool | None,
        _option(
            _TRAINING, "In the end, put the classifier's prior right by EM (mild shifts).", "--correct-prior"
        ),
    ] = None,
    labels: Annotated[Path | None, _option(_DATA, "The source's labels, .npy.")] = None,
    backbone: Annotated[
        str | None, _option(_IMAGES, "A timm name; efficientnet_lite0, the default, needs no network.")
    ] = None,
    weights: Annotated[Path | None, _option(_IMAGES, "The backbone's weights.")] = None,
    train: Annotated[
        str | None, _option(_IMAGES, "head (default on a CPU), tail, all, or the stage to train from.")
    ] = None,
    views: Annotated[
        int | None, _option(_IMAGES, "Views kept where a part is frozen; 0: the centre (head 0, else 4).")
    ] = None,
    size: Annotated[int | None, _option(_IMAGES, "Side of the crops (the backbone's own).")] = None,
    ten_crop: Annotated[bool | None, _option(_IMAGES, "For methods with views.", "--ten-crop")] = None,
    root: Annotated[Path | None, _option(_IMAGES, "Where the paths of list files start.")] = None,
    classes: Annotated[Path | None, _option(_IMAGES, "Class names of a list file.")] = None,
    cache_gb: Annotated[float | None, _option(_IMAGES, "What the cache may hold; 0: none (10).")] = None,
    workers: Annotated[int | None, _option(_IMAGES, "Threads that decode.")] = None,
    device: Annotated[str | None, _option(_DEVICES, "auto, cpu or cuda.", "--device", "--accelerator")] = None,
    devices: Annotated[str | None, _option(_DEVICES, "Processes per node: a number, or auto.")] = None,
    nodes: Annotated[int | None, _option(_DEVICES, "Machines that run this command together.")] = None,
    precision: Annotated[str | None, _option(_DEVICES, "float32, bfloat16 or float16.")] = None,
    compile: Annotated[bool | None, _option(_DEVICES, "torch.compile.", "--compile")] = None,
) -> None:
    """Adapt a classifier to a target; writes the model, predictions and which classes are present."""
    given = {k: v for k, v in locals().items() if v is not None}
    asked = {k: v for k, v in given.items() if k not in _NOT_SPEC}
    # torch warns of an option that a backbone with unused parameters needs
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    with moment("Loading torch", not json):
        from ba3us import adapt
        from ba3us.run.storage import can_go_on, check_outside
        from ba3us.training import TensorBoard
        from ba3us.training.distributed import launched

    named = {k: given[k] for k in ("steps", *_OF_AUTO) if k in given}
    spec = _spec(asked, config, settings, named)
    if spec.kind == "images":
        keep_memory()
    out = out or Path("runs") / Path(str(spec.target)).stem
    check_outside(out, [config])
    try:
        with launched(spec.device, spec.devices, spec.nodes) as process_group:
            require(
                tensorboard is None
                or Path(tensorboard).resolve() not in (out.resolve(), *out.resolve().parents),
                f"--tensorboard {tensorboard} is the output or holds it: give a folder of its own.",
            )
            callbacks = [] if tensorboard is None else [TensorBoard(tensorboard)]
            how: dict[str, Any] = {"overwrite": overwrite, "resume": resume, "callbacks": callbacks}
            run = adapt.adapt(spec, out, **how, show=process_group.first and not json)
    except (KeyboardInterrupt, SystemExit):
        again = ["ba3us", *(a for a in sys.argv[1:] if a != "--resume")]
        if can_go_on(out):
            say(f"Interrupted; go on with: {shlex.join([*again, '--resume'])}")
        else:
            say(f"Interrupted before anything was saved; start again with: {shlex.join(again)}")
        raise
    if process_group.first:
        page = _page(out, not json) if report else None
        summary = {"run": str(out), "page": page} | run.summary()
        show(summary, json, _table(summary))


def _page(out: Path, shown: bool) -> str | None:
    """Where the run's page is; a run without one is whole all the same."""
    from ba3us.report import write_run_page

    try:
        return str(write_run_page(out, show=shown, quick=True))
    except UserError as error:
        say(f"The run is in {out}, but its page was not written: {with_options(str(error))}", shown)
        return None


def _spec(asked: dict[str, Any], config: Path | None, settings: list[str] | None, named: dict[str, Any]) -> Any:
    """What was typed, over what a file says."""
    import dataclasses

    from ba3us.methods.auto import NAME as AUTO
    from ba3us.methods.base import parse_options
    from ba3us.run.spec import Spec

    options = parse_options(settings or ())
    for name in named:
        flag = name.replace("_", "-")
        require(name not in options, f"Both --{flag} and --set {name}= are given: leave one out.")
    options |= named
    typed: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value for name, value in asked.items()
    }
    base = Spec() if config is None else Spec.read(config)
    if "protocol" in typed and base.method == AUTO:
        typed = {"method": "ba3us"} | typed  # whose settings are published
    if base.method != typed.get("method", base.method) or "protocol" in typed:
        base = dataclasses.replace(base, method_params={})  # those of another method, or of our own
    spec = dataclasses.replace(base, **typed, method_params=base.method_params | options)
    for name in _OF_AUTO:
        flag = name.replace("_", "-")
        require(
            spec.method == AUTO or name not in named,
            f"--{flag} is for the automatic choice, but the method is {spec.method!r}: leave one of them out.",
        )
    return spec


def _table(summary: dict[str, Any]) -> Group:
    """The verdict in words, what was tried, and the classes that may be there."""
    parts: list[Any] = []
    ending: list[Any] = []
    if said := summary.get("verdict"):
        parts += [
            Text(f"Verdict: {said['outcome']}. Served: {said['model_used']}.", style="bold"),
            *map(visible, said["reasons"]),
            "",
        ]
    if sure := summary.get("confidence"):
        parts += [*sure, ""]
    if board := summary.get("leaderboard"):
        tried = Table("system", "κ of neighbours", "effective classes", "", title="What was tried")
        for row in board:
            why = "chosen" if row["chosen"] else row["against"]
            figures = (row["kappa"], row["effective_classes"])
            texts = ("–" if f is None else f"{f:.{places}f}" for f, places in zip(figures, (2, 1)))
            tried.add_row(row["member"], *texts, visible(why))
        parts += [tried, ""]
    counts = len(summary["classes_present"]), len(summary["classes_uncertain"]), len(summary["classes"])
    title = f"{visible(summary['run'])}: of {counts[2]} classes {counts[0]} are present, {counts[1]} unsure"
    table = Table("class", "share of the target", "95 %", "present", title=title, caption=caption(summary))
    shown = [row for row in summary["classes"] if row["present"] != "absent"]
    for row in sorted(shown, key=lambda row: -row["proportion"])[:_MOST]:
        interval = f"{row['low']:.1%} – {row['high']:.1%}"
        table.add_row(visible(row["class"]), f"{row['proportion']:.1%}", interval, row["present"])
    if len(shown) > _MOST:
        table.add_row("…", f"{len(shown) - _MOST} more in presence.csv", "", "")
    if summary["page"]:
        ending = ["", Text(f"The page to look at: {visible(summary['page'])}", overflow="fold")]
    return Group(*parts, table, *ending)


def caption(summary: dict[str, Any]) -> str | None:
    """Whose settings, what was left out, and what else somebody should know."""
    notes = [f"Settings: {summary['settings']}."] if "settings" in summary else []
    notes += summary.get("notes", ())
    if count := summary.get("skipped"):
        were = "file was" if count == 1 else "files were"
        where = summary.get("skipped_file") or Path(summary["run"]) / "skipped.csv"
        notes.append(f"{count} {were} left out: see {where}.")
    return visible(" ".join(notes)) or None
