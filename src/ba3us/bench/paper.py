"""The numbers printed in the BA³US paper, beside which a benchmark puts its own."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import pandas as pd

AVERAGE = "Avg"


def superscripted(label: str) -> str:
    """A label with the superscript that commands and tables of numbers do without."""
    return label.replace("BA3US", "BA³US")


@cache
def results() -> pd.DataFrame:
    """Accuracies (%) of tables 1–6: table, protocol, method (our name), printed name, task, accuracy, std."""
    return pd.read_csv(str(files("ba3us.bench") / "paper_results.csv"), comment="#")


def protocols() -> list[str]:
    """The protocols that the paper has a table of."""
    return sorted(results()["protocol"].unique())


def printed(protocol: str | None) -> dict[tuple[str, str], float]:
    """Accuracies (%) by method, or a row's own label in the studies of ξ and β, and task (or ``Avg``)."""
    rows = results()[results()["protocol"] == protocol]
    return dict(zip(zip(rows["method"], rows["task"]), rows["accuracy"]))
