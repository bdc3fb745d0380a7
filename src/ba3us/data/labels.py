"""Labels of any type → numbers and the classes they stand for."""

from __future__ import annotations

import sys
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
    _check_characters(y, labels)
    _check_each(labels)
    listed = isinstance(y, (list, tuple)) and not isinstance(y[0], (list, tuple, np.ndarray))
    given = y if listed else labels
    try:
        classes, encoded = np.unique(labels, return_inverse=True)
        _check_apart(given, len(classes))
    except TypeError as error:
        kinds = sorted({type(label).__name__ for label in given})
        raise UserError(
            f"The labels are of kinds that can't be ordered ({', '.join(kinds)}): make them all strings."
        ) from error
    for label in classes.tolist():
        require(
            not isinstance(label, str) or _is_text(label),
            f"The label {label!r} is no text (it holds half a character): mend it, or use numbers.",
        )
    require(
        len(classes) > 1,
        f"The source has only one class ({classes[:1].tolist()}): give rows of at least two classes.",
    )
    return classes, encoded


def _check_characters(given: Any, labels: np.ndarray) -> None:
    """An array of text drops zeros at the end; one from a damaged file may hold what is no text."""
    if labels.dtype.kind == "U" and labels.size:
        highest = int(np.ascontiguousarray(labels).view(np.uint32).max()) if labels.itemsize else 0
        require(highest <= sys.maxunicode, f"The labels hold a character {highest}, which is none: mend them.")
    if isinstance(given, (list, tuple)):
        for row, label in enumerate(given):
            ends = isinstance(label, (str, bytes)) and label[-1:] in ("\0", b"\0")
            require(not ends, f"The label {label!r} of row {row} ends in a zero, which arrays drop: mend it.")


def _check_apart(labels: Any, classes: int) -> None:
    """Labels that differ stay different: as an array True and 1 are one, and so are very large numbers."""
    if isinstance(labels, np.ndarray) and labels.dtype.kind != "O":
        return
    if len({isinstance(label, str) + 2 * isinstance(label, bytes) for label in labels}) > 1:
        raise TypeError("text and something else")
    apart = {(isinstance(label, (bool, np.bool_)), label) for label in labels}
    require(
        len(apart) == classes,
        f"The labels hold {len(apart)} different values, but as an array only {classes} (such as True and 1): "
        "make them all strings.",
    )


def _is_text(label: str) -> bool:
    try:
        label.encode()
    except UnicodeEncodeError:
        return False
    return True


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
