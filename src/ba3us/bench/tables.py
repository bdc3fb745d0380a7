"""Tables of a benchmark: mean ± spread over seeds, by method and task."""

from __future__ import annotations

import pandas as pd

COLUMNS = ("last", "min-entropy", "oracle")


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
    """Averages over tasks and seeds (%) for `last`, `min-entropy` and `oracle`, and the cost of a run."""
    labels = list(dict.fromkeys(rows["label"]))
    grouped = rows.groupby("label")
    table = pd.DataFrame(index=pd.Index(labels, name="method"))
    for column in COLUMNS:
        table[column] = [f"{v:.2f}" for v in 100 * grouped[column].mean()[labels]]
    table["updates"] = grouped["updates"].first()[labels].astype(int).astype(str)
    table["s/run"] = [f"{v:.1f}" for v in grouped["seconds"].median()[labels]]
    return table


def markdown(table: pd.DataFrame) -> str:
    """A table in Markdown."""
    lines = [[table.index.name or "", *table.columns], ["---"] * (table.shape[1] + 1)]
    lines += [[str(label), *map(str, row)] for label, row in zip(table.index, table.to_numpy())]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
