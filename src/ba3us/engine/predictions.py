"""Predictions as a table: one row per sample, in a CSV or a Parquet file, written batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ba3us.data import Target
from ba3us.data.tables import new_table
from ba3us.engine.model import Model
from ba3us.errors import optional_import

_GROUP = 16_384  # rows of a Parquet file that are written at once: few of them make it large and slow to read

Rows = list[tuple[Any, int, float]]  # a sample's number or path, the number of its class, its probability


def is_parquet(path: Path) -> bool:
    """Whether a file is to be a Parquet file, by its name; says at once if the package for it is missing."""
    wanted = path.suffix.lower() == ".parquet"
    if wanted:
        optional_import("pyarrow.parquet", "parquet")
    return wanted


def write_predictions(
    path: Path, model: Model, domain: Target, paths: list[str] | None, parquet: bool = False
) -> np.ndarray:
    """A row (or path), class and probability per sample; returns how many samples each class got."""
    classes = model.blueprint.classes
    counts = np.zeros(len(classes), dtype=np.int64)
    key = "row" if paths is None else "path"
    (_write_parquet if parquet else _write_csv)(path, key, _batches(model, domain, paths, counts), classes)
    return counts


def _batches(model: Model, domain: Target, paths: list[str] | None, counts: np.ndarray) -> Iterator[Rows]:
    start = 0
    for _, logits in model.outputs(domain):
        probability, label = logits.softmax(dim=1).max(dim=1)
        counts += np.bincount(label.numpy(), minlength=len(counts))
        end = start + len(label)
        keys = range(start, end) if paths is None else paths[start:end]
        yield list(zip(keys, label.tolist(), probability.tolist()))
        start = end


def _write_csv(path: Path, key: str, batches: Iterator[Rows], classes: list[Any]) -> None:
    with new_table(path, [key, "class", "probability"]) as write:
        for rows in batches:
            for sample, label, probability in rows:
                write([sample, classes[label], f"{probability:.6f}"])


def _write_parquet(path: Path, key: str, batches: Iterator[Rows], classes: list[Any]) -> None:
    arrow, parquet = optional_import("pyarrow", "parquet"), optional_import("pyarrow.parquet", "parquet")
    numbers = all(type(c) is int and -(2**63) <= c < 2**63 for c in classes)
    named = classes if numbers else [_text(c) for c in classes]
    schema = arrow.schema(
        [
            (key, arrow.int64() if key == "row" else arrow.string()),
            ("class", arrow.int64() if numbers else arrow.string()),
            ("probability", arrow.float64()),
        ]
    )
    waiting: Rows = []

    def flush() -> None:
        samples = [sample if key == "row" else _text(sample) for sample, _, _ in waiting]
        columns = [samples, [named[label] for _, label, _ in waiting], [p for _, _, p in waiting]]
        file.write_table(arrow.table(columns, schema=schema))
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
