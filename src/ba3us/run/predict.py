"""Predictions of a model as a table (CSV or Parquet), and a run's samples, opened again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ba3us.assess.calibration import LEVEL, Calibration
from ba3us.data import Target
from ba3us.data.files import new_table
from ba3us.errors import optional_import, require
from ba3us.run.build import Model
from ba3us.run.samples import MoreSamples
from ba3us.run.spec import Spec

_GROUP = 16_384  # rows of a Parquet file that are written at once: fewer make it large and slow to read
_WORDS = {True: "yes", False: "no", None: ""}  # of a CSV file

COLUMNS = ("class", "probability", "confidence", "abstain")


class Row(NamedTuple):
    """A sample's number or path, its predicted label, probability, confidence and whether to abstain.

    `confidence` and `abstain` are None without a calibration.
    """

    sample: Any
    label: int
    probability: float
    confidence: float | None = None
    abstain: bool | None = None


class Tally(NamedTuple):
    """How many samples were predicted as each class, and how many abstained (None: no calibration)."""

    counts: np.ndarray
    abstained: int | None


def is_parquet(path: Path) -> bool:
    """Whether a file name is that of a Parquet file; an error if the package for it is missing."""
    if path.suffix.lower() != ".parquet":
        return False
    optional_import("pyarrow.parquet", "parquet")
    return True


def write_predictions(
    path: Path,
    model: Model,
    domain: Target,
    paths: list[str] | None,
    calibration: Calibration | None,
    max_error: float = LEVEL,
    parquet: bool = False,
) -> Tally:
    """Write a row (or path), class, probability, confidence and whether to abstain for each sample."""
    classes = model.blueprint.classes
    counts, abstained = np.zeros(len(classes), dtype=np.int64), 0

    def tallied() -> Iterator[list[Row]]:
        nonlocal abstained
        for rows in _batches(model, domain, paths, calibration, max_error):
            counts[:] += np.bincount([row.label for row in rows], minlength=len(counts))
            abstained += sum(bool(row.abstain) for row in rows)
            yield rows

    key = "row" if paths is None else "path"
    (_write_parquet if parquet else _write_csv)(path, key, tallied(), classes)
    return Tally(counts, None if calibration is None else abstained)


def _batches(
    model: Model, domain: Target, paths: list[str] | None, calibration: Calibration | None, max_error: float
) -> Iterator[list[Row]]:
    start, threshold = 0, math.nan if calibration is None else calibration.threshold(max_error)
    for _, logits in model.outputs(domain):
        probability, label = logits.softmax(dim=1).max(dim=1)
        end = start + len(label)
        keys = range(start, end) if paths is None else paths[start:end]
        columns: list[Iterable[Any]] = [keys, label.tolist(), probability.tolist()]
        if calibration is not None:
            confidence = calibration.confidence(logits.numpy())
            columns += [confidence.tolist(), (confidence < threshold).tolist()]
        yield [Row(*cells) for cells in zip(*columns)]
        start = end


def _write_csv(path: Path, key: str, batches: Iterator[list[Row]], classes: list[Any]) -> None:
    with new_table(path, [key, *COLUMNS]) as write:
        for rows in batches:
            for row in rows:
                confidence = (
                    ("", "") if row.confidence is None else (f"{row.confidence:.6f}", _WORDS[row.abstain])
                )
                write([row.sample, classes[row.label], f"{row.probability:.6f}", *confidence])


def _write_parquet(path: Path, key: str, batches: Iterator[list[Row]], classes: list[Any]) -> None:
    arrow, parquet = optional_import("pyarrow", "parquet"), optional_import("pyarrow.parquet", "parquet")
    numbers = all(type(c) is int and -(2**63) <= c < 2**63 for c in classes)
    named = classes if numbers else [_text(c) for c in classes]
    types = (
        arrow.int64() if key == "row" else arrow.string(),
        arrow.int64() if numbers else arrow.string(),
        arrow.float64(),
        arrow.float64(),
        arrow.bool_(),
    )
    schema = arrow.schema(list(zip((key, *COLUMNS), types)))
    waiting: list[Row] = []

    def flush() -> None:
        samples, labels, *others = zip(*waiting)
        keys = samples if key == "row" else map(_text, samples)
        columns = [keys, (named[label] for label in labels), *others]
        file.write_table(arrow.table([list(column) for column in columns], schema=schema))
        waiting.clear()

    with parquet.ParquetWriter(path, schema) as file:
        for rows in batches:
            waiting += rows
            if len(waiting) >= _GROUP:
                flush()
        if waiting:
            flush()


def _text(value: Any) -> str:
    r"""As text; bytes of a file name that are none are written as ``\xff``, because Parquet can't hold them."""
    return str(value).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


# --- samples of a run, opened again --------------------------------------------------------------------------


class Rows(NamedTuple):
    """Some samples of a domain, out of `total`.

    `names` are paths or numbers, `features` [n, d] are adapted. `classes` [n] are the source's labels, or the
    target's predictions, and `probabilities` [n] those of the predicted classes.
    """

    names: list[str]
    features: np.ndarray
    classes: np.ndarray
    probabilities: np.ndarray
    total: int


class Both(NamedTuple):
    """Samples of the source and of the target."""

    source: Rows
    target: Rows


def some_rows(model: Model, spec: Spec, sizes: tuple[int, int], max_samples: int) -> Both:
    """Open at most `max_samples` of each domain of a spec again, as the model sees them.

    `sizes` are those that the domains had; an error if files have changed. Only what is needed is decoded.
    """
    require(spec.source is not None and spec.target is not None, "The run was given arrays, not files.")
    opened = model.blueprint.samples.reopen(model, spec, sizes, max_samples)
    return Both(*(_rows(model, samples, size) for samples, size in zip(opened, sizes)))


def _rows(model: Model, samples: MoreSamples, total: int) -> Rows:
    features, predicted, probabilities = [], [], []
    for batch, logits in model.outputs(samples.domain):
        probability, label = logits.softmax(dim=1).max(dim=1)
        features.append(batch.numpy())
        predicted.append(label.numpy())
        probabilities.append(probability.numpy())
    classes = np.concatenate(predicted) if samples.labels is None else samples.labels
    return Rows(samples.paths or [], np.concatenate(features), classes, np.concatenate(probabilities), total)
