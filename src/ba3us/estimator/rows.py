"""What scikit-learn users may pass as rows, checked: features, or both domains in one array."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import validate_data

from ba3us.data.domain import check_numbers
from ba3us.errors import UserError, require


def check_rows(estimator: Any, x: Any, name: str, *, reset: bool = False) -> np.ndarray:
    """Anything two-dimensional as an array of numbers; a memory-mapped one as it is.

    With `reset` the estimator learns number and names of the features, else they must be those it knows.
    Values are not looked at.
    """
    require(not sparse.issparse(x), f"The {name} is a sparse matrix: make it dense with toarray().")
    require(
        not isinstance(x, str | PurePath),
        f"The {name} is the text {str(x)!r}: load the file, give its array.",
    )
    try:
        x = x if hasattr(x, "shape") else np.asarray(x)
        require(
            len(x.shape) == 2,
            f"The {name} has shape {tuple(x.shape)}: Reshape your data to [n, features], one row per sample.",
        )
        if not reset:
            _check_width(estimator, x.shape[1], name)
        if isinstance(x, np.memmap):
            require(x.shape[1] > 0, f"The {name} has 0 features: give at least one column.")
            if reset:
                estimator.n_features_in_ = x.shape[1]
            return x
        return validate_data(
            estimator, x, reset=reset, dtype="numeric", ensure_all_finite=False, ensure_min_samples=0
        )
    except UserError:
        raise
    except (ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0][:300].rstrip(".")  # what follows is the data
        raise UserError(f"The {name} can't be used ({reason}): give an array of numbers.") from error


def split_domains(x: np.ndarray, y: Any, sample_domain: Any) -> tuple[np.ndarray, Any, np.ndarray | None]:
    """By the sign in `sample_domain`: source rows, their labels, target rows (None if there are none).

    Labels of target rows are left behind unread.
    """
    check_numbers(x, "X")  # here, where row numbers are still the user's
    domain = np.asarray(sample_domain)
    require(
        domain.shape == (len(x),) and domain.dtype.kind in "iuf",
        f"sample_domain has shape {domain.shape} and type {domain.dtype} for {len(x)} rows: "
        "give one number per row, positive for source and negative for target.",
    )
    unclear = np.flatnonzero(~((domain > 0) | (domain < 0)))
    if len(unclear):
        raise UserError(
            f"sample_domain is {domain[unclear[0]]} in row {unclear[0]}: "
            "make it positive for source rows and negative for target rows."
        )
    is_source = domain > 0
    require(bool(is_source.any()), "sample_domain has no source row: give source rows a positive number.")
    rows = np.flatnonzero(is_source)
    if y is not None:
        length = len(y) if hasattr(y, "__len__") else np.asarray(y).size
        require(length == len(x), f"X has {len(x)} rows but {length} labels: give one label per row.")
        y = _take(y, rows)
    targets = np.flatnonzero(~is_source)
    return _block(x, rows), y, _block(x, targets) if len(targets) else None


def _check_width(estimator: Any, width: int, name: str) -> None:
    known = estimator.n_features_in_
    if width != known:
        said = (
            f"X has {width} features, but {type(estimator).__name__} is expecting {known} features as input"
            if name == "X"  # scikit-learn's words
            else f"The {name} has {width} features, the source {known}"
        )
        raise UserError(f"{said}: give both the same columns.")


def _take(y: Any, rows: np.ndarray) -> Any:
    """Labels of some rows; a list is not made an array before, which could change the labels' type."""
    if hasattr(y, "iloc"):
        return y.iloc[rows]
    return y[rows] if isinstance(y, np.ndarray) else [y[row] for row in rows]


def _block(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows of `x`: a view if they are one block (of a mapped file nothing is read), else a copy."""
    first, last = int(rows[0]), int(rows[-1])
    return x[first : last + 1] if last - first + 1 == len(rows) else x[rows]
