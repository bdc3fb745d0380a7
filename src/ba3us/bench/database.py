"""Results of many runs in one SQLite file: several processes may write, and a kill loses no finished run."""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ba3us.assess.scoring import LAST, ORACLE, scored
from ba3us.bench.domains import Dataset
from ba3us.bench.jobs import Job, Outcome
from ba3us.data.machine import total_memory
from ba3us.data.writing import UnwrittenError
from ba3us.errors import UserError, require
from ba3us.training.evaluation import rules_for_records

FORMAT, APPLICATION = 4, 0xBA3  # of the tables below; marks a file as a database of runs
# The last column is a checksum of the row, because SQLite does not notice a changed bit in a value. Columns
# have no types, so that values come back as they were given.
_SCHEMA = """
CREATE TABLE runs (
    key PRIMARY KEY, label, protocol, task, variant, method, seed, settings, outcome, reason, steps, seconds,
    cpu_seconds, finished, data, scores, checksum
) WITHOUT ROWID;
CREATE TABLE specs (key PRIMARY KEY, spec, checksum) WITHOUT ROWID;
CREATE TABLE details (
    key PRIMARY KEY, history, evaluations, predictions, probabilities, selected, summary, checksum
);
CREATE TABLE points (key PRIMARY KEY, points, checksum);
CREATE TABLE datasets (key PRIMARY KEY, protocol, task, variant, classes, labels, checksum);
"""
_WITH_POINTS = "WHERE (outcome = 'failed' OR key IN (SELECT key FROM points))"


