"""What the page of a run is made from: the run, its tables, and labels if there are some."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ba3us.assess.scoring import read_target_labels, text_of
from ba3us.data.files import read_table
from ba3us.errors import require
from ba3us.run import storage as files
from ba3us.run.run import Run

LEADERBOARD = "leaderboard.csv"
SPACE = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class RunReport:
    """A run and its tables, as texts; `labels` are class numbers of all target samples, if they were given.

    A `quick` page leaves out what takes longer than a moment.
    """

    folder: Path
    run: Run
    classes: list[str]
    presence: pd.DataFrame
    predictions: pd.DataFrame | None
    leaderboard: pd.DataFrame | None
    labels: np.ndarray | None
    paths: list[str] | None  # of the target's samples, if they have some
    quick: bool = False

    @property
    def has_curves(self) -> bool:
        """Whether the evaluations are those of the history. Those of an automatic run are its candidates'."""
        history = self.run.history
        same_number = int(history["score"].count()) == len(self.run.evaluations)
        return same_number and {e.phase for e in self.run.evaluations} <= set(history["phase"])


def read_run(folder: Path, labels: Path | None = None, quick: bool = False) -> RunReport:
    """Read a run directory, and the target's labels if a file of them is given."""
    run = Run.load(folder)
    predictions, presence = _table(folder / files.PREDICTIONS), _table(folder / files.PRESENCE)
    columns = {"class", "proportion", "mean_probability", "present"}
    valid = {
        files.PRESENCE: presence is not None and columns <= {*presence},
        files.HISTORY: "score" in run.history and int(run.history["score"].count()) > 0,
    }
    for file, is_valid in valid.items():
        require(is_valid, f"The run {folder} is not whole ({file} does not fit): adapt again.")
    assert presence is not None
    classes = [text_of(name) for name in run.model.blueprint.classes]
    n_target = len(run.best.predictions)
    paths = None
    if predictions is not None and "path" in predictions:
        paths = predictions["path"].tolist()
    known = None if labels is None else read_target_labels(labels, classes, n_target, paths)
    leaderboard = _table(folder / LEADERBOARD)
    return RunReport(folder, run, classes, presence, predictions, leaderboard, known, paths, quick)


def _table(path: Path) -> pd.DataFrame | None:
    return pd.DataFrame(read_table(path), dtype=object) if path.is_file() else None


def percent(proportion: float, digits: int = 1) -> str:
    """A proportion as people write it."""
    return "–" if np.isnan(proportion) else f"{100 * proportion:.{digits}f}{SPACE}%"


def counted(number: int, one: str, many: str = "") -> str:
    """A number of things."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(words: list[str]) -> str:
    """Words in a sentence."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
