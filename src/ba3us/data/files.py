"""Feature files, labels and tables: what ``ba3us embed`` writes and every command on arrays reads."""

from __future__ import annotations

import csv
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

from ba3us.data.images import check_distinct
from ba3us.data.machine import total_memory
from ba3us.data.writing import check_new_file, new_file
from ba3us.errors import UserError, require

_FORMULA_START = "[=+\\-@\t\r]"  # of a spreadsheet
_FORMULA, _ESCAPED = re.compile(f"'*{_FORMULA_START}"), re.compile(f"'+{_FORMULA_START}")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

# --- tables -----------------------------------------------------------------------------------------------


def read_texts(path: Path) -> pd.DataFrame:
    """Read a CSV file with every cell as text; bytes that are not UTF-8, as in file names, are preserved."""
    try:
        return pd.read_csv(path, dtype=object, keep_default_na=False, encoding_errors="surrogateescape")
    except (OSError, ValueError) as error:
        raise UserError(
            f"The table {path} can't be read ({str(error).splitlines()[0]}): correct it."
        ) from error


@contextmanager
def new_table(path: Path, columns: Iterable[str]) -> Iterator[Callable[[Iterable[Any]], Any]]:
    """Open a CSV file and give a function that writes a row; texts that a spreadsheet would run are escaped."""
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        writer = csv.writer(_SystemLineEnds(file), lineterminator="\r\n")
        writer.writerow(columns)
        yield lambda row: writer.writerow([escaped(cell) for cell in row])


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a file that :func:`new_table` wrote, unescaped."""
    try:
        with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            columns, *rows = csv.reader(file, strict=True)
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"The table {path} can't be read ({error}): make it again.") from error
    for number, row in enumerate(rows, start=1):
        require(
            len(row) in (0, len(columns)),
            f"The table {path} has {len(row)} cells in row {number} for {len(columns)} columns: make it again.",
        )
    return [{key: unescaped(text) for key, text in zip(columns, row)} for row in rows if row]


def escaped(cell: Any) -> Any:
    """Put a quote before a text that starts like a formula and is not a number; other cells are unchanged.

    A quote before such a start is doubled, so that :func:`unescaped` restores every text.
    """
    formula = isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if formula else cell


def unescaped(text: str) -> str:
    """The text before :func:`escaped`."""
    return text[1:] if _ESCAPED.match(text) else text


class _SystemLineEnds:
    """Writes the system's line ends: the csv module quotes a carriage return only if lines end with one."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, line: str) -> int:
        return self._file.write(line.removesuffix("\r\n") + os.linesep)


# --- labels -----------------------------------------------------------------------------------------------


