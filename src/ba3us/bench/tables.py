"""Tables of a benchmark: mean ± spread over seeds, by method and task."""

from __future__ import annotations

import pandas as pd

from ba3us import methods

COLUMNS = ("last", "min-entropy", "oracle")
BASELINE = "source-only"


def ranked(rows: pd.DataFrame) -> pd.DataFrame:
    """The same rows, the label with the best average of `min-entropy` first."""
    order = rows.groupby("label")["min-entropy"].mean().sort_values(ascending=False, kind="stable").index
    return rows.assign(rank=rows["label"].map(order.get_loc)).sort_values("rank", kind="stable")


def summarise(rows: pd.DataFrame, column: str = "min-entropy") -> pd.DataFrame:
    """Mean and spread (%) by label and task, and the average over tasks; labels in order of appearance.

    The spread of the average is over seeds, of the mean over tasks.
    """
    labels = list(dict.fromkeys(rows["label"]))
    tasks = list(dict.fromkeys(rows["task"]))
    percent = rows.assign(value=100 * rows[column])
    by_task = percent.groupby(["label", "task"])["value"]
    means, spreads = by_task.mean(), by_task.std(ddof=0)
    by_seed = percent.groupby(["label", "seed"])["value"].mean().groupby("label")
    table = pd.DataFrame(index=pd.Index(labels, name="method"))
    for task in tasks:
        table[task] = [f"{means[label, task]:.1f} ± {spreads[label, task]:.1f}" for label in labels]
    table["Avg"] = [f"{m:.2f} ± {s:.2f}" for m, s in zip(by_seed.mean()[labels], by_seed.std(ddof=0)[labels])]
    return table


def overview(rows: pd.DataFrame) -> pd.DataFrame:
    """Averages over tasks and seeds (%) for `last`, `min-entropy` and `oracle`, and what a run costs.

    `ms/update` is the CPU time of a run, looks at the target included, over its updates; a median over runs.
    """
    labels = list(dict.fromkeys(rows["label"]))
    grouped = rows.groupby("label")
    table = pd.DataFrame(index=pd.Index(labels, name="method"))
    names = grouped["method"].first()[labels]
    table["losses"] = [methods.get(name).info.losses for name in names]
    for column in COLUMNS:
        table[column] = [f"{v:.2f}" for v in 100 * grouped[column].mean()[labels]]
    table["updates"] = grouped["updates"].first()[labels].astype(int).astype(str)
    table["s/run"] = [f"{v:.1f}" for v in grouped["seconds"].median()[labels]]
    cost = 1000 * rows["cpu_seconds"] / rows["updates"]
    costs = cost.groupby(rows["label"]).median()
    table["ms/update"] = [f"{v:.1f}" for v in costs[labels]]
    if BASELINE in costs.index:
        table["× source-only"] = [f"{v:.1f}" for v in costs[labels] / costs[BASELINE]]
    return table


def mistakes(rows: pd.DataFrame) -> pd.DataFrame:
    """How often and how a label's selected predictions go wrong.

    `below` counts runs with a lower accuracy than source-only on the same task with the same seed; `absent`
    is the mean share of rows (%) given to classes that the target does not hold; `lost` counts runs in which
    a present class was recognised in less than a tenth of its rows.
    """
    labels = list(dict.fromkeys(rows["label"]))
    grouped = rows.groupby("label")
    table = pd.DataFrame(index=pd.Index(labels, name="method"))
    if BASELINE in labels:
        baseline = rows[rows["label"] == BASELINE].set_index(["task", "seed"])["min-entropy"]
        beside = baseline.reindex(pd.MultiIndex.from_frame(rows[["task", "seed"]])).to_numpy()
        below = (rows["min-entropy"] < beside - 1e-9).groupby(rows["label"])
        table["below"] = [f"{below.sum()[label]} of {below.size()[label]}" for label in labels]
    table["absent"] = [f"{v:.1f}" for v in 100 * grouped["absent"].mean()[labels]]
    table["lost"] = [str(v) for v in (rows["lost"] > 0).groupby(rows["label"]).sum()[labels]]
    return table


def markdown(table: pd.DataFrame) -> str:
    """A table in Markdown."""
    lines = [[table.index.name or "", *table.columns], ["---"] * (table.shape[1] + 1)]
    lines += [[str(label), *map(str, row)] for label, row in zip(table.index, table.to_numpy())]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
