"""``ba3us adapt``: fill in a spec from a file and options, train, write a run directory and show the result."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ba3us.cli.app import LABELLED, UNLABELLED, Json, app, keep_memory, option, option_names, show
from ba3us.cli.options import with_options
from ba3us.errors import UserError, require
from ba3us.progress import moment, say, visible

_MAX_CLASSES = 30  # in the table
_AUTO_OPTIONS = ("preset", "time_limit", "force")


@app.command()
@with_options()
def adapt(
    source: Annotated[Path | None, LABELLED] = None,
    target: Annotated[Path | None, UNLABELLED] = None,
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
    **options: Any,
) -> None:
    """Adapt a classifier to a target; writes the model, predictions and which classes are present."""
    # torch warns of an option that a backbone with unused parameters needs
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    with moment("Loading torch", not json):
        from ba3us import adapt
        from ba3us.run.storage import can_go_on, check_outside
        from ba3us.training import TensorBoard
        from ba3us.training.distributed import launched

    data = {"source": source, "target": target}
    spec = _spec(config, options | {name: str(path) for name, path in data.items() if path is not None})
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
    if not process_group.first:
        return
    page = None
    if report:
        from ba3us.report import write_run_page

        try:
            page = str(write_run_page(out, show=not json, quick=True))
        except UserError as error:  # does not cost the run
            say(f"The run is in {out}, but its page was not written: {option_names(str(error))}", not json)
    summary = {"run": str(out), "page": page} | run.summary()
    show(summary, json, _tables(summary))


def _spec(config: Path | None, given: dict[str, Any]) -> Any:
    """Fill in a spec: options that were given replace those of the file."""
    from ba3us.methods.auto import NAME as AUTO
    from ba3us.methods.options import parse_options
    from ba3us.run.spec import Spec

    options = parse_options(given.get("settings", ()))
    for name in ("steps", *_AUTO_OPTIONS):
        if name in given:
            require(name not in options, f"Both `{name}` and --set {name}= are given: leave one out.")
            options[name] = given[name]
    fields = {field.name: given[field.name] for field in dataclasses.fields(Spec) if field.name in given}
    base = Spec() if config is None else Spec.read(config)
    if "protocol" in fields and base.method == AUTO:
        fields = {"method": "ba3us"} | fields  # auto has no published settings
    if base.method != fields.get("method", base.method) or "protocol" in fields:
        base = dataclasses.replace(base, method_params={})  # those of another method or protocol
    spec = dataclasses.replace(base, **fields, method_params=base.method_params | options)
    for name in given.keys() & set(_AUTO_OPTIONS):
        require(
            spec.method == AUTO,
            f"`{name}` is for the automatic choice, but the method is {spec.method!r}: leave one out.",
        )
    return spec


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
    parts.append(table)
    if summary["page"]:
        parts += ["", Text(f"Report: {visible(summary['page'])}", overflow="fold")]
    return Group(*parts)


def caption(summary: dict[str, Any]) -> str | None:
    """Say whose settings were used, what the run noted, and how many files were left out."""
    notes = [f"Settings: {summary['settings']}."] if "settings" in summary else []
    notes += summary.get("notes", ())
    if count := summary.get("skipped"):
        verb = "file was" if count == 1 else "files were"
        where = summary.get("skipped_file") or Path(summary["run"]) / "skipped.csv"
        notes.append(f"{count} {verb} left out: see {where}.")
    return visible(" ".join(notes)) or None
