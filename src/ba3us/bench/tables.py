"""Tables of a benchmark (accuracy by method and task, cost, mistakes), and how they are written as text."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text
from scipy.stats import wilcoxon

from ba3us import methods
from ba3us.assess.scoring import LAST, ORACLE
from ba3us.bench.protocol import AVERAGE, paper_accuracies, superscripted
from ba3us.errors import UserError, require

BASELINE = "source-only"
LEVEL = 0.05  # a difference to the best with a larger p is called noise
_UNIT = ["task", "variant", "seed"]
_MIN_PAIRS = 6  # pairs, all of one sign, that the test needs to go below that level

_LATEX = {
    "±": r"$\pm$",
    "×": r"$\times$",
    "≈": r"$\approx$",
    "→": r"$\to$",
    "³": "$^3$",
    "–": "--",
    "≥": r"$\ge$",
}
_LATEX |= {c: f"\\{c}" for c in "&%$#_{}"} | {">": "$>$", "<": "$<$", "\\": r"\textbackslash{}"}
_LATEX |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= dict(zip("αβξλρκ", (rf"$\{name}$" for name in ("alpha", "beta", "xi", "lambda", "rho", "kappa"))))
_FITTED = r"\resizebox{\ifdim\width>\linewidth \linewidth\else \width\fi}{!}{"  # only ever smaller


@dataclass(frozen=True)
class Cell:
    """A figure; `mark` is ``best``, ``second`` or empty, `similar`: its difference to the best may be noise."""

    text: str
    mark: str = ""
    similar: bool = False


@dataclass(frozen=True)
class Table:
    """Columns of cells under a title, with notes below."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]
    notes: list[str]


def tables(
    rows: pd.DataFrame,
    title: str,
    selection: Sequence[str],
    printed: str | None = None,
    notes: Sequence[str] = (),
) -> list[Table]:
    """The tables of a study.

    Parameters
    ----------
    rows : DataFrame
        One run each: what :meth:`Database.table` gives.
    title : str
        Of the study.
    selection : sequence of str
        Rules to show; the first is the one that tasks are compared by.
    printed : str, optional
        Whose numbers of the paper to put below ours.
    notes : sequence of str
        What else to say below every table.
    """
    finished, named = rows[rows["outcome"] == "ok"], rows.drop_duplicates("label")
    losses = named.assign(losses=[methods.get(name).info.losses for name in named["method"]])
    notes = [*notes]
    for what, pairs in (("Settings", rows.drop_duplicates(["settings", "label"])), ("Losses", losses)):
        groups = pairs.groupby(what.lower(), sort=what == "Losses")["label"]
        notes.append(f"{what}: " + "; ".join(f"{kind}: {', '.join(labels)}" for kind, labels in groups) + ".")
    n_pairs = len(finished.drop_duplicates(_UNIT))
    marks = (
        "Best bold, second best underlined. ≈: not told apart from the best average (Wilcoxon signed-rank "
        f"test, two-sided, paired over tasks, targets and seeds, p ≥ {LEVEL})."
    )
    if n_pairs < _MIN_PAIRS:
        plural = "s" * (n_pairs > 1)
        marks += f" With {n_pairs} pair{plural} it finds no difference: it needs {_MIN_PAIRS} or more."
    notes = [marks, *notes]
    result = [
        _overview(rows, finished, title, selection, notes),
        _by_task(rows, finished, f"{title}: accuracy (%) by task", selection[0], printed, notes),
    ]
    failed = rows[rows["outcome"] == "failed"]
    if len(failed):
        columns = ["label", "task", "variant", "seed", "reason"]
        cells = [[Cell(str(value)) for value in row] for row in failed[columns].to_numpy()]
        result.append(Table(f"{title}: failed runs", columns, cells, []))
    return result


def ranked(rows: pd.DataFrame, rule: str) -> pd.DataFrame:
    """The same rows, the label with the best average first."""
    order = rows.groupby("label")[f"accuracy:{rule}"].mean().sort_values(ascending=False, kind="stable").index
    return rows.assign(rank=rows["label"].map(order.get_loc)).sort_values("rank", kind="stable")


