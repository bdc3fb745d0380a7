"""The HTML page of a benchmark: its tables and charts, of a study that has just run or of a database.

It is part of `bench`, not of `report`: the report of a run needs nothing of a benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from ba3us.bench import tables as measured
from ba3us.bench.database import Database
from ba3us.bench.protocol import read_protocol, shipped
from ba3us.bench.study import Study, made_by
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

_MARKS = {"best": "<b>{}</b>", "second": "<u>{}</u>", "": "{}"}
_MAX_SMALL = 12  # methods up to which the tasks are drawn small
_UNIT = ["label", "task", "variant", "seed"]


@dataclass(frozen=True)
class BenchReport:
    """Runs of a protocol, the selection rule that compares them, the tables, and where they come from."""

    title: str
    rows: pd.DataFrame
    rule: str
    tables: Sequence[measured.Table]
    versions: str
    command: str = ""

    @property
    def finished(self) -> pd.DataFrame:
        """Runs that did not fail."""
        return self.rows[self.rows["outcome"] == "ok"]

    @property
    def labels(self) -> list[str]:
        """The methods' names, in the order of the tables."""
        return self.rows["label"].unique().tolist()

    @property
    def baseline(self) -> str | None:
        """What source-only is called here, if it is there."""
        return next(iter(self.rows["label"][self.rows["method"] == measured.BASELINE]), None)


def write_bench_page(
    study: Study, rows: pd.DataFrame, tables: Sequence[measured.Table], out: str | Path
) -> Path:
    """Write the page of a study that has just been run."""
    command, versions = made_by(study)
    rule = study.protocol.selection[0]
    return _write(BenchReport(study.protocol.title, rows, rule, tables, versions, command), Path(out))


def write_database_page(
    database: str | Path, protocol: str | None = None, out: str | Path | None = None
) -> Path:
    """Write the page of the runs in a database; by default beside it, with ``.html`` for its ending."""
    report = _read_database(Path(database), protocol)
    return _write(report, Path(out) if out is not None else Path(database).with_suffix(".html"))


def _write(report: BenchReport, out: Path) -> Path:
    check_page(out)
    write_page(bench_page(report), out)
    return out


# --- reading a database -------------------------------------------------------------------------------------


def _read_database(path: Path, protocol: str | None) -> BenchReport:
    """The runs of a protocol; it must be named if there are several."""
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
    specs_of_rows = [specs[key] for key in rows["key"]]
    rows, notes = _relabel(rows, specs_of_rows)
    title, paper = name, None
    selection: tuple[str, ...] = ("entropy",)
    known = read_protocol(name) if name in shipped() else None
    if known is not None and set(rows["task"]) <= {task.name for task in known.tasks}:  # else the user's own
        title, selection, paper = known.title, known.selection, known.paper
    rows = measured.ranked(rows, selection[0])
    tables = measured.tables(rows, title, selection, paper, notes)
    versions = {
        ", ".join(f"{package} {v}" for package, v in spec["versions"].items()) for spec in specs_of_rows
    }
    return BenchReport(title, rows, selection[0], tables, "; ".join(sorted(versions)))


def _relabel(rows: pd.DataFrame, specs: list[dict[str, Any]]) -> tuple[pd.DataFrame, list[str]]:
    """Runs of one label, task and seed with other settings are other methods: add the settings to the label."""
    flat = pd.DataFrame([_flat(spec) for spec in specs], index=rows.index).map(repr)
    labels = rows["label"].tolist()
    for label in dict.fromkeys(labels):
        part = rows[rows["label"] == label]
        n_values = flat.loc[part.index].groupby([part[name] for name in _UNIT]).nunique()
        different = [str(name) for name, several in (n_values > 1).any().items() if several]
        for row in part.index if different else ():
            labels[row] = f"{label} ({', '.join(f'{name}={flat.at[row, name]!s}' for name in different)})"
    changed = sorted({before for before, now in zip(rows["label"], labels) if before != now})
    note = f"The database has runs of {', '.join(changed)} with several settings: each has a row of its own."
    return rows.assign(label=labels), [note] if changed else []


def _flat(spec: dict[str, Any], start: str = "") -> dict[str, Any]:
    """A spec as one level of names, without the seed."""
    flat: dict[str, Any] = {}
    for name, value in spec.items():
        if isinstance(value, dict):
            flat |= _flat(value, "" if name == "options" else f"{name} ")
        elif name != "seed":
            flat[f"{start}{name}"] = value
    return flat


# --- the page -----------------------------------------------------------------------------------------------


def bench_page(report: BenchReport) -> Page:
    """Everything that was measured."""
    tasks, seeds = report.rows["task"].nunique(), report.rows["seed"].nunique()
    counts = [
        counted(len(report.labels), "method"),
        counted(tasks, "task"),
        counted(seeds, "seed"),
        counted(len(report.rows), "run"),
    ]
    made = [
        _tables_section(report),
        Section("tasks", "Accuracy on each task", _tasks(report)),
        Section("gain", "Gain over source-only, and cost", _gain_and_cost(report)),
        _failed_section(report),
        _about_section(report),
    ]
    return Page(
        title=report.title,
        subtitle=" · ".join(counts),
        lead=[_answer(report)],
        sections=[section for section in made if section is not None],
        footer="Everything is in this one file; it loads nothing.",
    )


