"""The HTML page of a benchmark: its tables and charts, of a study that has just run or of a database.

It is part of `bench`, not of `report`: the report of a run needs nothing of a benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from ba3us.bench import tables as measured
from ba3us.bench.database import Database
from ba3us.bench.protocol import read_protocol, shipped
from ba3us.bench.study import Study, command_and_versions
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


def write_bench_page(
    study: Study, rows: pd.DataFrame, tables: Sequence[measured.Table], out: str | Path
) -> Path:
    """Write the page of a study that has just been run."""
    command, versions = command_and_versions(study)
    about: list[Part] = [Code(command), Words(f"Versions: {versions}.")]
    return _write_page(Path(out), study.protocol.title, rows, study.protocol.selection[0], tables, about)


def write_database_page(
    database: str | Path, protocol: str | None = None, out: str | Path | None = None
) -> Path:
    """Write the page of the runs in a database; by default beside it, with ``.html`` for its ending.

    The protocol must be named if there are runs of several.
    """
    path = Path(database)
    require(path.is_file(), f"There is no database {path}: give a file that ba3us bench wrote.")
    with Database(path) as stored:
        rows, specs = stored.table().sort_values("finished", kind="stable"), stored.specs()
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
    versions = {", ".join(f"{name} {v}" for name, v in spec["versions"].items()) for spec in specs_of_rows}
    about = [Words(f"Versions: {'; '.join(sorted(versions))}.")]
    return _write_page(Path(out or path.with_suffix(".html")), title, rows, selection[0], tables, about)


def _relabel(rows: pd.DataFrame, specs: list[dict[str, Any]]) -> tuple[pd.DataFrame, list[str]]:
    """Runs of one label, task and seed with other settings are other methods: add the settings to the label."""
    flat = pd.json_normalize(specs, sep=" ").drop(columns="seed").map(repr)
    flat = flat.rename(columns=lambda name: name.removeprefix("options ")).set_index(rows.index)
    labels = rows["label"].tolist()
    for label in dict.fromkeys(labels):
        part = rows[rows["label"] == label]
        unit = [part[name] for name in ("task", "variant", "seed")]
        n_values = flat.loc[part.index].groupby(unit).nunique()
        different = [str(name) for name, several in (n_values > 1).any().items() if several]
        for row in part.index if different else ():
            labels[row] = f"{label} ({', '.join(f'{name}={flat.at[row, name]!s}' for name in different)})"
    changed = sorted({before for before, now in zip(rows["label"], labels) if before != now})
    note = f"The database has runs of {', '.join(changed)} with several settings: each has a row of its own."
    return rows.assign(label=labels), [note] if changed else []


def _write_page(
    out: Path,
    title: str,
    rows: pd.DataFrame,
    rule: str,
    tables: Sequence[measured.Table],
    about: Sequence[Part],
) -> Path:
    """Write everything that was measured; `rule` compares the methods."""
    check_page(out)
    labels, finished = rows["label"].unique().tolist(), rows[rows["outcome"] == "ok"]
    baseline = next(iter(rows["label"][rows["method"] == measured.BASELINE]), None)
    accuracies = 100 * measured.by_unit(finished, [rule])[rule]
    average, spread = measured.averages(rows, accuracies)

    reasons = [f"{len(rows) - len(finished)} of {len(rows)} runs failed: see below."]
    reasons = reasons if len(finished) < len(rows) else []
    if average.notna().any():
        best = str(average.idxmax())
        if similar := [row[0].text for row in tables[1].rows if row[-1].similar]:
            text = f"No clear difference to {listed(similar)} (paired test, p ≥ {measured.LEVEL})."
            reasons.insert(0, text)
        figures = [
            (label, f"{average[label]:.1f} ± {spread[label]:.1f}{SPACE}%")
            for label in dict.fromkeys((best, baseline))
            if label is not None
        ]
        text = f"{best} has the best average over the tasks, by {rule}."
        verdict = Verdict("plain", text, reasons, figures)
    else:
        verdict = Verdict("plain", "No method has finished every task.", reasons)

    parts: list[Part] = []
    earlier_notes: set[str] = set()
    for table in tables[:2]:
        cells = [
            [
                Markup(_MARKS[cell.mark]).format(escape(cell.text)) + (" ≈" if cell.similar else "")
                for cell in row
            ]
            for row in table.rows
        ]
        notes = [note for note in table.notes if note not in earlier_notes]
        numeric = range(1, len(table.columns))
        parts.append(Table(table.title, table.columns, cells, numeric, notes=notes, fold=60))
        earlier_notes.update(notes)
    failed: list[Part] = [
        Table(t.title, t.columns, [[c.text for c in row] for row in t.rows], fold=60) for t in tables[2:]
    ]

    gain = _gain_chart(rows, finished, rule, labels, baseline)
    points = []
    for label, time in zip(labels, measured.costs(finished).reindex(labels)):
        tip = f"{average[label]:.1f} ± {spread[label]:.1f}{SPACE}%, {time:.1f} ms per step"
        points.append(charts.CostPoint(label, float(time), float(average[label]), tip))
    text = "Averages over tasks, and the median CPU time of a step, which depends on the machine."
    cost = charts.costs("Accuracy and cost", text, points, ("CPU time of a step (ms)", "accuracy (%)"))
    missing = Words("There is no finished run of source-only to compare with.", aside=True)

    counts = (len(labels), "method"), (rows["task"].nunique(), "task"), (rows["seed"].nunique(), "seed")
    page = Page(
        title=title,
        subtitle=" · ".join(counted(*count) for count in (*counts, (len(rows), "run"))),
        lead=[verdict],
        sections=[
            Section("tables", "Tables", parts),
            Section("tasks", "Accuracy on each task", _task_charts(rows, accuracies, rule, labels, baseline)),
            Section(
                "gain",
                "Gain over source-only, and cost",
                [missing, cost] if gain is None else [Charts([gain, cost])],
            ),
            *([Section("failed", "Failed runs", failed)] if failed else []),
            Section("made", "How it was made", about),
        ],
        footer="Everything is in this one file; it loads nothing.",
    )
    write_page(page, out)
    return out


def _task_charts(
    rows: pd.DataFrame, accuracies: pd.Series, rule: str, labels: list[str], baseline: str | None
) -> list[Part]:
    """A chart per task: every seed, and their mean."""
    values = measured.over_variants(accuracies)
    of_label, of_task = (values.index.get_level_values(level) for level in ("label", "task"))
    drawn, small = [], len(labels) <= 12
    for task in rows["task"].unique():
        methods = []
        for label in labels:
            seeds = values[(of_label == label) & (of_task == task)]
            numbers = seeds.index.get_level_values("seed")
            marks = [charts.Mark(v, f"seed {seed}: {v:.1f}{SPACE}%") for seed, v in zip(numbers, seeds)]
            methods.append(charts.MethodRow(label, marks, seeds.mean()))
        finished = [method for method in methods if method.marks]
        reference = next((method.mean for method in finished if method.name == baseline), None)
        best = max(finished, key=lambda method: method.mean or 0.0, default=None)
        text = "No run has finished." if best is None else f"Best mean: {best.name}, {best.mean:.1f}{SPACE}%."
        title = str(task).replace("->", " → ")
        drawn.append(charts.strips(title, text, methods, "accuracy (%)", reference=reference, small=small))
    text = (
        f"Squares are means over seeds, dots are single seeds; checkpoints are selected by {rule}. The "
        "vertical line is source-only's mean. Axes differ from task to task."
    )
    return [Words(text), Charts(drawn, small=small)]


def _gain_chart(
    rows: pd.DataFrame, finished: pd.DataFrame, rule: str, labels: list[str], baseline: str | None
) -> Chart | None:
    """Points above source-only by task, paired by target and seed; None if there is none."""
    finished = finished.assign(gain=100 * measured.gains(finished, rule))
    if finished["gain"].isna().all():
        return None
    mean = finished.groupby(["label", "task"])["gain"].mean()
    tasks = rows["task"].unique().tolist()
    methods = []
    for label in labels:
        if label != baseline and label in mean.index.get_level_values("label"):
            gains = [mean.get((label, task), float("nan")) for task in tasks]
            marks = [charts.Mark(v, f"{t}: {v:+.1f} points", n) for n, (t, v) in enumerate(zip(tasks, gains))]
            methods.append(charts.MethodRow(label, marks))
    below = [mark.value < 0 for method in methods for mark in method.marks]
    text = (
        "Each mark is a task: the mean difference to source-only on the same target and seed. "
        f"{sum(below)} of {len(below)} are below it."
    )
    title = "Points above or below source-only"
    return charts.strips(title, text, methods, "points", reference=0.0, legend=tasks)