def encoded(y: Any, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Encode the source's labels, of any type → (sorted classes, index of each sample's class)."""
    require(
        y is not None, "fit requires y to be passed, but the target y is None: give one label per source row."
    )
    require(rows > 0, "The source is empty: give at least one sample.")
    require(not sparse.issparse(y), "The labels are a sparse matrix: make them a plain array.")
    try:
        labels = np.asarray(y)
    except ValueError as error:
        raise UserError("The labels are lists of different lengths: give one label per row.") from error
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
    _check_values(y, labels)
    listed = isinstance(y, (list, tuple)) and not isinstance(y[0], (list, tuple, np.ndarray))
    given = y if listed else labels
    try:
        classes, numbers = np.unique(labels, return_inverse=True)
        if listed or labels.dtype.kind == "O":  # an array confuses True with 1, and very large numbers
            if len({isinstance(label, str) + 2 * isinstance(label, bytes) for label in given}) > 1:
                raise TypeError("text and something else")
            different = {(isinstance(label, (bool, np.bool_)), label) for label in given}
            require(
                len(different) == len(classes),
                f"The labels hold {len(different)} different values, but as an array only {len(classes)} "
                "(such as True and 1): make them all strings.",
            )
        for label in classes.tolist():
            if isinstance(label, str):
                label.encode()
    except TypeError as error:
        kinds = sorted({type(label).__name__ for label in given})
        raise UserError(
            f"The labels are of kinds that can't be ordered ({', '.join(kinds)}): make them all strings."
        ) from error
    except UnicodeEncodeError as error:
        raise UserError(
            f"The label {label!r} is not a text (it holds half a character): correct it, or use numbers."
        ) from error
    require(
        len(classes) > 1,
        f"The source has only one class ({classes[:1].tolist()}): give rows of at least two classes.",
    )
    return classes, numbers


def _check_values(given: Any, labels: np.ndarray) -> None:
    """Refuse labels that an array changes or that damaged files hold, missing ones, and measurements."""
    if labels.dtype.kind == "U" and labels.size and labels.itemsize:
        highest = int(np.ascontiguousarray(labels).view(np.uint32).max())
        require(
            highest <= sys.maxunicode, f"The labels hold a character {highest}, which is none: correct them."
        )
    for row, label in enumerate(given if isinstance(given, (list, tuple)) else ()):
        require(
            not (isinstance(label, (str, bytes)) and label[-1:] in ("\0", b"\0")),
            f"The label {label!r} of row {row} ends in a zero, which arrays drop: correct it.",
        )
    numbers = labels if labels.dtype.kind == "f" else np.zeros(len(labels))
    missing = np.flatnonzero(pd.isna(labels) | np.isinf(numbers))
    if len(missing):
        row = int(missing[0])
        raise UserError(f"The label of row {row} is {labels[row]}: label such rows or drop them.")
    fractional = labels[numbers != np.floor(numbers)]
    kind = "continuous, such as " + str(fractional[:1].tolist()) if len(fractional) else str(labels.dtype)
    require(
        labels.dtype.kind in "biufUSO" and not len(fractional),
        f"Unknown label type: {kind}; give strings, whole numbers or booleans as labels.",
    )


# --- feature files ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FeatureSet:
    """Features of samples, and what else is known of them.

    Attributes
    ----------
    features : array [n, d]
        Memory-mapped when it comes from a ``.npy`` file.
    labels : array [n] or None
        As stored: integers, or anything the estimator takes.
    class_names : list of str or None
        Names by integer label.
    paths : list of str or None
        The file of each sample.
    backbone, weights : str or None
        Origin of the features: the backbone's name, and a digest of its weights.
    """

    features: np.ndarray
    labels: np.ndarray | None = None
    class_names: list[str] | None = None
    paths: list[str] | None = None
    backbone: str | None = None
    weights: str | None = None

    @property
    def origin(self) -> Origin:
        """Backbone and weights of the features."""
        return Origin(self.backbone, self.weights)

    def named_labels(self, path: str | Path) -> np.ndarray:
        """The label of each sample: its class name if there are names, else as stored, bytes as text."""
        if self.labels is None:
            place = "" if Path(path).suffix == ".npy" else "save them in it under 'labels', or "
            raise UserError(
                f"{path} has no labels: {place}give a file with `labels`, or, if the labelled file is the "
                "other one, name that first."
            )
        names = self.class_names
        if names is None or self.labels.dtype.kind not in "iu":
            return as_text(self.labels, path)
        _check_class_names(self, path)
        check_distinct(names, path)
        return np.array(names)[self.labels]


class Origin(NamedTuple):
    """Origin of features: a backbone's name and a digest of its weights, as far as they are known."""

    backbone: str | None = None
    weights: str | None = None


def check_same_backbone(source: Origin, other: Origin, path: str | Path) -> None:
    """Refuse the features of `path` if they are known to be of another backbone or other weights."""
    if any(None not in (one, two) and one != two for one, two in zip(source, other)):
        texts = [repr(name) + (f" with weights {digest}" if digest else "") for name, digest in (other, source)]
        raise UserError(
            f"The features of {path} are of {texts[0]}, the source's of {texts[1]}: "
            f"use one backbone with the same weights for both."
        )


def as_text(labels: np.ndarray, path: str | Path) -> np.ndarray:
    """Labels of bytes as text; others unchanged."""
    try:
        return np.char.decode(labels, "utf-8") if labels.dtype.kind == "S" else labels
    except UnicodeDecodeError as error:
        raise UserError(f"{path} has labels or names of bytes that are not text: save strings.") from error


def read_features(path: str | Path) -> FeatureSet:
    """Read a ``.npz`` file with an array ``features`` (and perhaps ``labels``, …) or a bare ``.npy`` array.

    Nothing in the file can run code. Only types and sizes are checked here, not values.
    """
    path = Path(path)
    require(path.is_file(), f"There is no file {path}: check the path, or make one with ba3us embed.")
    require(path.suffix in (".npz", ".npy"), f"{path} is neither .npz nor .npy: give a file that NumPy wrote.")
    with _damage_named(path):
        content = (
            _read_npz(path)
            if path.suffix == ".npz"
            else FeatureSet(np.load(path, mmap_mode="r", allow_pickle=False))
        )
    _check(content, path)
    return content


def read_labels(path: str | Path) -> np.ndarray:
    """Read a ``.npy`` file with one label per row."""
    path = Path(path)
    require(path.is_file(), f"There is no file {path}: give a .npy file with one label per row.")
    require(path.suffix == ".npy", f"The labels {path} are not .npy: give a file that numpy.save wrote.")
    with _damage_named(path):
        labels = np.load(path, allow_pickle=False)
    require(
        isinstance(labels, np.ndarray), f"{path} holds several arrays: call it .npz, or save the labels alone."
    )
    require(labels.ndim == 1, f"The labels {path} have shape {labels.shape}: give one label per row.")
    return labels


