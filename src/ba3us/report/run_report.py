"""What a run's page tells of: the run, its files, and labels if somebody gave them; how figures are written."""

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
_PRESENCE = ("class", "proportion", "mean_probability", "present")
SPACE = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class RunReport:
    """A run and what lies in its folder; `labels` are numbers of `classes`, for every row of the target.

    A `quick` page does without what takes longer than a moment.
    """

    folder: Path
    run: Run
    classes: list[str]
    presence: pd.DataFrame
    predictions: pd.DataFrame | None
    leaderboard: pd.DataFrame | None
    labels: np.ndarray | None
    quick: bool = False

    @property
    def timed(self) -> bool:
        """Whether the evaluations are those of the history; of an automatic run they are its members'."""
        return int(self.run.history["score"].count()) == len(self.run.evaluations) and set(
            self.run.history["phase"]
        ) >= {look.phase for look in self.run.evaluations}

    @property
    def paths(self) -> list[str] | None:
        """Of the target's rows, where they have some."""
        return paths_of(self.predictions)


def read_run(folder: Path, labels: Path | None = None, quick: bool = False) -> RunReport:
    """Read a run directory, and the target's labels if a file of them is given."""
    run = Run.load(folder)
    predictions = _table(folder / files.PREDICTIONS)
    presence = _table(folder / files.PRESENCE)
    for file, fits in {
        files.PRESENCE: presence is not None and {*_PRESENCE} <= {*presence},
        files.HISTORY: "score" in run.history and int(run.history["score"].count()) > 0,
    }.items():
        require(fits, f"The run {folder} is not whole ({file} does not fit): adapt again.")
    assert presence is not None
    classes = [text_of(name) for name in run.model.blueprint.classes]
    rows = len(run.best.predictions)
    found = None if labels is None else read_target_labels(labels, classes, rows, paths_of(predictions))
    return RunReport(folder, run, classes, presence, predictions, _table(folder / LEADERBOARD), found, quick)


def paths_of(predictions: pd.DataFrame | None) -> list[str] | None:
    """The column of paths, if there is one."""
    return predictions["path"].tolist() if predictions is not None and "path" in predictions else None


def percent(share: float, digits: int = 1) -> str:
    """A share as people write it."""
    return "–" if np.isnan(share) else f"{100 * share:.{digits}f}{SPACE}%"


def counted(number: int, one: str, many: str = "") -> str:
    """A number of things."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(words: list[str]) -> str:
    """Words in a sentence."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _table(path: Path) -> pd.DataFrame | None:
    return pd.DataFrame(read_table(path), dtype=object) if path.is_file() else None
