"""The page of a benchmark: the study's tables, and drawings of what stands in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from ba3us import bench
from ba3us.bench import Database, read_protocol, shipped
from ba3us.bench import tables as measured
from ba3us.errors import did_you_mean, require
from ba3us.report import charts
from ba3us.report.page import (
    Chart,
    Charts,
    Code,
    Page,
    Part,
    Section,
    Table,
    Verdict,
    Words,
    check_page,
    write_page,
)
from ba3us.report.run_report import SPACE, counted, listed

# --- stored -----------------------------------------------------------------------------------------------
# A study read back from a database of runs, which may hold several protocols and several settings.


_UNIT = ["label", "task", "variant", "seed"]


@dataclass(frozen=True)
class Stored:
    """Runs of one protocol, and what is known of it."""

    rows: pd.DataFrame
    title: str
    selection: tuple[str, ...]
    paper: str | None
    notes: list[str]
    versions: str


def read_database(path: Path, protocol: str | None = None) -> Stored:
    """The runs of a protocol; it must be named where there are several."""
    require(path.is_file(), f"There is no database {path}: give a file that ba3us bench wrote.")
    with Database(path) as database:
        rows, specs = database.table().sort_values("finished", kind="stable"), database.specs()
    names = sorted(rows["protocol"].unique())
    require(bool(names), f"There is no run in {path}: run ba3us bench with `out` {path} first.")
    require(
        protocol in names or (protocol is None and len(names) == 1),
        f"{path} has no runs of {protocol!r}: {did_you_mean(protocol, names)}"
        if protocol is not None
        else f"{path} has runs of several protocols: choose one with `protocol`: {', '.join(names)}.",
    )
    name = protocol or names[0]
    rows = rows[rows["protocol"] == name].reset_index(drop=True)
    own = [specs[key] for key in rows["key"]]
    rows, notes = _told_apart(rows, own)
    known = read_protocol(name) if name in shipped() else None
    if known is None or not set(rows["task"]) <= {task.name for task in known.tasks}:  # somebody's own
        return Stored(rows, name, ("entropy",), None, notes, _versions(own))
    return Stored(rows, known.title, known.selection, known.paper, notes, _versions(own))


def _told_apart(rows: pd.DataFrame, specs: list[dict[str, Any]]) -> tuple[pd.DataFrame, list[str]]:
    """Runs of one label, task and seed that differ in settings are other systems: labelled by what differs."""
    flat = pd.DataFrame([_flat(spec) for spec in specs], index=rows.index).map(repr)
    labels = rows["label"].tolist()
    for label in dict.fromkeys(labels):
        part = rows[rows["label"] == label]
        same = flat.loc[part.index].groupby([part[name] for name in _UNIT])
        differ = [str(name) for name, many in (same.nunique() > 1).any().items() if many]
        for row in part.index if differ else ():
            shown = ", ".join(f"{name}={flat.at[row, name]!s}" for name in differ)
            labels[row] = f"{label} ({shown})"
    changed = sorted({before for before, now in zip(rows["label"], labels) if before != now})
    said = f"The database has runs of {', '.join(changed)} with several settings: each is a row of its own."
    return rows.assign(label=labels), [said] if changed else []


def _flat(spec: dict[str, Any], start: str = "") -> dict[str, Any]:
    """What a run depends on as one level of names; the seed is told apart anyway."""
    flat: dict[str, Any] = {}
    for name, value in spec.items():
        if isinstance(value, dict):
            flat |= _flat(value, "" if name == "options" else f"{name} ")
        elif name != "seed":
            flat[f"{start}{name}"] = value
    return flat


def _versions(specs: list[dict[str, Any]]) -> str:
    found = {", ".join(f"{name} {version}" for name, version in spec["versions"].items()) for spec in specs}
    return "; ".join(sorted(found))


# --- bench page -------------------------------------------------------------------------------------------
# The page of a benchmark: the study's tables, and drawings of what stands in them.


_MARKS = {"best": "<b>{}</b>", "second": "<u>{}</u>", "": "{}"}
_MOST_SMALL = 12  # systems up to which the tasks are drawn small


@dataclass(frozen=True)
class Measured:
    """Runs of a study, the rule that tasks are compared by, the tables, and where they come from."""

    title: str
    rows: pd.DataFrame
    rule: str
    tables: Sequence[measured.Table]
    versions: str
    command: str = ""

    @property
    def fine(self) -> pd.DataFrame:
        """Runs that ended well."""
        return self.rows[self.rows["outcome"] == "ok"]

    @property
    def labels(self) -> list[str]:
        """The systems, in the order of the tables."""
        return self.rows["label"].unique().tolist()

    @property
    def baseline(self) -> str | None:
        """What source-only is called here, if it is there."""
        return next(iter(self.rows["label"][self.rows["method"] == measured.BASELINE]), None)


def write_bench_page(
    study: bench.Study, rows: pd.DataFrame, tables: Sequence[measured.Table], out: str | Path
) -> Path:
    """Write the page of a study that has just been run."""
    command, versions = bench.made_by(study)
    known = Measured(study.protocol.title, rows, study.protocol.selection[0], tables, versions, command)
    return _write(known, Path(out))


def write_database_page(
    database: str | Path, protocol: str | None = None, out: str | Path | None = None
) -> Path:
    """Write the page of the runs in a database; by default beside it, with ``.html`` for its ending."""
    found = read_database(Path(database), protocol)
    rows = measured.ranked(found.rows, found.selection[0])
    made = measured.tables(rows, found.title, found.selection, found.paper, found.notes)
    known = Measured(found.title, rows, found.selection[0], made, found.versions)
    return _write(known, Path(out) if out is not None else Path(database).with_suffix(".html"))


def _write(known: Measured, out: Path) -> Path:
    check_page(out)
    write_page(bench_page(known), out)
    return out


def bench_page(known: Measured) -> Page:
    """Everything that was measured."""
    tasks, seeds = known.rows["task"].nunique(), known.rows["seed"].nunique()
    counts = [
        counted(len(known.labels), "system"),
        counted(tasks, "task"),
        counted(seeds, "seed"),
        counted(len(known.rows), "run"),
    ]
    by_name = [
        _tables_section(known),
        Section("tasks", "Accuracy on each task", _tasks(known)),
        Section("gain", "Gain over source-only, and cost", _gain_and_cost(known)),
        _failed_section(known),
        _about_section(known),
    ]
    return Page(
        title=known.title,
        subtitle=" · ".join(counts),
        lead=[_answer(known)],
        sections=[section for section in by_name if section is not None],
        footer="Everything is in this one file; it loads nothing.",
    )


# --- words and tables ---------------------------------------------------------------------------------------


def _answer(known: Measured) -> Verdict:
    """Who is best, and who can't be told apart from it."""
    average, spread = _averages(known)
    failed = int((known.rows["outcome"] == "failed").sum())
    reasons = [f"{failed} of {len(known.rows)} runs failed: see below."] if failed else []
    if average.notna().sum() == 0:
        return Verdict("plain", "No system has finished every task.", reasons)
    best = str(average.idxmax())
    near = [row[0].text for row in known.tables[1].rows if row[-1].near]
    if near:
        reasons.insert(0, f"Not told apart from it: {listed(near)} (paired test, p ≥ {measured.LEVEL}).")
    shown = [label for label in dict.fromkeys((best, known.baseline)) if label is not None]
    figures = [(label, f"{average[label]:.1f} ± {spread[label]:.1f}{SPACE}%") for label in shown]
    return Verdict("plain", f"{best} has the best average over the tasks, by {known.rule}.", reasons, figures)


