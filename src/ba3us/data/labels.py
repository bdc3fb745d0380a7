"""Labels of any type → numbers and the classes they stand for."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

from ba3us.errors import UserError, require


def encoded(y: Any, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels of the source → (its classes, sorted; each row's class as an index into them)."""
    require(
        y is not None, "fit requires y to be passed, but the target y is None: give one label per source row."
    )
    require(rows > 0, "The source is empty: give at least one sample.")
    require(not sparse.issparse(y), "The labels are a sparse matrix: make them a plain array.")
    labels = _array(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected.", DataConversionWarning, stacklevel=3
        )
        labels = labels.ravel()
    require(
        labels.ndim == 1, f"The labels have shape {labels.shape}: y should be a 1d array, one label per row."
    )
    require(
        len(labels) == rows, f"The source has {rows} rows but {len(labels)} labels: give one label per row."
    )
    _check_each(labels)
    try:
        classes, encoded = np.unique(labels, return_inverse=True)
    except TypeError as error:
        kinds = sorted({type(label).__name__ for label in labels})
        raise UserError(
            f"The labels are of kinds that can't be ordered ({', '.join(kinds)}): make them all strings."
        ) from error
    require(
        len(classes) > 1,
        f"The source has only one class ({classes[:1].tolist()}): give rows of at least two classes.",
    )
    return classes, encoded


def _array(y: Any) -> np.ndarray:
    try:
        return np.asarray(y)
    except ValueError as error:
        raise UserError("The labels are lists of different lengths: give one label per row.") from error


def _check_each(labels: np.ndarray) -> None:
    """Every label is there, and is a class rather than a measurement."""
    bad = pd.isna(labels)
    if labels.dtype.kind == "f":
        bad |= np.isinf(labels)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise UserError(f"The label of row {row} is {labels[row]}: label such rows or drop them.")
    require(
        labels.dtype.kind in "biufUSO",
        f"Unknown label type: {labels.dtype}; give strings, whole numbers or booleans as labels.",
    )
    if labels.dtype.kind == "f":
        broken = np.flatnonzero(labels != np.floor(labels))
        require(
            not len(broken),
            f"Unknown label type: continuous, such as {labels[broken[:1]].tolist()}; "
            "give strings, whole numbers or booleans as labels.",
        )