def _overview(
    rows: pd.DataFrame, finished: pd.DataFrame, title: str, selection: Sequence[str], notes: list[str]
) -> Table:
    """Averages by selection rule, cost and mistakes."""
    rule, labels, by_label = selection[0], _labels(rows), finished.groupby("label")
    columns: dict[str, list[Cell]] = {}
    for each, values in by_unit(finished, [LAST, *selection, ORACLE]).items():
        average = 100 * averages(rows, values)[0]
        unmarked = [("", False)] * len(average)
        marks = unmarked if each == ORACLE else zip(_marks(average), _similar(values, average))
        columns[str(each)] = [Cell(_figure(v, 2), *mark) for v, mark in zip(average, marks)]
    cost = costs(finished).reindex(labels)
    texts = {
        "steps": [_figure(v, 0) for v in by_label["steps"].max().reindex(labels)],
        "s/run": [_figure(v, 1) for v in by_label["seconds"].median().reindex(labels)],
        "ms/step": [_figure(v, 1) for v in cost],
    }
    baseline = finished["label"][finished["method"] == BASELINE]
    if len(baseline):
        texts["× source-only"] = [_figure(v, 1) for v in cost / cost[baseline.iloc[0]]]
        below = (gains(finished, rule) < -1e-9).groupby(finished["label"]).sum()
        runs = by_label.size()
        texts["below"] = [f"{below.get(label, 0)} of {runs.get(label, 0)}" for label in labels]
    texts["absent"] = [_figure(v, 1) for v in 100 * by_label[f"absent:{rule}"].mean().reindex(labels)]
    lost = (finished[f"lost:{rule}"] > 0).groupby(finished["label"]).sum()
    texts["lost"] = [str(lost.get(label, 0)) for label in labels]
    failed = (rows["outcome"] == "failed").groupby(rows["label"]).sum()
    if failed.any():
        texts["failed"] = [str(failed[label]) for label in labels]
    columns |= {name: [Cell(text) for text in column] for name, column in texts.items()}
    cells = [[Cell(label), *(column[i] for column in columns.values())] for i, label in enumerate(labels)]
    meaning = (
        "Averages over tasks (%) at the last evaluation, at the one that a rule chooses without target labels "
        f"({', '.join(selection)}), and at the best one (oracle: chosen with target labels). ms/step: CPU "
        "time of a run over its steps, median. below: runs with less accuracy than source-only on the same "
        "task and seed; absent: mean proportion of samples (%) predicted as classes that the target lacks; "
        f"lost: runs with a present class recognised in less than a tenth of its samples; all three by {rule}."
    )
    return Table(title, ["method", *columns], cells, [meaning, *notes])


def costs(finished: pd.DataFrame) -> pd.Series:
    """CPU time of a step in ms by label, the median over its runs."""
    milliseconds = 1000 * finished["cpu_seconds"] / finished["steps"].clip(lower=1)
    return milliseconds.groupby(finished["label"]).median()


def gains(finished: pd.DataFrame, rule: str) -> pd.Series:
    """By run: accuracy above that of source-only on the same task, target and seed; NaN without it."""
    column = f"accuracy:{rule}"
    baseline = finished[finished["method"] == BASELINE].drop_duplicates(_UNIT).set_index(_UNIT)[column]
    return finished[column] - baseline.reindex(pd.MultiIndex.from_frame(finished[_UNIT])).to_numpy()