def _tables_section(known: Measured) -> Section:
    said: set[str] = set()
    parts: list[Part] = []
    for table in known.tables[:2]:
        rows = [[_cell(cell) for cell in row] for row in table.rows]
        notes = [note for note in table.notes if note not in said]
        parts.append(
            Table(table.title, table.columns, rows, range(1, len(table.columns)), notes=notes, fold=60)
        )
        said.update(notes)
    return Section("tables", "Tables", parts)


def _cell(cell: measured.Cell) -> Markup:
    near = " ≈" if cell.near else ""
    return Markup(_MARKS[cell.mark]).format(escape(cell.text)) + near


def _failed_section(known: Measured) -> Section | None:
    """The last of the tables, where there is one."""
    parts = [
        Table(t.title, t.columns, [[c.text for c in row] for row in t.rows], fold=60) for t in known.tables[2:]
    ]
    return Section("failed", "Failed runs", parts) if parts else None


def _about_section(known: Measured) -> Section:
    parts: list[Part] = [Words(f"Versions: {known.versions}.")]
    if known.command:
        parts = [Code(known.command), *parts]
    return Section("made", "How it was made", parts)


# --- drawings -----------------------------------------------------------------------------------------------


def _averages(known: Measured) -> tuple[pd.Series, pd.Series]:
    """Mean over tasks and its spread over seeds, in %."""
    values = measured.by_unit(known.fine, [known.rule])[known.rule]
    average, spread = measured.averages(known.rows, values)
    return 100 * average, 100 * spread


