"""What each part of BA³US adds, over every protocol in a database of `ba3us bench`.

    python benchmarks/ablation.py runs/bench.sqlite --page docs/results/ablation.md

Parts are compared on the same task, target and seed. E-DANN weighs classes, aligns and lowers the entropy; BAA
also borrows (Section 3.2 of the paper), AUS also suppresses uncertainty (3.3), BA³US does both.
"""

from __future__ import annotations

import argparse

import pandas as pd
from scipy.stats import wilcoxon
from tables import markdown, page_of_runs

from ba3us.bench.protocol import read_protocol
from ba3us.bench.tables import LEVEL, averages, by_unit

FAMILY = ["source-only", "e-dann", "baa", "aus", "ba3us"]
PARTS = {
    "alignment: E-DANN − source-only": ("e-dann", "source-only"),
    "borrowing: BAA − E-DANN": ("baa", "e-dann"),
    "suppression: AUS − E-DANN": ("aus", "e-dann"),
    "both: BA³US − E-DANN": ("ba3us", "e-dann"),
    "all: BA³US − source-only": ("ba3us", "source-only"),
}


def rows_of(runs: pd.DataFrame, rule: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Accuracy of the five, and what each part adds, by protocol."""
    accuracies, added = [], []
    for protocol, some in runs.groupby("protocol", sort=False):
        title = read_protocol(str(protocol)).title
        values = by_unit(some, [rule])[rule]
        mean, spread = averages(some, values)
        found = {name: f"{100 * mean[name]:.2f} ± {100 * spread[name]:.2f}" for name in FAMILY}
        tasks, seeds = some["task"].nunique(), some["seed"].nunique()
        accuracies.append({"protocol": title, "tasks × seeds": f"{tasks} × {seeds}"} | found)
        table = values.unstack("label")
        added.append({"protocol": title} | {part: gap(table[a] - table[b]) for part, (a, b) in PARTS.items()})
    return accuracies, added


def gap(gaps: pd.Series) -> str:
    """Mean, how often above and below, and ≈ where it can't be told from none."""
    gaps = gaps.dropna().round(12)
    noise = not gaps.any() or wilcoxon(gaps).pvalue >= LEVEL
    return f"{100 * gaps.mean():+.2f}{' ≈' if noise else ''} ({(gaps > 0).sum()} ↑, {(gaps < 0).sum()} ↓)"


def parts(runs: pd.DataFrame) -> list[str]:
    """A section for each rule."""
    runs = runs[runs["label"].isin(FAMILY)]
    whole = runs.groupby("protocol")["label"].transform("nunique") == len(FAMILY)
    said = [
        f"In brackets: runs in which the part gained and lost. ≈: not told from no difference (Wilcoxon "
        f"signed-rank test, two-sided, paired over tasks and seeds, p ≥ {LEVEL}).",
    ]
    for rule in ("entropy", "neighbours", "oracle"):
        fine = runs[whole & runs[f"accuracy:{rule}"].notna()]
        if fine.empty:
            continue
        accuracies, added = rows_of(fine, rule)
        said += [f"## Checkpoints by {rule}", markdown(pd.DataFrame(accuracies)), markdown(pd.DataFrame(added))]
    return said


if __name__ == "__main__":
    page_of_runs(argparse.ArgumentParser(description=__doc__), "What each part of BA³US adds", parts)