def _by_task(
    rows: pd.DataFrame, finished: pd.DataFrame, title: str, rule: str, printed: str | None, notes: list[str]
) -> Table:
    """Accuracies by task, with the paper's below where it has them."""
    labels, tasks = _labels(rows), rows["task"].unique().tolist()
    values = by_unit(finished, [rule])[rule]
    grouped = over_variants(values).groupby(["task", "label"])
    means, spreads = 100 * grouped.mean(), 100 * grouped.std(ddof=0)
    columns: dict[str, list[Cell]] = {}
    for task in tasks:
        index = [(task, label) for label in labels]
        mean, spread = means.reindex(index), spreads.reindex(index)
        columns[task] = [Cell(_spread(m, s, 1), mark) for m, s, mark in zip(mean, spread, _marks(mean))]
    average, spread = (100 * figure for figure in averages(rows, values))
    figures = zip(average, spread, _marks(average), _similar(values, average))
    columns[AVERAGE] = [Cell(_spread(m, s, 2), mark, similar) for m, s, mark, similar in figures]
    in_paper = paper_accuracies(printed)
    all_tasks = {*tasks} >= {task for _, task in in_paper} - {AVERAGE}
    names = rows.drop_duplicates("label").set_index("label")["method"]
    cells = []
    for i, label in enumerate(labels):
        cells.append([Cell(label), *(column[i] for column in columns.values())])
        name = label if (label, AVERAGE) in in_paper else names[label]
        accuracies = pd.Series([in_paper.get((name, task)) for task in tasks], dtype=float)
        # the printed average is over all tasks
        overall = in_paper.get((name, AVERAGE)) if all_tasks else accuracies.mean(skipna=False)
        if accuracies.notna().any() or (all_tasks and overall is not None):
            cells.append([Cell(f"{label}, paper"), *(Cell(_figure(v, 2)) for v in (*accuracies, overall))])
    meaning = f"Mean ± standard deviation over seeds, by {rule}; Avg is the mean over tasks."
    notes = [meaning, *notes]
    if in_paper:
        notes.insert(2, "paper: as printed in the BA³US paper (ECCV 2020), tables 1–6.")
    return Table(title, ["method", *columns], cells, notes)


def by_unit(finished: pd.DataFrame, rules: list[str]) -> pd.DataFrame:
    """Accuracies by label, task, variant and seed; a column per rule."""
    columns = [f"accuracy:{rule}" for rule in rules]
    return finished.groupby(["label", *_UNIT])[columns].mean().set_axis(rules, axis=1)


def over_variants(values: pd.Series) -> pd.Series:
    """Means over a task's targets, by label, task and seed."""
    return values.groupby(["label", "task", "seed"]).mean()


