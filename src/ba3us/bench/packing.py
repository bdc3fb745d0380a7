"""Runs as rows of the database, and back."""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from ba3us.bench.execute import RULES, Outcome
from ba3us.data.memory import memory
from ba3us.selection import LAST, ORACLE

FIGURES = ("accuracy", "absent", "lost")  # of a run, by rule


def by_rule(runs: list[Any], scores: list[Any]) -> pd.DataFrame:
    """Figures of every run by rule, a column each; NaN where there are none."""
    width, rows = 2 + len(FIGURES), {key: row for row, (key, *_) in enumerate(runs)}
    rules = {rule: number for number, rule in enumerate((LAST, *RULES, ORACLE))}
    cells = list(chain.from_iterable(scores))  # key, rule and figures, one after the other: fast for many
    row, rule = (
        np.array([place.get(cell, -1) for cell in cells[column::width]], dtype=int)
        for column, place in enumerate((rows, rules))
    )
    known, table = (row >= 0) & (rule >= 0), np.full((len(rules), len(FIGURES), len(runs)), np.nan)
    for number in range(len(FIGURES)):
        table[rule[known], number, row[known]] = np.array(cells[2 + number :: width], dtype=float)[known]
    names = [f"{figure}:{rule}" for rule in rules for figure in FIGURES]
    return pd.DataFrame(table.reshape(len(names), -1).T, columns=names)


def packed_outcome(outcome: Outcome) -> tuple[Any, ...]:
    """The last columns of the table of what is kept."""
    tables = [packed_table(table) for table in (outcome.history, outcome.evaluations)]
    means = zlib.compress(outcome.probabilities.astype(np.float32).tobytes())
    said = json.dumps(outcome.said, default=str)
    return *tables, *packed(outcome.predictions), json.dumps(outcome.selected), means, said


def packed_table(table: pd.DataFrame) -> bytes:
    """A table to be kept."""
    return zlib.compress(table.to_csv(index=False).encode())


def unpacked(table: bytes) -> pd.DataFrame:
    """A table that was kept, to the last digit."""
    return pd.read_csv(io.BytesIO(inflated(table)), float_precision="round_trip")


def inflated(packed: bytes) -> bytes:
    """What was compressed, if it is whole and fits into memory."""
    machine = zlib.decompressobj()
    content = machine.decompress(packed, (memory() or 1 << 32) // 4)
    if not machine.eof:
        raise ValueError("it is cut short, or too large")
    return content


def digest(*rows: tuple[Any, ...]) -> str:
    """Changes with every bit of what SQLite gives back."""
    return hashlib.blake2b(repr(rows).encode(errors="surrogateescape"), digest_size=8).hexdigest()


def packed(classes: np.ndarray) -> tuple[bytes, str]:
    """Class numbers in as few bytes as they need, and their type."""
    kind = "uint8" if classes.max() < 256 else "uint16"
    return zlib.compress(classes.astype(kind).tobytes()), kind
