"""Feature arrays: values that are none, columns that say nothing, and scales that do not fit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ba3us.checking.findings import NOTE, STOP, WARNING, Finding, many, some
from ba3us.data.mapped import let_go

_CHUNK_VALUES = 1 << 22  # values looked at at once
_MOST = float(np.finfo(np.float32).max)
_TIMES = 10.0  # one domain's scale over the other's
_LEAST = 1e-6  # of a column's mean: a smaller deviation is rounding


def chunks(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(start, rows [n, values] as float32 or float64) for all of an array, some rows at a time."""
    width = int(np.prod(array.shape[1:]))
    step = max(1, _CHUNK_VALUES // max(1, width))
    for start in range(0, len(array), step):
        rows = np.asarray(array[start : start + step]).reshape(-1, width)
        yield start, rows.astype(np.float64 if rows.dtype == np.float64 else np.float32, copy=False)
        if isinstance(array, np.memmap):
            let_go(array)


def good_rows(array: np.ndarray) -> np.ndarray:
    """Which rows hold nothing but numbers that float32 can hold."""
    with np.errstate(invalid="ignore"):
        return np.concatenate([(np.abs(rows) <= _MOST).all(axis=1) for _, rows in chunks(array)])


def not_finite(domain: str, good: np.ndarray) -> Iterator[Finding]:
    """Rows with NaN, infinite or overlarge values."""
    bad = [f"row {row}" for row in np.flatnonzero(~good)]
    if bad:
        yield Finding.of(
            STOP,
            f"not finite in {domain}",
            f"{many(len(bad), f'row of the {domain} has', f'rows of the {domain} have')} values that are NaN, "
            f"infinite or beyond float32: {some(bad)}.",
            "Drop or fill these rows: training refuses them.",
            bad,
        )


def constant(rows: np.ndarray, domain: str) -> Iterator[Finding]:
    """Columns that are the same in all of `rows`."""
    wide = rows.astype(np.float64)
    still = np.flatnonzero(wide.std(axis=0) <= _LEAST * np.abs(wide.mean(axis=0)))
    if not len(still):
        return
    all_of_them = len(still) == rows.shape[1]
    told = [f"column {column}" for column in still]
    yield Finding.of(
        STOP if all_of_them else NOTE,
        f"constant columns in {domain}",
        f"{many(len(still), 'column is', 'columns are')} the same in all rows of the {domain}, of "
        f"{rows.shape[1]:,}: {some(told)}.",
        "Make the features again: all rows are the same."
        if all_of_them
        else "Nothing, if that is known: they say nothing.",
        told,
    )


def scales(source: np.ndarray, target: np.ndarray) -> Iterator[Finding]:
    """Domains of which one is much larger than the other: another unit, or another normalisation."""
    sizes = [float(np.sqrt(np.mean(np.square(rows, dtype=np.float64)))) for rows in (source, target)]
    large, small = max(sizes), min(sizes)
    if large > _TIMES * small:
        yield Finding(
            WARNING,
            "scales apart",
            f"Values of the source are of size {sizes[0]:.3g}, of the target {sizes[1]:.3g}.",
            "Make both in the same way: the same units, the same normalisation, the same backbone.",
        )
