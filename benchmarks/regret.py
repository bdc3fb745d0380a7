"""What rules that choose a checkpoint give away, over every run in a database of `ba3us bench`.

    python benchmarks/regret.py runs/bench.sqlite --page docs/results/regret.md

Regret is in points: accuracy at the best look of a run (oracle, by target labels) less that at the chosen look.
"""

from __future__ import annotations

import argparse

import pandas as pd
from tables import markdown, page_of_runs

from ba3us.assess.scoring import LAST, ORACLE
from ba3us.bench.protocol import read_protocol
from ba3us.training.evaluation import rules_for_records


def regrets(runs: pd.DataFrame, by: str) -> pd.DataFrame:
    """A row per protocol or system: the mean regret of every rule."""
    rules = {
        rule: 100 * (runs[f"accuracy:{ORACLE}"] - runs[f"accuracy:{rule}"])
        for rule in (LAST, *rules_for_records())
    }
    table = pd.DataFrame(rules).groupby(runs[by], sort=False)
    means = table.mean().map("{:.1f}".format)
    means.insert(0, "runs", table.size())
    return means.rename_axis(by).reset_index()


def parts(runs: pd.DataFrame) -> list[str]:
    """All protocols, then each by system."""
    titles = {name: read_protocol(name).title for name in runs["protocol"].unique()}
    runs = runs.assign(protocol=runs["protocol"].map(titles), system=runs["label"])
    said = [
        "Mean regret in points below the best look of the same run by labels. What follows: "
        "[selection](../selection.md).",
        "## By protocol",
        markdown(regrets(runs, "protocol")),
    ]
    for title, some in runs.groupby("protocol", sort=False):
        said += [f"## {title}, by system", markdown(regrets(some, "system").sort_values("system"))]
    return said


if __name__ == "__main__":
    page_of_runs(
        argparse.ArgumentParser(description=__doc__), "What the rules for checkpoints give away", parts
    )
