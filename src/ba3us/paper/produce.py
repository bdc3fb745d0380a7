"""The paper's tables and figures: a plan of what each needs, as data, and one call that runs and writes it.

Rows are called as the paper prints them and stand in its order. A row without a method is on paper only: its
number is shown, nothing is run for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from ba3us import bench
from ba3us.assess.scoring import steps_before
from ba3us.bench.database import Database
from ba3us.bench.jobs import execute, split_names
from ba3us.bench.protocol import results as paper_results
from ba3us.bench.tables import Cell, Table
from ba3us.data.writing import new_file
from ba3us.errors import UserError, did_you_mean, require
from ba3us.methods.registry import TASKS
from ba3us.paper import figures

_NUMBERS = (1, 2, 3, 4, 5, 7, 10, 15, 25, 35, 45, 55, 65)  # of target classes, for any protocol
Drawing = Literal["table", "accuracy_by_classes", "class_weights", "convergence", "embedding"]


@dataclass(frozen=True)
class Row:
    """A method as the paper prints it, its registered name (none: on paper only), and its options."""

    printed: str
    method: str | None
    options: dict[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Part:
    """Rows on the tasks of one protocol.

    Attributes
    ----------
    protocol : str
        A protocol of the benchmark.
    tasks : tuple of str
        In the order of the columns.
    rows : tuple of Row
        The methods.
    drawing : str
        "table", or the function of :mod:`ba3us.paper.figures`.
    dataset, setting, backbone : str
        As the paper prints them; empty for a protocol that the paper lacks.
    target_classes : tuple of int
        The target keeps the first k classes in alphabetical order, for each of these; empty: the protocol's.
    """

    protocol: str
    tasks: tuple[str, ...]
    rows: tuple[Row, ...]
    drawing: Drawing = "table"
    dataset: str = ""
    setting: str = "PDA"
    backbone: str = "ResNet-50"
    target_classes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """One table or figure: its name, what it shows, and its parts."""

    name: str
    title: str
    parts: tuple[Part, ...]

    def on(self, protocol: str, tasks: Sequence[str], target_classes: Sequence[int] = ()) -> Plan:
        """The same methods and drawings on another protocol's tasks; parts that become equal are joined.

        `target_classes` are the numbers of classes of a study that has them, as far as there are so many.
        """
        require(len(tasks) > 0, f"{self.name} is to run on no task of {protocol!r}: name at least one.")
        parts: dict[Part, list[Row]] = {}
        for part in self.parts:
            numbers = tuple(target_classes or _NUMBERS) if part.target_classes else ()
            part_on = Part(protocol, tuple(tasks), (), part.drawing, "", part.setting, "", numbers)
            rows = parts.setdefault(part_on, [])
            rows += [row for row in part.rows if row not in rows]
        return replace(self, parts=tuple(replace(part, rows=tuple(rows)) for part, rows in parts.items()))


_31, _HOME = ("office31", "Office31"), ("office-home", "Office-Home")
_IMAGENET = ("imagenet-caltech", "ImageNet-Caltech")
_AUGMENTED = "the printed number was measured with augmentation at evaluation, the one above it was not"


def _rows(*printed: str) -> tuple[Row, ...]:
    baselines = ("ResNet-50", "VGG-16", "Source only")
    return tuple(Row(name, "source-only" if name in baselines else name.lower()) for name in printed)


def _part(data: tuple[str, str], rows: tuple[Row, ...], *tasks: str, suffix: str = "", **other: Any) -> Part:
    return Part(data[0] + suffix, tasks or TASKS[data[0]], rows, dataset=data[1], **other)


def _sweep(option: str, *values: float) -> tuple[Part, ...]:
    rows = tuple(Row(f"BA3US ({option}={value})", "ba3us", {option: value}) for value in values)
    return _part(_HOME, rows), _part(_31, rows)


_FIRST = _rows("ResNet-50", "ADDA", "CDAN+E", "IWAN", "SAN", "PADA")
_LAST = _rows("E-DANN", "BAA", "BA3US")
_STUDIED = _rows("Source only") + _LAST  # the methods of figures 3a, 4 and 5
_CLOSED = (
    Row("CDAN+E*", "cdan+e", note=_AUGMENTED),
    *_rows("MCS", "DRCN"),
    Row("CDAN+TransNorm*", "cdan+transnorm", note=_AUGMENTED),
    Row("SAFN*", None, note="SAFN with augmentation at evaluation, which ba3us does not have"),
    Row("SAFN", "safn-closed"),
    *(Row(name, f"{name.lower()}-closed") for name in ("BAA", "BA3US", "BAA+CDAN", "BA3US+CDAN")),
)

_TABLE1 = _part(_HOME, _FIRST + _rows("SSPDA", "MWPDA", "ETN", "DRCN", "SAFN") + _LAST)
_TABLE2 = (
    _part(_31, _FIRST + _rows("SSPDA", "MWPDA", "DRCN", "ETN") + _LAST),
    _part(_IMAGENET, _FIRST + _rows("DRCN", "ETN") + _LAST, "I->C", "C->I"),
)
_VGG = _rows("VGG-16", "IWAN", "SAN", "PADA", "ETN", "BA3US")
_TABLE3 = _part(_31, _VGG, suffix="-vgg16", backbone="VGG-16")
_TABLE4 = _part(_HOME, _CLOSED, suffix="-closed", setting="closed-set")
_FIGURE3 = (
    # the paper does not print its numbers of classes; its text speaks of a fall after 15, Office-Home has 65
    _part(
        _HOME, _STUDIED, "Ar->Cl", drawing="accuracy_by_classes", target_classes=(5, 10, 15, 25, 35, 45, 55, 65)
    ),
    _part(_HOME, _rows("BA3US"), "Ar->Cl", drawing="class_weights"),
    _part(_31, _rows("BA3US"), "A->D", drawing="class_weights"),
)


def _both(drawing: Drawing) -> tuple[Part, ...]:
    return tuple(
        _part(data, _STUDIED, task, drawing=drawing) for data, task in ((_HOME, "Ar->Cl"), (_31, "A->D"))
    )


PLANS = {
    name: Plan(name, title, parts)
    for name, title, parts in (
        ("table1", "Accuracy (%) on Office-Home, partial", (_TABLE1,)),
        ("table2", "Accuracy (%) on Office31 and ImageNet-Caltech, partial", _TABLE2),
        ("table3", "Accuracy (%) on Office31, partial, VGG-16", (_TABLE3,)),
        ("table4", "Accuracy (%) on Office-Home, closed set", (_TABLE4,)),
        ("table5", "Sensitivity to ξ", _sweep("xi", 0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)),
        ("table6", "Sensitivity to β", _sweep("beta", 0.0, 0.1, 0.5, 1.0, 5.0, 10.0)),
        ("figure3", "Accuracy by number of target classes; estimated class weights", _FIGURE3),
        ("figure4", "Accuracy over the steps", _both("convergence")),
        ("figure5", "t-SNE of source and target", _both("embedding")[::-1]),
    )
}


def plan(name: str) -> Plan:
    """The plan of a table or figure, such as ``table1`` or ``figure4``."""
    if name not in PLANS:
        raise UserError(f"There is no plan for {name!r}: {did_you_mean(name, PLANS)}")
    return PLANS[name]


DRAWN: dict[str, Callable[[Path], list[Path]]] = {
    "figure1": figures.framework,
    "figure2": figures.uncertainty,
}


@dataclass(frozen=True)
class Order:
    """What to run and write; lists of names are comma-separated.

    `images` are fields of a spec, `address` is that of a Ray cluster. With `skip_count_check` the numbers of
    samples are not compared with the expected ones.
    """

    out: Path = Path("paper")
    database: Path = Path("runs/paper.sqlite")
    root: Path | None = None
    protocol: str | None = None
    tasks: str | None = None
    methods: str | None = None
    seeds: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    evaluate_every: int | None = None
    images: dict[str, Any] = field(default_factory=dict)
    workers: int = 0
    address: str | None = None
    skip_count_check: bool = False
    retry_failed: bool = False
    show: bool = False


@dataclass(frozen=True)
class Product:
    """The files that were written, how many runs are behind them, and how many of these failed."""

    files: list[Path]
    runs: int = 0
    failed: int = 0


class FinishedPart(NamedTuple):
    """A part of a plan with its runs: a row each, as a benchmark returns them, and those that have finished."""

    part: Part
    study: bench.Study
    rows: pd.DataFrame
    finished: pd.DataFrame
    rule: str


def produce(name: str, order: Order) -> Product:
    """Run what the database lacks, and write a table or figure."""
    if name in DRAWN:
        return Product(DRAWN[name](order.out / name))
    require(name in PLANS, f"There is no {name!r} in the paper: {did_you_mean(name, [*DRAWN, *PLANS])}")
    restricted = _restricted(plan(name), order)
    drawing = restricted.parts[0].drawing
    with_points = drawing == "embedding"
    studies = [_study(part, order) for part in restricted.parts]  # all data is checked before any run
    parts = []
    for part, study in zip(restricted.parts, studies):
        if with_points:  # one seed is enough for a picture of all samples
            study = replace(study, jobs=[job for job in study.jobs if job.seed == 0])
        rows = bench.run(
            study,
            order.database,
            order.workers,
            order.retry_failed,
            order.show,
            figures.execute_with_points if with_points else execute,
            order.address,
            with_points,
        )
        finished = rows[rows["outcome"] == "ok"]
        parts.append(FinishedPart(part, study, rows, finished, study.protocol.selection[0]))
    if drawing == "table":
        files = _write_tables(order.out / name, parts)
    else:
        with Database(order.database) as database:
            files = _draw(order.out / name, parts, database)
    runs, failed = (sum(count(part.rows) for part in parts) for count in (len, bench.count_failed))
    return Product(files, runs, failed)


def _restricted(wanted: Plan, order: Order) -> Plan:
    """The plan on the protocol, tasks and methods that were asked for."""
    tasks = split_names(order.tasks)
    if order.protocol is not None:
        known = [task.name for task in bench.read_protocol(order.protocol).tasks]
        default = known if wanted.parts[0].drawing == "table" else known[:1]
        wanted = wanted.on(order.protocol, tasks or default)
    elif tasks:
        known = [task for part in wanted.parts for task in part.tasks]
        for task in tasks:
            require(task in known, f"{wanted.name} has no task {task!r}: {did_you_mean(task, known)}")
        chosen = (replace(part, tasks=tuple(t for t in part.tasks if t in tasks)) for part in wanted.parts)
        wanted = replace(wanted, parts=tuple(part for part in chosen if part.tasks))
    names = [name.replace("³", "3") for name in split_names(order.methods)]  # as it is printed, BA3US
    rows = [row for part in wanted.parts for row in part.rows]
    known = [text for row in rows for text in (row.printed, row.method or "")]
    for name in names:
        require(
            name in known, f"{wanted.name} has no method {name!r}: {did_you_mean(name, filter(None, known))}"
        )
    parts = tuple(
        replace(part, rows=few)
        for part in wanted.parts
        if (few := tuple(r for r in part.rows if not names or {r.printed, r.method} & {*names}))
    )
    require(
        any(row.method for part in parts for row in part.rows),
        f"{wanted.name} has nothing to run for {order.methods} on {order.tasks or 'its tasks'}: name others.",
    )
    return replace(wanted, parts=parts)


def _study(part: Part, order: Order) -> bench.Study:
    study = bench.prepare(
        part.protocol,
        order.root,
        methods=[bench.MethodRow(row.printed, row.method, row.options) for row in part.rows if row.method],
        seeds=order.seeds,
        options=order.options,
        tasks=",".join(part.tasks),
        images=order.images,
        skip_count_check=order.skip_count_check,
        first=part.target_classes,
        evaluate_every=order.evaluate_every,
    )
    notes = [f"{row.printed}: {row.note}." for row in part.rows if row.note]
    return replace(study, notes=study.notes + notes)


def _write_tables(out: Path, parts: Sequence[FinishedPart]) -> list[Path]:
    """The tables of the studies; rows that are on paper only stand below."""
    tables: list[Table] = []
    for part in parts:
        overview, by_task, *more = bench.study_tables(part.study, part.rows)
        results = paper_results()
        results = results[results["protocol"] == part.study.protocol.paper]
        cells = [*by_task.rows]
        for row in part.part.rows:
            if row.method is None:
                printed = results[results["printed"] == row.printed].set_index("task")["accuracy"]
                texts = (f"{printed[c]:.2f}" if c in printed else "–" for c in by_task.columns[1:])
                cells.append([Cell(f"{row.printed}, paper"), *map(Cell, texts)])
        tables += [overview, replace(by_task, rows=cells), *more]
    paths = []
    for suffix, form in (("md", "markdown"), ("tex", "latex"), ("csv", "csv")):
        paths.append(out.with_suffix(f".{suffix}"))
        with new_file(paths[-1]) as file:
            file.write_text(bench.WRITERS[form](tables), encoding="utf-8")
    return paths


def _draw(out: Path, parts: Sequence[FinishedPart], database: Database) -> list[Path]:
    """Write a figure: one for all parts, or one for each with a letter."""
    drawing = parts[0].part.drawing
    if drawing == "embedding":
        return figures.embedding(pd.concat([_points(part, database) for part in parts]), out)
    for part in parts:
        if part.finished.empty:
            title, reason = part.study.protocol.title, part.rows["reason"].iloc[0]
            raise UserError(f"All runs of {title} failed: {reason}")
    if drawing == "convergence":
        curves = pd.concat([_curves(part, database) for part in parts], ignore_index=True)
        return figures.convergence(curves, out)
    paths: list[Path] = []
    for letter, part in zip("abcdefgh", parts):
        panel, rows = out.with_name(out.name + letter), part.finished
        if part.part.drawing == "accuracy_by_classes":
            table = rows[["label", "seed"]].rename(columns={"label": "method"})
            table.insert(0, "classes", rows["variant"].astype(int))
            table["accuracy"] = 100 * rows[f"accuracy:{part.rule}"]
            paths += figures.accuracy_by_classes(table, panel)
            continue
        data, weights = part.study.datasets[0], dict[str, np.ndarray]()  # a run per method, on the first task
        for row in rows[(rows["task"] == data.task) & (rows["seed"] == rows["seed"].min())].itertuples():
            run = database.run(str(row.key))
            weights[f"{row.label}, {row.task}"] = run.probabilities[run.selected[part.rule]]
        present = np.isin(np.arange(len(data.classes)), data.labels)
        paths += figures.class_weights(weights, present, data.classes, panel)
    return paths


def _curves(part: FinishedPart, database: Database) -> pd.DataFrame:
    """Accuracy at every evaluation of every run."""
    curves = []
    for row in part.finished.itertuples():
        run = database.run(str(row.key))
        accuracies = 100 * (run.predictions == run.labels).mean(axis=1)
        curve = {
            "task": row.task,
            "method": row.label,
            "seed": row.seed,
            "updates": steps_before(run.evaluations),
            "accuracy": accuracies,
            "selected": np.arange(len(accuracies)) == run.selected[part.rule],
        }
        curves.append(pd.DataFrame(curve))
    return pd.concat(curves)


def _points(part: FinishedPart, database: Database) -> pd.DataFrame:
    """The samples of both domains in the plane, by method, with their classes."""
    failed = part.rows[part.rows["outcome"] != "ok"]
    if len(failed):
        first = failed.iloc[0]
        raise UserError(f"{first.label} on {first.task} failed ({first.reason}): leave it out (`methods`).")
    target_labels, tables = {data.digest: data.labels for data in part.study.datasets}, []
    for job in part.study.jobs:
        points = database.points(job.key)
        labels = {"source": job.pair.source_labels, "target": target_labels[job.data]}
        classes = [labels[domain][row] for domain, row in zip(points["domain"], points["row"])]
        tables.append(points.assign(label=classes, task=job.task, method=job.label))
    return pd.concat(tables)