def averages(rows: pd.DataFrame, values: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Mean over tasks and its spread over seeds, by label; NaN where a task has no finished run."""
    labels, tasks, values = _labels(rows), rows["task"].nunique(), over_variants(values)
    by_task = values.groupby(["label", "task"]).mean().groupby("label")
    mean = by_task.mean().where(by_task.size() == tasks).reindex(labels)
    by_seed = values.groupby(["label", "seed"])
    spread = by_seed.mean()[by_seed.size() == tasks].groupby("label").std(ddof=0).reindex(labels)
    return mean, spread


def _marks(values: pd.Series) -> list[str]:
    """Which values are the best and the second best."""
    distinct = sorted({round(v, 9) for v in values.dropna()}, reverse=True)[:2]
    marks = dict(zip(distinct, ("best", "second")))
    return [marks.get(round(v, 9), "") if len(values) > 1 else "" for v in values]


def _similar(values: pd.Series, average: pd.Series) -> list[bool]:
    """Whether a smaller average differs from the best one by no more than noise."""
    if average.notna().sum() < 2:
        return [False] * len(average)
    table, best, similar = values.unstack("label"), str(average.idxmax()), []
    for label in average.index:
        if np.isnan(average[label]) or np.isclose(average[label], average[best], rtol=0, atol=1e-9):
            similar.append(False)
        else:
            gaps = (table[best] - table[label]).dropna().round(12)
            similar.append(not gaps.any() or wilcoxon(gaps).pvalue >= LEVEL)
    return similar


def _labels(rows: pd.DataFrame) -> list[str]:
    return rows["label"].unique().tolist()


def _figure(value: float | None, digits: int) -> str:
    return "–" if value is None or np.isnan(value) else f"{value:.{digits}f}"


def _spread(mean: float, spread: float, digits: int) -> str:
    return _figure(mean, digits) + ("" if np.isnan(mean) else f" ± {_figure(spread, digits)}")


def terminal(tables: Sequence[Table]) -> str:
    """For people at a terminal, in its width."""
    styles = {"best": "bold", "second": "underline", "": ""}
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = 160
    with console.capture() as captured:
        for table in _displayed(tables):
            rich_table = RichTable(box=SIMPLE, title=Text(table.title), caption=Text("\n".join(table.notes)))
            for column in table.columns:
                rich_table.add_column(column, overflow="fold")
            for row in table.rows:
                rich_table.add_row(*(Text(cell.text, style=styles[cell.mark]) for cell in row))
            console.print(rich_table)
    return captured.get()


def markdown(tables: Sequence[Table]) -> str:
    """With a heading each; best in bold, second best underlined."""
    marks = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
    parts = []
    for table in _displayed(tables):
        lines = [table.columns, ["---"] * len(table.columns)]
        lines += [
            [marks[cell.mark].format(cell.text.replace("|", r"\|")) for cell in row] for row in table.rows
        ]
        rows = ["| " + " | ".join(line) + " |" for line in lines]
        parts.append("\n".join([f"## {table.title}", "", *rows, *(f"\n{note}" for note in table.notes)]))
    return "\n\n".join(parts) + "\n"


def latex(tables: Sequence[Table]) -> str:
    """Floats with booktabs' rules, made smaller where they don't fit the line (graphicx); notes below."""
    marks = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "": "{}"}
    parts = ["% \\usepackage{booktabs,graphicx}\n"]
    for table in _displayed(tables):
        head = " & ".join(map(_tex, table.columns))
        rows = [" & ".join(marks[cell.mark].format(_tex(cell.text)) for cell in row) for row in table.rows]
        body = "".join(rf"{row} \\" + "\n" for row in rows)
        places = "l" + "r" * (len(table.columns) - 1)
        notes = "".join(f"{_tex(note)}\n" for note in table.notes)
        parts.append(
            f"\\begin{{table}}\n\\centering\n\\caption{{{_tex(table.title)}}}\n{_FITTED}%\n"
            f"\\begin{{tabular}}{{{places}}}\n\\toprule\n{head} \\\\\n\\midrule\n{body}\\bottomrule\n"
            f"\\end{{tabular}}}}\n\\par\\smallskip\\raggedright\\footnotesize\n{notes}\\end{{table}}\n"
        )
    return "\n".join(parts)


def comma_separated(tables: Sequence[Table]) -> str:
    """One table after the other, each below a line with its title."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    for table in tables:
        lines.writerow([f"# {table.title}"])
        lines.writerow(table.columns)
        lines.writerows([cell.text for cell in row] for row in table.rows)
    return out.getvalue()


def web(tables: Sequence[Table]) -> str:
    """A page that needs nothing else."""
    marks = {"best": "<b>{}</b>", "second": "<u>{}</u>", "": "{}"}
    parts = []
    for table in _displayed(tables):
        head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
        cells = [[f"<td>{marks[c.mark].format(html.escape(c.text))}</td>" for c in row] for row in table.rows]
        body = "".join(f"<tr>{''.join(row)}</tr>\n" for row in cells)
        notes = "".join(f"<p>{html.escape(note)}</p>\n" for note in table.notes)
        parts.append(f"<h2>{html.escape(table.title)}</h2>\n<table>\n<tr>{head}</tr>\n{body}</table>\n{notes}")
    return f'<!doctype html>\n<meta charset="utf-8">\n<title>ba3us bench</title>\n{"".join(parts)}'


WRITERS: dict[str, Callable[[Sequence[Table]], str]] = {
    "terminal": terminal,
    "markdown": markdown,
    "latex": latex,
    "csv": comma_separated,
    "html": web,
}
_SUFFIXES = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".html": "html", ".txt": "terminal"}


def chosen_format(given: str | None, file: Path | None) -> str:
    """The format asked for, else that of the file's name, else the terminal's."""
    if given is not None:
        require(given in WRITERS, f"Unknown format {given!r}: choose one of {', '.join(WRITERS)}.")
        return given
    if file is None:
        return "terminal"
    if file.suffix not in _SUFFIXES:
        raise UserError(f"No format goes with {file}: end it in {', '.join(_SUFFIXES)}, or add a `format`.")
    return _SUFFIXES[file.suffix]


def _displayed(tables: Sequence[Table]) -> list[Table]:
    """The same with names as they are printed, and ≈ in the cells that have it."""
    displayed = []
    for table in tables:
        rows = [
            [replace(cell, text=superscripted(cell.text) + (" ≈" if cell.similar else "")) for cell in row]
            for row in table.rows
        ]
        displayed.append(replace(table, rows=rows, notes=[superscripted(note) for note in table.notes]))
    return displayed


def _tex(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in text.replace("->", "→"))