def read_named_labels(path: str | Path) -> tuple[np.ndarray, list[str] | None]:
    """Labels, by name if there are names, and the paths of their samples if there are some.

    From a ``.npy`` file of labels or a ``.npz`` file with ``labels`` (and perhaps ``class_names``, ``paths``).
    """
    path = Path(path)
    if path.suffix == ".npy":
        return as_text(read_labels(path), path), None
    with _damage_named(path):
        content = _read_npz(path, "labels")
    _check(content, path)
    return content.named_labels(path), content.paths


def write_features(path: str | Path, content: FeatureSet) -> None:
    """Write a ``.npz`` file, whole or not at all."""
    path = Path(path)
    _check(content, path)
    arrays = {"features": content.features} | ({} if content.labels is None else {"labels": content.labels})
    texts = {"class_names": content.class_names, "paths": content.paths, **content.origin._asdict()}
    arrays |= {key: np.array(text, dtype=np.str_) for key, text in texts.items() if text is not None}
    with new_file(path) as part, open(part, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)  # type: ignore[arg-type]


def check_writable(path: str | Path) -> None:
    """Fail before the work rather than after it if `path` can't become a ``.npz`` file."""
    path = Path(path)
    require(path.suffix == ".npz", f"The output {path} must end in .npz.")
    check_new_file(path)


def _read_npz(path: Path, needed: str = "features") -> FeatureSet:
    """All of a file or, where only labels are `needed`, all but its features."""
    with np.load(path, allow_pickle=False) as file:
        require(hasattr(file, "zip"), f"{path} holds a bare array: call it .npy, or save it with numpy.savez.")
        size, limit = 0, total_memory()
        for record in file.zip.infolist():
            file.zip.open(record).close()  # an error if its name differs from that in the index
            size += record.file_size if needed == "features" or record.filename != "features.npy" else 0
        require(
            limit is None or size <= limit,
            f"{path} holds {size / 1e9:.1f} GB of arrays, but there are {(limit or 0) / 1e9:.1f} GB of memory: "
            "save the features as .npy, which stays on disk.",
        )
        require(
            needed in file.files,
            f"{path} has no array {needed!r} (it has: {', '.join(file.files) or 'none'}): "
            f"save one under that name.",
        )
        known = ("labels", "class_names", "paths", "backbone", "weights")
        arrays = {key: file[key] for key in known if key in file.files}
        features = file["features"] if needed == "features" else np.zeros((np.size(arrays[needed]), 1))
    lists = {key: np.atleast_1d(arrays[key]) for key in ("class_names", "paths") if key in arrays}
    texts = {key: [str(text) for text in as_text(array, path)] for key, array in lists.items()}
    origin = {  # other arrays of these names are ignored
        key: str(arrays[key])
        for key in ("backbone", "weights")
        if key in arrays and arrays[key].ndim == 0 and arrays[key].dtype.kind == "U"
    }
    labels = arrays.get("labels")
    if labels is not None and "class_names" in texts and labels.dtype.kind in "bf":
        numbers = labels.astype(np.float64)
        whole = (np.abs(numbers) < 2**53) & (
            numbers == np.floor(numbers)
        )  # neither holds for NaN and infinities
        if not whole.all():
            bad = labels[~whole].flat[0]
            raise UserError(f"{path} has class names but a label {bad}: give the number of a class instead.")
        labels = labels.astype(np.int64)
    return FeatureSet(features, labels, **texts, **origin)  # type: ignore[arg-type]


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # zip, zlib and header parsers each raise their own kinds
        detail = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise UserError(
            f"{path} can't be read ({detail}): it is damaged, cut short, or holds Python objects; "
            f"make it again."
        ) from error


def _check(content: FeatureSet, path: Path) -> None:
    features = content.features
    require(
        isinstance(features, np.ndarray) and features.ndim >= 2,
        f"The features of {path} have shape {np.shape(features)}: give an array of samples [n, features].",
    )
    require(
        0 not in features.shape[1:],
        f"The features of {path} have shape {features.shape}: give at least one column.",
    )
    for name, values in (("labels", content.labels), ("paths", content.paths)):
        if values is not None and np.shape(values) != (len(features),):
            raise UserError(
                f"{path} has {len(features)} rows of features but {name} of shape {np.shape(values)}: "
                f"give one per row."
            )
    _check_class_names(content, path)


def _check_class_names(content: FeatureSet, path: str | Path) -> None:
    names, labels = content.class_names, content.labels
    if names is None or labels is None or labels.dtype.kind not in "iu" or not len(labels):
        return
    require(
        int(labels.min()) >= 0 and int(labels.max()) < len(names),
        f"{path} has labels {labels.min()} … {labels.max()} but {len(names)} class names: "
        f"give one name per label.",
    )
