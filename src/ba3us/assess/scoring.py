"""Accuracy, worked out after training by whoever holds target labels. Training never imports this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd

from ba3us.data.files import read_named_labels, read_texts
from ba3us.data.images import folder_names, lines_of, read_images
from ba3us.errors import UserError, did_you_mean, require
from ba3us.training import Evaluation

# --- labels -----------------------------------------------------------------------------------------------
# Labels of a target, from those who hold them, as the classes of a run. Training never imports this.


class Named(NamedTuple):
    """The name of each row's class; `keys` are paths or row numbers, None if rows are in the target's order."""

    names: list[str]
    keys: list[str] | None = None


def read_target_labels(
    path: str | Path, classes: Sequence[Any], rows: int, paths: Sequence[str] | None = None
) -> np.ndarray:
    """The class of every row of a target, as a number of the run's `classes`; matched by name. [rows] int64.

    Parameters
    ----------
    path : path
        ``.npy`` (one label per row), ``.npz`` (``labels``, perhaps ``class_names``), ``.csv`` (a column
        ``class`` or ``label``, perhaps ``path`` or ``row``), a folder of class folders, or a text file with
        ``path label`` or a class name on each line.
    classes : sequence
        Of the run.
    rows : int
        How many the target has.
    paths : sequence of str, optional
        Of the target's rows, where they have some. Labels that come with paths are matched by them.
    """
    path = Path(path)
    require(path.exists(), f"There is no file {path} with the target's labels: check the path.")
    found = _in_order(_read(path, paths), paths or [str(row) for row in range(rows)], path)
    require(
        len(found) == rows, f"{path} has {len(found)} labels, but the target has {rows} rows: give one per row."
    )
    number = {text_of(name): label for label, name in enumerate(classes)}
    for row, name in enumerate(found):
        if name not in number:
            raise UserError(
                f"{path} has the label {name!r} for row {row}, which is no class of the run: "
                f"{did_you_mean(name, number)}"
            )
    return np.array([number[name] for name in found], dtype=np.int64)


def text_of(label: Any) -> str:
    """A label as it is written: 3 and 3.0 are the same class."""
    whole = isinstance(label, float) and label.is_integer()
    return str(int(label) if whole else label)


def _read(path: Path, paths: Sequence[str] | None) -> Named:
    if path.is_dir():
        images = read_images(path, labelled=True)
        assert images.labels is not None
        assert images.class_names is not None
        return Named([images.class_names[label] for label in images.labels], images.paths)
    if path.suffix in (".npz", ".npy"):
        labels, keys = read_named_labels(path)
        return Named([text_of(label) for label in labels.tolist()], keys)
    return _table(path) if path.suffix == ".csv" else _list(path, paths)


def _table(path: Path) -> Named:
    table = read_texts(path)
    columns = {str(name).strip().lower(): name for name in table}
    labels = next((columns[name] for name in ("class", "label") if name in columns), None)
    require(
        labels is not None,
        f"{path} has the columns {', '.join(map(str, table))}: call that with the labels 'class' or 'label'.",
    )
    keys = next((table[columns[name]].tolist() for name in ("path", "row") if name in columns), None)
    return Named(table[labels].tolist(), keys)


def _list(path: Path, paths: Sequence[str] | None) -> Named:
    """``path label`` lines where the paths are the target's, else a class name per line."""
    lines, known = lines_of(path), set(paths or ())
    pairs = [_split(line, known) for line in lines]
    if not any(key in known for key, _ in pairs):
        return Named(lines)
    keys, labels = [key for key, _ in pairs], [label for _, label in pairs]
    if all(label.isdecimal() for label in labels):
        longest = max(labels, key=len)
        require(len(longest) <= 6, f"{path} has the label {longest}: number the classes 0, 1, 2, …")
        names = folder_names(keys, np.array(labels, dtype=np.int64))
        labels = [names[int(label)] for label in labels]
    return Named(labels, keys)


def _split(line: str, known: set[str]) -> tuple[str, str]:
    """A path and the rest of its line, at the blank after a known path, else at the last one."""
    blanks = [place for place, letter in enumerate(line) if letter in " \t"]
    at = next((place for place in reversed(blanks) if line[:place].strip() in known), max(blanks, default=0))
    return line[:at].strip(), line[at:].strip()


