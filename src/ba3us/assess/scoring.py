"""Target labels, and accuracy computed with them after training. Training never imports this module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from ba3us.data.files import read_named_labels, read_texts
from ba3us.data.images import folder_names, lines_of, read_images
from ba3us.errors import UserError, did_you_mean, require
from ba3us.training import Evaluation

LAST, ORACLE = "last", "oracle"


def read_target_labels(
    path: str | Path, classes: Sequence[Any], n_samples: int, paths: Sequence[str] | None = None
) -> np.ndarray:
    """Read the class of every target sample as an index of the run's `classes`, matched by name, int64 [n].

    Parameters
    ----------
    path : path
        ``.npy`` (one label per sample), ``.npz`` (``labels``, perhaps ``class_names``), ``.csv`` (a column
        ``class`` or ``label``, perhaps ``path`` or ``row``), a folder of class folders, or a text file with
        ``path label`` or a class name on each line.
    classes : sequence
        Of the run.
    n_samples : int
        Of the target.
    paths : sequence of str, optional
        Of the target samples. Labels that come with paths are matched by them.
    """
    path = Path(path)
    require(path.exists(), f"There is no file {path} with the target's labels: check the path.")
    names, keys = _read_names(path, paths)
    if keys is not None:
        names = _matched(names, keys, paths or [str(row) for row in range(n_samples)], path)
    require(
        len(names) == n_samples,
        f"{path} has {len(names)} labels, but the target has {n_samples} samples: give one label each.",
    )
    index = {text_of(name): label for label, name in enumerate(classes)}
    for row, name in enumerate(names):
        if name not in index:
            raise UserError(
                f"{path} has the label {name!r} for row {row}, which is not a class of the run: "
                f"{did_you_mean(name, index)}"
            )
    return np.array([index[name] for name in names], dtype=np.int64)


def text_of(label: Any) -> str:
    """A label as text: 3 and 3.0 are the same class."""
    return str(int(label) if isinstance(label, float) and label.is_integer() else label)


def _read_names(path: Path, paths: Sequence[str] | None) -> tuple[list[str], list[str] | None]:
    """Class names, and the paths or row numbers they are for; None if they are in the target's order."""
    if path.is_dir():
        images = read_images(path, labelled=True)
        assert images.labels is not None
        assert images.class_names is not None
        return [images.class_names[label] for label in images.labels], images.paths
    if path.suffix in (".npz", ".npy"):
        labels, keys = read_named_labels(path)
        return [text_of(label) for label in labels.tolist()], keys
    if path.suffix != ".csv":
        return _read_list(path, set(paths or ()))
    table = read_texts(path)
    columns = {str(name).strip().lower(): name for name in table}
    label_column = next((columns[name] for name in ("class", "label") if name in columns), None)
    require(
        label_column is not None,
        f"{path} has the columns {', '.join(map(str, table))}: call that with the labels 'class' or 'label'.",
    )
    keys = next((table[columns[name]].tolist() for name in ("path", "row") if name in columns), None)
    return table[label_column].tolist(), keys


def _read_list(path: Path, known_paths: set[str]) -> tuple[list[str], list[str] | None]:
    """Read ``path label`` lines if the paths are the target's, else a class name per line."""
    lines, keys, names = lines_of(path), [], []
    for line in lines:  # split at the blank after a known path, else at the last one
        blanks = [position for position, letter in enumerate(line) if letter in " \t"]
        known = (each for each in reversed(blanks) if line[:each].strip() in known_paths)
        end = next(known, max(blanks, default=0))
        keys.append(line[:end].strip())
        names.append(line[end:].strip())
    if known_paths.isdisjoint(keys):
        return lines, None
    if all(name.isdecimal() for name in names):
        longest = max(names, key=len)
        require(len(longest) <= 6, f"{path} has the label {longest}: number the classes 0, 1, 2, …")
        folders = folder_names(keys, np.array(names, dtype=np.int64))
        names = [folders[int(name)] for name in names]
    return names, keys


def _matched(names: list[str], keys: Sequence[str], wanted: Sequence[str], path: Path) -> list[str]:
    """The names in the order of the `wanted` keys; other keys are ignored."""
    if list(keys) == list(wanted):
        return names
    by_key = dict(zip(keys, names))
    for key, name in zip(keys, names):
        require(
            by_key[key] == name,
            f"{path} has the labels {name!r} and {by_key[key]!r} for {key!r}: leave one out.",
        )
    for key in wanted:
        require(key in by_key, f"{path} has no label for {key!r} of the target: give one for every sample.")
    return [by_key[key] for key in wanted]


class Evaluated(Protocol):
    """Evaluations, one of them selected: the result of a training, or a run."""

    @property
    def evaluations(self) -> list[Evaluation]: ...  # noqa: D102

    @property
    def best_index(self) -> int: ...  # noqa: D102


def accuracies(evaluations: Sequence[Evaluation], labels: Any) -> pd.DataFrame:
    """Compute the accuracy (0 … 1) of every evaluation: columns phase, step, score, candidate, accuracy."""
    y = np.asarray(labels)
    for e in evaluations:
        require(
            y.shape == e.predictions.shape,
            f"{len(e.predictions)} predictions but labels of shape {y.shape}: give one label each.",
        )
    columns = ("phase", "step", "score", "candidate")
    table = pd.DataFrame([{name: getattr(e, name) for name in columns} for e in evaluations])
    return table.assign(accuracy=[float(np.mean(e.predictions == y)) for e in evaluations])


def steps_before(evaluations: pd.DataFrame) -> pd.Series:
    """Count the steps before each evaluation, over all phases, from the columns phase and step."""
    ends = evaluations.groupby("phase", sort=False)["step"].max()
    return evaluations["step"] + evaluations["phase"].map(ends.cumsum() - ends)


def selected_accuracy(result: Evaluated, labels: Any) -> float:
    """Compute the accuracy of the evaluation that was selected without labels."""
    return float(accuracies(result.evaluations, labels)["accuracy"].iloc[result.best_index])


@dataclass(frozen=True)
class Score:
    """Scores of one evaluation.

    `accuracy` is a proportion of samples, and `absent` the proportion predicted as a class that the target does
    not hold. `lost` counts the present classes with a recall below a tenth.
    """

    accuracy: float
    absent: float
    lost: int


def scored(
    predictions: np.ndarray, candidates: np.ndarray, selected: dict[str, int], labels: np.ndarray
) -> dict[str, Score]:
    """Score by rule: `selected` without labels, the ``last`` candidate, and the most accurate one (``oracle``).

    `predictions` are of all evaluations, [evaluations, samples]. If none is a candidate, the last one is.
    """
    rows = np.flatnonzero(candidates) if np.any(candidates) else np.array([len(predictions) - 1])
    hits = predictions == labels
    by_rule = {LAST: int(rows[-1]), **selected, ORACLE: int(rows[hits[rows].mean(axis=1).argmax()])}
    present = np.unique(labels)
    scores = {}
    for rule, row in by_rule.items():
        recall = np.array([hits[row, labels == c].mean() for c in present])
        absent = float(np.mean(~np.isin(predictions[row], present)))
        scores[rule] = Score(float(hits[row].mean()), absent, int(np.sum(recall < 0.1)))
    return scores


def summary(result: Evaluated, labels: Any) -> dict[str, Score]:
    """Score the ``last``, the ``selected`` and the most accurate candidate (``oracle``) of a run."""
    predictions = np.stack([e.predictions for e in result.evaluations])
    candidates = np.array([e.candidate for e in result.evaluations])
    return scored(predictions, candidates, {"selected": result.best_index}, np.asarray(labels))