def _answer(report: BenchReport) -> Verdict:
    """The best method, and those whose difference to it may be chance."""
    average, spread = _averages(report)
    failed = int((report.rows["outcome"] == "failed").sum())
    reasons = [f"{failed} of {len(report.rows)} runs failed: see below."] if failed else []
    if average.notna().sum() == 0:
        return Verdict("plain", "No method has finished every task.", reasons)
    best = str(average.idxmax())
    similar = [row[0].text for row in report.tables[1].rows if row[-1].near]
    if similar:
        reasons.insert(0, f"No clear difference to {listed(similar)} (paired test, p ≥ {measured.LEVEL}).")
    labels = [label for label in dict.fromkeys((best, report.baseline)) if label is not None]
    figures = [(label, f"{average[label]:.1f} ± {spread[label]:.1f}{SPACE}%") for label in labels]
    return Verdict("plain", f"{best} has the best average over the tasks, by {report.rule}.", reasons, figures)


def _tables_section(report: BenchReport) -> Section:
    known: set[str] = set()
    parts: list[Part] = []
    for table in report.tables[:2]:
        rows = [[_cell(cell) for cell in row] for row in table.rows]
        notes = [note for note in table.notes if note not in known]
        parts.append(
            Table(table.title, table.columns, rows, range(1, len(table.columns)), notes=notes, fold=60)
        )
        known.update(notes)
    return Section("tables", "Tables", parts)


def _cell(cell: measured.Cell) -> Markup:
    return Markup(_MARKS[cell.mark]).format(escape(cell.text)) + (" ≈" if cell.near else "")


def _failed_section(report: BenchReport) -> Section | None:
    """The last of the tables, where there is one."""
    parts = [
        Table(t.title, t.columns, [[c.text for c in row] for row in t.rows], fold=60) for t in report.tables[2:]
    ]
    return Section("failed", "Failed runs", parts) if parts else None


def _about_section(report: BenchReport) -> Section:
    parts: list[Part] = [Words(f"Versions: {report.versions}.")]
    if report.command:
        parts = [Code(report.command), *parts]
    return Section("made", "How it was made", parts)


# --- charts -------------------------------------------------------------------------------------------------


def _averages(report: BenchReport) -> tuple[pd.Series, pd.Series]:
    """Mean over tasks and its spread over seeds, in %."""
    values = measured.by_unit(report.finished, [report.rule])[report.rule]
    average, spread = measured.averages(report.rows, values)
    return 100 * average, 100 * spread


def _tasks(report: BenchReport) -> list[Part]:
    """A chart per task: every seed, and their mean."""
    values = 100 * measured.over_variants(measured.by_unit(report.finished, [report.rule])[report.rule])
    drawn, small = [], len(report.labels) <= _MAX_SMALL
    for task in report.rows["task"].unique():
        rows = []
        for label in report.labels:
            index = values.index
            accuracy = values[
                (index.get_level_values("label") == label) & (index.get_level_values("task") == task)
            ]
            marks = [charts.Mark(v, f"seed {seed}: {v:.1f}{SPACE}%") for (_, _, seed), v in accuracy.items()]
            rows.append(charts.MethodRow(label, marks, accuracy.mean() if len(accuracy) else float("nan")))
        finished = [row for row in rows if row.marks]
        baseline = next((row.mean for row in finished if row.name == report.baseline), None)
        best = max(finished, key=lambda row: row.mean or 0.0, default=None)
        words = "No run has finished." if best is None else f"Best mean: {best.name}, {best.mean:.1f}{SPACE}%."
        name = str(task).replace("->", " → ")
        drawn.append(charts.strips(name, words, rows, "accuracy (%)", reference=baseline, small=small))
    words = (
        f"Squares are means over seeds, dots are single seeds; checkpoints are selected by {report.rule}. The "
        "vertical line is source-only's mean. Axes differ from task to task."
    )
    return [Words(words), Charts(drawn, small=small)]


def _gain_and_cost(report: BenchReport) -> list[Part]:
    gain, cost = _gain(report), _cost(report)
    if gain is None:
        return [Words("There is no finished run of source-only to compare with.", aside=True), cost]
    return [Charts([gain, cost])]


def _gain(report: BenchReport) -> Chart | None:
    """Points above source-only by task, paired by target and seed; None if there is none."""
    finished = report.finished.assign(gain=100 * measured.gains(report.finished, report.rule))
    if finished["gain"].isna().all():
        return None
    mean = finished.groupby(["label", "task"])["gain"].mean()
    tasks = report.rows["task"].unique().tolist()
    rows = []
    for label in report.labels:
        if label != report.baseline and label in mean.index.get_level_values("label"):
            gains = [mean.get((label, task), float("nan")) for task in tasks]
            marks = [charts.Mark(v, f"{t}: {v:+.1f} points", n) for n, (t, v) in enumerate(zip(tasks, gains))]
            rows.append(charts.MethodRow(label, marks))
    worse = sum(mark.value < 0 for row in rows for mark in row.marks)
    words = (
        "Each mark is a task: the mean difference to source-only on the same target and seed. "
        f"{worse} of {sum(len(row.marks) for row in rows)} are below it."
    )
    title = "Points above or below source-only"
    return charts.strips(title, words, rows, "points", reference=0.0, legend=tasks)


def _cost(report: BenchReport) -> Chart:
    average, spread = _averages(report)
    cost = measured.costs(report.finished)
    points = []
    for label in report.labels:
        milliseconds = float(cost.get(label, float("nan")))
        tip = f"{average[label]:.1f} ± {spread[label]:.1f}{SPACE}%, {milliseconds:.1f} ms per step"
        points.append(charts.CostPoint(label, milliseconds, float(average[label]), tip))
    words = "Averages over tasks, and the median CPU time of a step, which depends on the machine."
    return charts.costs("Accuracy and cost", words, points, ("CPU time of a step (ms)", "accuracy (%)"))