def _in_order(found: Named, wanted: Sequence[str], path: Path) -> list[str]:
    """The names in the target's order; labels of other files are left alone."""
    names, keys = found
    if keys is None or list(keys) == list(wanted):
        return names
    by_key = dict(zip(keys, names))
    for key, name in zip(keys, names):
        require(
            by_key[key] == name,
            f"{path} has the labels {name!r} and {by_key[key]!r} for {key!r}: leave one out.",
        )
    for key in wanted:
        require(key in by_key, f"{path} has no label for {key!r} of the target: give one for every row.")
    return [by_key[key] for key in wanted]


# --- scoring ----------------------------------------------------------------------------------------------
# Accuracy, worked out after training by whoever holds target labels. Training never imports this.


LAST, ORACLE = "last", "oracle"


class Evaluated(Protocol):
    """Evaluations, one of them selected: the result of a training, or a run."""

    @property
    def evaluations(self) -> list[Evaluation]: ...  # noqa: D102

    @property
    def best_index(self) -> int: ...  # noqa: D102


def accuracies(evaluations: Sequence[Evaluation], labels: Any) -> pd.DataFrame:
    """Accuracy (0 … 1) of every kept evaluation: columns phase, step, score, candidate, accuracy."""
    y = np.asarray(labels)
    for evaluation in evaluations:
        require(
            y.shape == evaluation.predictions.shape,
            f"{len(evaluation.predictions)} predictions but labels of shape {y.shape}: give one label each.",
        )
    return pd.DataFrame(
        [
            {
                "phase": e.phase,
                "step": e.step,
                "score": e.score,
                "candidate": e.candidate,
                "accuracy": float(np.mean(e.predictions == y)),
            }
            for e in evaluations
        ]
    )


def steps_before(looks: pd.DataFrame) -> pd.Series:
    """Updates before each evaluation, over all phases; `looks` has the columns phase and step."""
    ends = looks.groupby("phase", sort=False)["step"].max()
    return looks["step"] + looks["phase"].map(ends.cumsum() - ends)


def selected_accuracy(result: Evaluated, labels: Any) -> float:
    """Accuracy at the evaluation that the run's rule chose, without labels."""
    return float(accuracies(result.evaluations, labels)["accuracy"].iloc[result.best_index])


@dataclass(frozen=True)
class Score:
    """Of one evaluation.

    `accuracy` is a share of rows; `absent` the share given to classes that the target does not hold; `lost` how
    many present classes are recognised in less than a tenth of their rows.
    """

    accuracy: float
    absent: float
    lost: int


def scored(
    predictions: np.ndarray, candidates: np.ndarray, selected: dict[str, int], labels: np.ndarray
) -> dict[str, Score]:
    """By rule: those that chose without labels, the ``last`` candidate, and the best one (``oracle``).

    `predictions` are of all evaluations, [evaluations, rows]; where none is a candidate, the last one is.
    """
    rows = np.flatnonzero(candidates) if np.any(candidates) else np.array([len(predictions) - 1])
    hits = (predictions == labels).mean(axis=1)
    chosen = {LAST: int(rows[-1]), **selected, ORACLE: int(rows[hits[rows].argmax()])}
    return {rule: _score(predictions[row], labels) for rule, row in chosen.items()}


def summary(result: Evaluated, labels: Any) -> dict[str, Score]:
    """Of the ``last``, the ``selected`` and, knowing the labels, the best candidate (``oracle``) of a run."""
    predictions = np.stack([e.predictions for e in result.evaluations])
    candidates = np.array([e.candidate for e in result.evaluations])
    return scored(predictions, candidates, {"selected": result.best_index}, np.asarray(labels))


def _score(predictions: np.ndarray, labels: np.ndarray) -> Score:
    present = np.unique(labels)
    recall = np.array([np.mean(predictions[labels == c] == c) for c in present])
    absent = float(np.mean(~np.isin(predictions, present)))
    return Score(float(np.mean(predictions == labels)), absent, int(np.sum(recall < 0.1)))
