"""``ba3us adapt``: fill in a spec from a file and options, train, write a run directory and show the result."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ba3us.cli.app import Json, app, keep_memory, option, show, with_options
from ba3us.errors import UserError, require
from ba3us.progress import moment, say, visible

_FEATURES, _IMAGES, _TRAINING, _DEVICES = "Features", "Images", "Training", "Devices"
_MAX_CLASSES = 30  # in the table
_AUTO_OPTIONS = ("preset", "time_limit", "force")


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
        Path | None, option("Write the run to this directory.", default="runs/NAME OF TARGET")
    ] = None,
    config: Annotated[
        Path | None,
        option("Read a spec in YAML, such as a run's spec.yaml; options given here replace its own."),
    ] = None,
    overwrite: Annotated[bool, option("Replace the run in --out.", "--overwrite")] = False,
    resume: Annotated[bool, option("Resume the interrupted run in --out.", "--resume")] = False,
    report: Annotated[
        bool, option("Write the page report.html into the run directory.", "--report/--no-report")
    ] = True,
    tensorboard: Annotated[
        Path | None, option("Write losses and label-free scores for TensorBoard to this folder.")
    ] = None,
    json: Json = False,
    method: Annotated[
        str | None,
        option(
            "Choose without labels (auto), or train a method of 'ba3us methods'.",
            default="auto",
            panel=_TRAINING,
        ),
    ] = None,
    preset: Annotated[
        str | None,
        option("Try one robust recipe (fast) or several (best); for auto.", default="fast", panel=_TRAINING),
    ] = None,
    time_limit: Annotated[
        float | None,
        option("Start no further candidate after so many seconds; for auto.", default="none", panel=_TRAINING),
    ] = None,
    force: Annotated[
        bool | None,
        option("Use the adapted model even without evidence; for auto.", "--force", panel=_TRAINING),
    ] = None,
    settings: Annotated[
        list[str] | None, option("Set an option of the method, name=value.", "--set", panel=_TRAINING)
    ] = None,
    steps: Annotated[
        int | None, option("Train for so many steps.", default="the method's", panel=_TRAINING)
    ] = None,
    protocol: Annotated[
        str | None,
        option("Use the settings published for a dataset, such as office31.", default="none", panel=_TRAINING),
    ] = None,
    task: Annotated[
        str | None, option("Use the settings of this task of the protocol, such as 'A->W'.", panel=_TRAINING)
    ] = None,
    selection: Annotated[
        str | None, option("Select the checkpoint by this rule.", default="entropy", panel=_TRAINING)
    ] = None,
    evaluate_every: Annotated[
        int | None,
        option("Evaluate the target also every so many steps.", default="at refreshes only", panel=_TRAINING),
    ] = None,
    standardize: Annotated[
        bool | None,
        option(
            "Standardise features by the source's columns, or leave them as they are.",
            "--standardize/--no-standardize",
            default="if far from unit scale",
            panel=_FEATURES,
        ),
    ] = None,
    seed: Annotated[
        int | None, option("Seed initial weights, batches and dropout.", default="0", panel=_TRAINING)
    ] = None,
    n_threads: Annotated[
        int | None,
        option(
            "Use so many CPU threads; results depend on them.", "--threads", default="torch's", panel=_TRAINING
        ),
    ] = None,
    on_nan: Annotated[
        str | None,
        option(
            "Stop when a loss is NaN or infinite, or retry from the last good state with a lower rate.",
            default="stop",
            panel=_TRAINING,
        ),
    ] = None,
    on_collapse: Annotated[
        str | None,
        option("Continue or stop when predictions fall onto few classes.", default="continue", panel=_TRAINING),
    ] = None,
    correct_prior: Annotated[
        bool | None,
        option(
            "Correct the classifier's prior by EM at the end; for mild shifts.",
            "--correct-prior",
            panel=_TRAINING,
        ),
    ] = None,
    labels: Annotated[
        Path | None, option("Read the source's labels from this .npy file.", panel=_FEATURES)
    ] = None,
    backbone: Annotated[
        str | None, option("Use this timm backbone.", default="efficientnet_lite0, offline", panel=_IMAGES)
    ] = None,
    weights: Annotated[
        Path | None, option("Load the backbone's weights from this .safetensors or .pth file.", panel=_IMAGES)
    ] = None,
    train: Annotated[
        str | None,
        option(
            "Train the head, tail, all, or from a stage on.", default="head on a CPU, else tail", panel=_IMAGES
        ),
    ] = None,
    views: Annotated[
        int | None,
        option(
            "Keep so many augmented views where a part is frozen; 0: the centre.",
            default="head 0, else 4",
            panel=_IMAGES,
        ),
    ] = None,
    size: Annotated[
        int | None, option("Crop to this side in pixels.", default="the backbone's own", panel=_IMAGES)
    ] = None,
    ten_crop: Annotated[
        bool | None, option("Offer ten crops to methods that refresh from them.", "--ten-crop", panel=_IMAGES)
    ] = None,
    root: Annotated[
        Path | None, option("Start the paths of list files here.", default="the list's folder", panel=_IMAGES)
    ] = None,
    classes: Annotated[
        Path | None, option("Read the class names of a list file, one per line.", panel=_IMAGES)
    ] = None,
    cache_gb: Annotated[
        float | None, option("Let the cache hold so many GB; 0: keep none.", default="10", panel=_IMAGES)
    ] = None,
    workers: Annotated[
        int | None, option("Decode images in so many threads.", default="one per core", panel=_IMAGES)
    ] = None,
    device: Annotated[
        str | None,
        option("Compute on auto, cpu or cuda.", "--device", "--accelerator", default="auto", panel=_DEVICES),
    ] = None,
    devices: Annotated[
        str | None, option("Start so many processes per node, or auto.", default="1", panel=_DEVICES)
    ] = None,
    nodes: Annotated[
        int | None, option("Run on so many machines together.", default="1", panel=_DEVICES)
    ] = None,
    precision: Annotated[
        str | None, option("Compute in float32, bfloat16 or float16.", default="float32", panel=_DEVICES)
    ] = None,
    compile: Annotated[
        bool | None, option("Compile the backbone with torch.compile.", "--compile", panel=_DEVICES)
    ] = None,
) -> None:
    """Adapt a classifier to a target; writes the model, predictions and which classes are present."""
    given = {name: value for name, value in locals().items() if value is not None}
    # torch warns of an option that a backbone with unused parameters needs
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    with moment("Loading torch", not json):
        from ba3us import adapt
        from ba3us.run.storage import can_go_on, check_outside
        from ba3us.training import TensorBoard
        from ba3us.training.distributed import launched

    spec = _spec(given)
    if spec.kind == "images":
        keep_memory()
    out = out or Path("runs") / Path(str(spec.target)).stem
    check_outside(out, [config])
    if tensorboard is not None:
        require(
            tensorboard.resolve() not in (out.resolve(), *out.resolve().parents),
            f"--tensorboard {tensorboard} is the output or holds it: give a folder of its own.",
        )
    try:
        with launched(spec.device, spec.devices, spec.nodes) as process_group:
            run = adapt.adapt(
                spec,
                out,
                overwrite=overwrite,
                resume=resume,
                callbacks=[] if tensorboard is None else [TensorBoard(tensorboard)],
                show=process_group.first and not json,
            )
    except (KeyboardInterrupt, SystemExit):
        command = ["ba3us", *(word for word in sys.argv[1:] if word != "--resume")]
        if can_go_on(out):
            say(f"Interrupted; go on with: {shlex.join([*command, '--resume'])}")
        else:
            say(f"Interrupted before anything was saved; start again with: {shlex.join(command)}")
        raise
    if process_group.first:
        page = _write_page(out, not json) if report else None
        summary = {"run": str(out), "page": page} | run.summary()
        show(summary, json, _tables(summary))


def _spec(given: dict[str, Any]) -> Any:
    """Fill in a spec: options that were given replace those of the file."""
    from ba3us.methods.auto import NAME as AUTO
    from ba3us.methods.options import parse_options
    from ba3us.run.spec import Spec

    options = parse_options(given.get("settings", ()))
    flags = {name: given[name] for name in ("steps", *_AUTO_OPTIONS) if name in given}
    for name in flags:
        require(name not in options, f"Both {_flag(name)} and --set {name}= are given: leave one out.")
    names = {field.name for field in dataclasses.fields(Spec)}
    fields: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value for name, value in given.items() if name in names
    }
    base = Spec.read(given["config"]) if "config" in given else Spec()
    if "protocol" in fields and base.method == AUTO:
        fields = {"method": "ba3us"} | fields  # auto has no published settings
    if base.method != fields.get("method", base.method) or "protocol" in fields:
        base = dataclasses.replace(base, method_params={})  # those of another method or protocol
    spec = dataclasses.replace(base, **fields, method_params=base.method_params | options | flags)
    for name in flags.keys() & set(_AUTO_OPTIONS):
        require(
            spec.method == AUTO,
            f"{_flag(name)} is for the automatic choice, but the method is {spec.method!r}: leave one out.",
        )
    return spec


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _write_page(out: Path, progress: bool) -> str | None:
    """Write the page of a run and return its path; a failure does not cost the run."""
    from ba3us.report import write_run_page

    try:
        return str(write_run_page(out, show=progress, quick=True))
    except UserError as error:
        say(f"The run is in {out}, but its page was not written: {with_options(str(error))}", progress)
        return None


def _tables(summary: dict[str, Any]) -> Group:
    """Show the verdict, the candidates and the classes that may be present."""
    parts: list[Any] = []
    if verdict := summary.get("verdict"):
        headline = f"Verdict: {verdict['outcome']}. Model used: {verdict['model_used']}."
        parts += [Text(headline, style="bold"), *map(visible, verdict["reasons"]), ""]
    if confidence := summary.get("confidence"):
        parts += [*confidence, ""]
    if leaderboard := summary.get("leaderboard"):
        candidates = Table("candidate", "κ of neighbours", "effective classes", "", title="What was tried")
        for row in leaderboard:
            figures = (row["kappa"], row["effective_classes"])
            texts = ("–" if f is None else f"{f:.{places}f}" for f, places in zip(figures, (2, 1)))
            candidates.add_row(
                row["candidate"], *texts, visible("chosen" if row["chosen"] else row["rejected_because"])
            )
        parts += [candidates, ""]
    parts.append(_class_table(summary))
    if summary["page"]:
        parts += ["", Text(f"Report: {visible(summary['page'])}", overflow="fold")]
    return Group(*parts)


def _class_table(summary: dict[str, Any]) -> Table:
    counts = {name: len(summary[name]) for name in ("classes", "classes_present", "classes_uncertain")}
    title = (
        f"{visible(summary['run'])}: of {counts['classes']} classes {counts['classes_present']} are present, "
        f"{counts['classes_uncertain']} uncertain"
    )
    table = Table("class", "proportion of the target", "95 %", "present", title=title, caption=caption(summary))
    rows = [row for row in summary["classes"] if row["present"] != "absent"]
    for row in sorted(rows, key=lambda row: -row["proportion"])[:_MAX_CLASSES]:
        interval = f"{row['low']:.1%} – {row['high']:.1%}"
        table.add_row(visible(row["class"]), f"{row['proportion']:.1%}", interval, row["present"])
    if len(rows) > _MAX_CLASSES:
        table.add_row("…", f"{len(rows) - _MAX_CLASSES} more in presence.csv", "", "")
    return table


def caption(summary: dict[str, Any]) -> str | None:
    """Say whose settings were used, what the run noted, and how many files were left out."""
    notes = [f"Settings: {summary['settings']}."] if "settings" in summary else []
    notes += summary.get("notes", ())
    if count := summary.get("skipped"):
        verb = "file was" if count == 1 else "files were"
        where = summary.get("skipped_file") or Path(summary["run"]) / "skipped.csv"
        notes.append(f"{count} {verb} left out: see {where}.")
    return visible(" ".join(notes)) or None
