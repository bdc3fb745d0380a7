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
            f"The label {label!r} is no text (it holds half a character): correct it, or use numbers.",
        )
    require(
        len(classes) > 1,
        f"The source has only one class ({classes[:1].tolist()}): give rows of at least two classes.",
    )
    return classes, encoded


def _check_characters(given: Any, labels: np.ndarray) -> None:
    """Refuse texts that an array would change (zeros at the end), and invalid characters of damaged files."""
    if labels.dtype.kind == "U" and labels.size:
        highest = int(np.ascontiguousarray(labels).view(np.uint32).max()) if labels.itemsize else 0
        require(
            highest <= sys.maxunicode, f"The labels hold a character {highest}, which is none: correct them."
        )
    if isinstance(given, (list, tuple)):
        for row, label in enumerate(given):
            ends = isinstance(label, (str, bytes)) and label[-1:] in ("\0", b"\0")
            require(
                not ends, f"The label {label!r} of row {row} ends in a zero, which arrays drop: correct it."
            )


def _check_apart(labels: Any, classes: int) -> None:
    """Require that different labels stay different: arrays confuse True with 1, and very large numbers."""
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
    """Refuse missing labels, and labels that are measurements."""
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
        fractional = np.flatnonzero(labels != np.floor(labels))
        require(
            not len(fractional),
            f"Unknown label type: continuous, such as {labels[fractional[:1]].tolist()}; "
            "give strings, whole numbers or booleans as labels.",
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
    for one, two in zip(source, other):
        require(
            one is None or two is None or one == two,
            f"The features of {path} are of {_words(other)}, the source's of {_words(source)}: "
            f"use one backbone with the same weights for both.",
        )


def as_text(labels: np.ndarray, path: str | Path) -> np.ndarray:
    """Labels of bytes as text; others unchanged."""
    try:
        return np.char.decode(labels, "utf-8") if labels.dtype.kind == "S" else labels
    except UnicodeDecodeError as error:
        raise UserError(f"{path} has labels or names of bytes that are no text: save strings.") from error


def read_features(path: str | Path) -> FeatureSet:
    """Read a ``.npz`` file with an array ``features`` (and perhaps ``labels``, …) or a bare ``.npy`` array.

    Nothing in the file can run code. Only types and sizes are checked here, not values.
    """
    path = Path(path)
    require(path.is_file(), f"There is no file {path}: check the path, or make one with ba3us embed.")
    require(path.suffix in (".npz", ".npy"), f"{path} is neither .npz nor .npy: give a file that NumPy wrote.")
    with _damage_named(path):
        content = _read_npz(path) if path.suffix == ".npz" else FeatureSet(_read_npy(path))
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
    arrays = {"features": content.features}
    if content.labels is not None:
        arrays["labels"] = content.labels
    if content.class_names is not None:
        arrays["class_names"] = np.array(content.class_names, dtype=np.str_)
    if content.paths is not None:
        arrays["paths"] = np.array(content.paths, dtype=np.str_)
    for key, text in content.origin._asdict().items():
        if text is not None:
            arrays[key] = np.array(text)
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
        _check_archive(file, path, needed)
        require(
            needed in file.files,
            f"{path} has no array {needed!r} (it has: {', '.join(file.files) or 'none'}): "
            f"save one under that name.",
        )

        def optional(key: str) -> np.ndarray | None:
            return file[key] if key in file.files else None

        def texts(key: str) -> list[str] | None:
            array = optional(key)
            return None if array is None else [str(text) for text in as_text(np.atleast_1d(array), path)]

        def text(key: str) -> str | None:
            """A single text; any other array of this name is ignored."""
            array = optional(key)
            return str(array) if array is not None and array.ndim == 0 and array.dtype.kind == "U" else None

        labels, names = optional("labels"), texts("class_names")
        return FeatureSet(
            file["features"] if needed == "features" else np.zeros((np.size(file[needed]), 1)),
            labels=labels if labels is None or names is None else _whole_numbers(labels, path),
            class_names=names,
            paths=texts("paths"),
            backbone=text("backbone"),
            weights=text("weights"),
        )


def _check_archive(file: Any, path: Path, needed: str) -> None:
    """Require an archive whose arrays fit into memory and have one name in its index and beside the data.

    Otherwise an array with a damaged name would count as missing.
    """
    require(hasattr(file, "zip"), f"{path} holds a bare array: call it .npy, or save it with numpy.savez.")
    size, limit = 0, total_memory()
    for record in file.zip.infolist():
        file.zip.open(record).close()
        size += record.file_size if needed == "features" or record.filename != "features.npy" else 0
    require(
        limit is None or size <= limit,
        f"{path} holds {size / 1e9:.1f} GB of arrays, but there are {(limit or 0) / 1e9:.1f} GB of memory: "
        "save the features as .npy, which stays on disk.",
    )


def _read_npy(path: Path) -> np.ndarray:
    return np.load(path, mmap_mode="r", allow_pickle=False)


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


def _whole_numbers(labels: np.ndarray, path: Path) -> np.ndarray:
    """Labels that point to class names as integers, also where they were stored as floats."""
    if labels.dtype.kind not in "bf":
        return labels
    numbers = labels.astype(np.float64)
    whole = (np.abs(numbers) < 2**53) & (numbers == np.floor(numbers))  # neither is true of NaN and infinities
    if not whole.all():
        bad = labels[~whole].flat[0]
        raise UserError(f"{path} has class names but a label {bad}: give the number of a class instead.")
    return labels.astype(np.int64)


def _words(origin: Origin) -> str:
    weights = f" with weights {origin.weights}" if origin.weights else ""
    return f"{origin.backbone!r}{weights}"


def _check_class_names(content: FeatureSet, path: str | Path) -> None:
    names, labels = content.class_names, content.labels
    if names is None or labels is None or labels.dtype.kind not in "iu" or not len(labels):
        return
    require(
        int(labels.min()) >= 0 and int(labels.max()) < len(names),
        f"{path} has labels {labels.min()} … {labels.max()} but {len(names)} class names: "
        f"give one name per label.",
    )