@dataclass(frozen=True)
class Failure:
    """A run that failed, and why."""

    reason: str


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A finished run, as :class:`Outcome` describes it, with its spec and the labels of its target."""

    spec: dict[str, Any]
    history: pd.DataFrame
    evaluations: pd.DataFrame
    predictions: np.ndarray
    probabilities: np.ndarray
    selected: dict[str, int]
    summary: dict[str, Any]
    labels: np.ndarray


class Database:
    """The runs of one file, which is created if it does not exist."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        require(not self.path.is_dir(), f"The output {path} is a folder: give the name of a file.")
        with self._errors_named(), ExitStack() as opened:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            opened.callback(self.close)
            self._prepare()
            opened.pop_all()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def outcomes(self, with_points: bool = False) -> dict[str, str]:
        """``ok`` or ``failed`` by key; `with_points`: of finished runs only those that have points."""
        return dict(self._rows(f"SELECT key, outcome FROM runs {_WITH_POINTS if with_points else ''}"))

    def has(self, key: str, with_points: bool = False) -> bool:
        """Whether a run is stored; `with_points`: a finished one must have points."""
        where = _WITH_POINTS if with_points else "WHERE 1"
        return bool(self._rows(f"SELECT 1 FROM runs {where} AND key = ?", key))

    def forget_failed(self, keys: Iterable[str]) -> None:
        """Delete the failed ones of these runs, so that they are run again."""
        with self._writing() as connection:
            for key in keys:
                connection.execute("DELETE FROM runs WHERE key = ? AND outcome = 'failed'", (key,))
                connection.execute(
                    "DELETE FROM specs WHERE key = ? AND key NOT IN (SELECT key FROM runs)", (key,)
                )

    def add_datasets(self, protocol: str, datasets: Iterable[Dataset]) -> None:
        """Store the target's labels of these datasets, once each, for scoring."""
        with self._writing():
            for data in datasets:
                labels = _compressed(data.labels.astype(np.uint16))
                named = (data.digest, protocol, data.task, data.variant, json.dumps(data.classes))
                self._insert("datasets", *named, labels, replace=False)

    def record(self, job: Job, outcome: Outcome | Failure, labels: np.ndarray) -> None:
        """Add a run with its scores.

        A failed run may be replaced. A finished one stays, but points may be added to it.
        """
        named = (job.key, job.label, job.protocol, job.task, job.variant, job.method, job.seed, job.settings)
        scores, result = {}, ("failed", getattr(outcome, "reason", ""), 0, 0.0, 0.0)
        if isinstance(outcome, Outcome):
            candidates = outcome.evaluations["candidate"].to_numpy(bool)
            by_rule = scored(outcome.predictions, candidates, outcome.selected, labels)
            scores = {rule: astuple(score) for rule, score in by_rule.items()}
            result = ("ok", "", outcome.steps, outcome.seconds, outcome.cpu_seconds)
        with self._writing() as connection:
            before = connection.execute("SELECT outcome FROM runs WHERE key = ?", (job.key,)).fetchone()
            if before != ("ok",):
                self._insert("runs", *named, *result, time.time(), job.data, json.dumps(scores))
                self._insert("specs", job.key, json.dumps(job.spec))
                if isinstance(outcome, Outcome):
                    self._insert(
                        "details",
                        job.key,
                        _compressed(outcome.history),
                        _compressed(outcome.evaluations),
                        _compressed(outcome.predictions.astype(np.uint16)),
                        _compressed(outcome.probabilities.astype(np.float32)),
                        json.dumps(outcome.selected),
                        json.dumps(outcome.summary, default=str),
                    )
            if isinstance(outcome, Outcome) and outcome.points is not None:
                self._insert("points", job.key, _compressed(outcome.points), replace=False)

    def table(self, keys: Iterable[str] | None = None) -> pd.DataFrame:
        """A row per run, and for every rule columns ``accuracy:RULE``, ``absent:RULE`` and ``lost:RULE``.

        With `keys`, only these runs, as far as they are stored.
        """
        columns = [column for _, column, *_ in self._rows("PRAGMA table_info(runs)")][:-1]
        keys = None if keys is None else list(keys)
        table = pd.DataFrame(self._verified("runs", keys), columns=columns)
        for (key,) in self._rows("SELECT key FROM specs WHERE key NOT IN (SELECT key FROM runs)"):
            self._require(keys is not None and key not in keys, key)  # its run has been deleted
        by_run = json.loads(f"[{', '.join(table.pop('scores'))}]")
        rules = (LAST, *rules_for_records(), ORACLE)
        values = [[value for rule in rules for value in scores.get(rule, [np.nan] * 3)] for scores in by_run]
        names = [f"{score}:{rule}" for rule in rules for score in ("accuracy", "absent", "lost")]
        scores = pd.DataFrame(np.array(values, dtype=float).reshape(-1, len(names)), columns=names)
        return pd.concat([table, scores], axis=1)

    def specs(self) -> dict[str, dict[str, Any]]:
        """By key: everything that the result of a run depends on."""
        return {key: json.loads(spec) for key, spec in self._verified("specs")}

    def run(self, key: str) -> StoredRun:
        """A finished run, with the labels of its target."""
        data = self._rows("SELECT data FROM runs WHERE key = ? AND outcome = 'ok'", key)
        require(bool(data), f"No finished run in {self.path} has the key {key!r}.")
        (spec,), details, dataset = (
            self._one(*row) for row in (("specs", key), ("details", key), ("datasets", data[0][0]))
        )
        history, evaluations, predictions, probabilities, selected, summary = details
        with self._decoding(key):
            count = len(_table(evaluations))
            return StoredRun(
                json.loads(spec),
                _table(history),
                _table(evaluations),
                np.frombuffer(decompressed(predictions), np.uint16).reshape(count, -1),
                np.frombuffer(decompressed(probabilities), np.float32).reshape(count, -1),
                json.loads(selected),
                json.loads(summary),
                np.frombuffer(decompressed(dataset[-1]), np.uint16),
            )

    def points(self, key: str) -> pd.DataFrame:
        """The samples of both domains in the plane."""
        require(
            bool(self._rows("SELECT 1 FROM points WHERE key = ?", key)),
            f"The run {key} in {self.path} has left nothing to draw: run the command again.",
        )
        (points,) = self._one("points", key)
        with self._decoding(key):
            return _table(points)

    def _one(self, table: str, key: str) -> tuple[Any, ...]:
        """The columns of one row, without key and checksum."""
        rows = self._verified(table, [key])
        self._require(bool(rows), key)
        return rows[0][1:]

    def _verified(self, table: str, keys: list[str] | None = None) -> list[tuple[Any, ...]]:
        """Rows of a table by key, without their checksums, which are compared."""
        where = "" if keys is None else "WHERE key IN (SELECT value FROM json_each(?))"
        values = () if keys is None else (json.dumps(keys),)
        rows = []
        for *row, expected in self._rows(f"SELECT * FROM {table} {where} ORDER BY key", *values):
            self._require(checksum(*row) == expected, row[0])
            rows.append(tuple(row))
        return rows

    def _insert(self, table: str, *row: Any, replace: bool = True) -> None:
        marks, otherwise = ", ".join("?" * (len(row) + 1)), "REPLACE" if replace else "IGNORE"
        values = (*row, checksum(*row))
        self._connection.execute(f"INSERT OR {otherwise} INTO {table} VALUES ({marks})", values)

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._errors_named():
            return self._connection.execute(query, values).fetchall()

    def _require(self, intact: bool, key: str, problem: str = "is not as it was written") -> None:
        require(
            intact,
            f"{self.path} is damaged (the run {key} {problem}): restore a copy, or choose another `out`.",
        )

    @contextmanager
    def _decoding(self, key: str) -> Iterator[None]:
        try:
            yield
        except (zlib.error, ValueError, TypeError):
            self._require(False, key, "can't be read")

    def _prepare(self) -> None:
        """Refuse what is not a whole database of runs, and create the tables of a new one."""
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("PRAGMA trusted_schema = OFF")  # a file's schema calls no functions
        with self._writing() as connection:
            kind, version, pages, size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("application_id", "user_version", "page_count", "page_size")
            )
            if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {FORMAT}")
                kind, version, pages = APPLICATION, FORMAT, 0
            # SQLite notices missing pages, but not a last page that is cut short; new pages may be in the log
            log = Path(f"{self.path}-wal")
            whole = (log.exists() and log.stat().st_size > 0) or pages * size <= self.path.stat().st_size
        require(whole, f"{self.path} is damaged (cut short): restore a copy, or choose another `out`.")
        require(kind == APPLICATION, f"{self.path} is another program's database: choose another `out`.")
        require(
            version == FORMAT,
            f"{self.path} has format {version}, this version reads {FORMAT}: choose another `out`.",
        )

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all or nothing, one writer after the other."""
        with self._errors_named():
            if not self.path.exists():  # SQLite goes on writing to a file that nobody can find any more
                raise FileNotFoundError("the file has vanished")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have ended it
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        """Turn errors of SQLite and of the disk into sentences."""
        try:
            yield
        except (sqlite3.DatabaseError, OSError) as error:
            reason = str(error).splitlines()[-1]
            if isinstance(error, OSError | sqlite3.OperationalError):  # locked, read-only, full
                raise UnwrittenError(
                    f"{self.path} can't be used ({reason}), what it held stays: fix that and run the same "
                    "command again, or choose another `out`."
                ) from error
            foreign = " or not a database of runs" if "not a database" in reason else ""
            raise UserError(
                f"{self.path} is damaged{foreign} ({reason}): restore a copy, or choose another `out`."
            ) from error


def checksum(*row: Any) -> str:
    """Changes with every bit of a row."""
    return hashlib.blake2b(repr(row).encode(errors="surrogateescape"), digest_size=8).hexdigest()


def decompressed(content: bytes) -> bytes:
    """What was compressed, if it is whole and fits into memory."""
    decompressor = zlib.decompressobj()
    whole = decompressor.decompress(content, (total_memory() or 1 << 32) // 4)
    if not decompressor.eof:
        raise ValueError("it is cut short, or too large")
    return whole


def _compressed(content: pd.DataFrame | np.ndarray) -> bytes:
    if isinstance(content, pd.DataFrame):
        return zlib.compress(content.to_csv(index=False).encode())
    return zlib.compress(content.tobytes())


def _table(content: bytes) -> pd.DataFrame:
    """A table to the last digit."""
    return pd.read_csv(io.BytesIO(decompressed(content)), float_precision="round_trip")