def _tasks(known: Measured) -> list[Part]:
    """A drawing per task: every seed, and their mean."""
    values = 100 * measured.over_variants(measured.by_unit(known.fine, [known.rule])[known.rule])
    made, small = [], len(known.labels) <= _MOST_SMALL
    for task in known.rows["task"].unique():
        rows = []
        for label in known.labels:
            own = values[(values.index.get_level_values("label") == label)
                         & (values.index.get_level_values("task") == task)]  # fmt: skip
            marks = [charts.Mark(v, f"seed {seed}: {v:.1f} %") for (_, _, seed), v in own.items()]
            rows.append(charts.Row(label, marks, own.mean() if len(own) else float("nan")))
        base = next((r.mean for r in rows if r.name == known.baseline and r.marks), None)
        best = max((r for r in rows if r.marks), key=lambda r: r.mean or 0.0, default=None)
        said = "No run has finished." if best is None else f"Best mean: {best.name}, {best.mean:.1f} %."
        name = str(task).replace("->", " → ")
        made.append(charts.strips(name, said, rows, "accuracy (%)", reference=base, small=small))
    words = (
        f"Squares are means over seeds, dots the single seeds, by {known.rule}. The upright line is "
        "source-only's mean. Axes differ from task to task."
    )
    return [Words(words), Charts(made, small=small)]


def _gain_and_cost(known: Measured) -> list[Part]:
    gain, cost = _gain(known), _cost(known)
    if gain is None:
        return [Words("There is no finished run of source-only to compare with.", aside=True), cost]
    return [Charts([gain, cost])]


def _gain(known: Measured) -> Chart | None:
    """Points above source-only by task, paired by target and seed; None if there is none."""
    fine = known.fine.assign(gain=100 * measured.gains(known.fine, known.rule))
    if fine["gain"].isna().all():
        return None
    mean = fine.groupby(["label", "task"])["gain"].mean()
    tasks = known.rows["task"].unique().tolist()
    rows = []
    for label in known.labels:
        if label == known.baseline or label not in mean.index.get_level_values("label"):
            continue
        found = [(n, task, mean.get((label, task), float("nan"))) for n, task in enumerate(tasks)]
        rows.append(charts.Row(label, [charts.Mark(v, f"{task}: {v:+.1f} points", n) for n, task, v in found]))
    worse = sum(mark.value < 0 for row in rows for mark in row.marks)
    said = (
        "Each mark is a task: the mean difference to source-only on the same target and seed. "
        f"{worse} of {sum(len(r.marks) for r in rows)} lie below it."
    )
    title = "Points above or below source-only"
    return charts.strips(title, said, rows, "points", reference=0.0, legend=tasks)


def _cost(known: Measured) -> Chart:
    average, spread = _averages(known)
    cost = measured.costs(known.fine)
    points = [
        charts.Point(
            label,
            float(cost.get(label, float("nan"))),
            float(average[label]),
            f"{average[label]:.1f} ± {spread[label]:.1f} %, {cost.get(label, float('nan')):.1f} ms an update",
        )
        for label in known.labels
    ]
    said = "Averages over tasks; the median CPU time of an update, which depends on the machine."
    axes = "CPU time of an update (ms)", "accuracy (%)"
    return charts.costs("What accuracy costs", said, points, axes)
