"""Results of many runs in one SQLite file: several processes may write, and a kill loses no finished run."""

from __future__ import annotations

import io
import json
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ba3us.bench.domains import Dataset
from ba3us.bench.execute import RULES, Outcome
from ba3us.bench.jobs import Job
from ba3us.errors import UserError, require
from ba3us.selection import LAST, ORACLE, scored

FORMAT, OURS = 3, 0xBA3  # of the tables below; which programs' databases are ours
_SCHEMA = """
CREATE TABLE runs (
    key TEXT PRIMARY KEY, label TEXT, protocol TEXT, task TEXT, variant TEXT, method TEXT, seed INTEGER,
    settings TEXT, outcome TEXT, reason TEXT, updates INTEGER, seconds REAL, cpu_seconds REAL, finished REAL,
    data TEXT
) WITHOUT ROWID;
CREATE TABLE scores (
    key TEXT, rule TEXT, accuracy REAL, absent REAL, lost INTEGER, PRIMARY KEY (key, rule)
) WITHOUT ROWID;
CREATE TABLE kept (
    key TEXT PRIMARY KEY, spec TEXT, history BLOB, evaluations BLOB, predictions BLOB, kind TEXT, selected TEXT,
    probabilities BLOB, said TEXT
);
CREATE TABLE datasets (
    data TEXT PRIMARY KEY, protocol TEXT, task TEXT, variant TEXT, classes TEXT, labels BLOB, labels_kind TEXT
);
"""


@dataclass(frozen=True)
class Failure:
    """A run that came to nothing, and why."""

    reason: str


@dataclass(frozen=True, eq=False)
class Kept:
    """All that is known of a finished run."""

    spec: dict[str, Any]
    history: pd.DataFrame
    evaluations: pd.DataFrame
    predictions: np.ndarray
    probabilities: np.ndarray
    selected: dict[str, int]
    said: dict[str, Any]
    labels: np.ndarray


class Database:
    """The runs of one file, which is made if it is not there."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        require(not self.path.is_dir(), f"The output {path} is a folder: give the name of a file.")
        with self._named():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._check_whole()
            self._connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            self._check_ours()

    def close(self) -> None:
        """Let the file go."""
        self._connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def outcomes(self) -> dict[str, str]:
        """``ok`` or ``failed`` by key."""
        return dict(self._rows("SELECT key, outcome FROM runs"))

    def has(self, key: str) -> bool:
        """Whether there is a row of that key."""
        return bool(self._rows("SELECT 1 FROM runs WHERE key = ?", key))

    def forget_failed(self, keys: Iterable[str]) -> None:
        """Take away the failed ones of these runs, so that they are run again."""
        with self._writing() as connection:
            for key in keys:
                connection.execute("DELETE FROM runs WHERE key = ? AND outcome = 'failed'", (key,))

    def know(self, protocol: str, datasets: Iterable[Dataset]) -> None:
        """Keep the target's labels of these datasets, once each, for scoring."""
        rows = [
            (d.digest, protocol, d.task, d.variant, json.dumps(d.classes), *_packed(d.labels)) for d in datasets
        ]
        with self._writing() as connection:
            connection.executemany("INSERT OR IGNORE INTO datasets VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def record(self, job: Job, outcome: Outcome | Failure, labels: np.ndarray) -> None:
        """Add a run with its scores; a failed one may be replaced, a finished one stays."""
        named = (job.key, job.label, job.protocol, job.task, job.variant, job.method, job.seed, job.settings)
        rows: dict[str, list[tuple[Any, ...]]]
        if isinstance(outcome, Failure):
            rows = {"kept": [(job.key, json.dumps(job.spec), *[None] * 7)]}
            said: tuple[Any, ...] = ("failed", outcome.reason, 0, 0.0, 0.0)
        else:
            rows = {"kept": [(job.key, json.dumps(job.spec), *_kept(outcome))]}
            candidates = outcome.evaluations["candidate"].to_numpy(bool)
            found = scored(outcome.predictions, candidates, outcome.selected, labels)
            rows["scores"] = [(job.key, rule, *astuple(score)) for rule, score in found.items()]
            said = ("ok", "", outcome.updates, outcome.seconds, outcome.cpu_seconds)
        rows["runs"] = [(*named, *said, time.time(), job.data)]
        with self._writing() as connection:
            before = connection.execute("SELECT outcome FROM runs WHERE key = ?", (job.key,)).fetchone()
            if before != ("ok",):
                for table, content in rows.items():
                    places = ", ".join("?" * len(content[0]))
                    connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({places})", content)

    def table(self) -> pd.DataFrame:
        """A row per run, and for every rule columns ``accuracy:RULE``, ``absent:RULE`` and ``lost:RULE``."""
        rules = (LAST, *RULES, ORACLE)
        figures = [
            f's{i}.{n} AS "{n}:{r}"' for i, r in enumerate(rules) for n in ("accuracy", "absent", "lost")
        ]
        joins = [
            f"LEFT JOIN scores s{i} ON s{i}.key = runs.key AND s{i}.rule = '{r}'" for i, r in enumerate(rules)
        ]
        with self._named():  # joined by SQLite, which has both in the order of their keys
            return pd.read_sql(
                f"SELECT runs.*, {', '.join(figures)} FROM runs {' '.join(joins)}", self._connection
            )

    def specs(self) -> dict[str, dict[str, Any]]:
        """By key: everything that the result of a run depends on."""
        return {key: json.loads(spec) for key, spec in self._rows("SELECT key, spec FROM kept")}

    def kept(self, key: str) -> Kept:
        """All of one finished run, with the labels of its target."""
        columns = (
            "spec, history, evaluations, predictions, kind, selected, probabilities, said, labels, labels_kind"
        )
        found = self._rows(
            f"SELECT {columns} FROM kept JOIN runs USING (key) JOIN datasets USING (data) "
            "WHERE key = ? AND outcome = 'ok'",
            key,
        )
        require(bool(found), f"No finished run in {self.path} has the key {key!r}.")
        spec, history, looks, blob, kind, selected, means, said, labels, labels_kind = found[0]
        evaluations = _unpacked(looks)
        return Kept(
            json.loads(spec),
            _unpacked(history),
            evaluations,
            np.frombuffer(zlib.decompress(blob), kind).reshape(len(evaluations), -1),
            np.frombuffer(zlib.decompress(means), np.float32).reshape(len(evaluations), -1),
            json.loads(selected),
            json.loads(said),
            np.frombuffer(zlib.decompress(labels), labels_kind),
        )

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._named():
            return self._connection.execute(query, values).fetchall()

    def _check_whole(self) -> None:
        """A file that was cut off may open well and fail much later; its header says how long it should be."""
        if not self.path.exists() or self.path.stat().st_size == 0:
            return
        with self.path.open("rb") as file:
            head = file.read(100)
        require(
            head[:16] == b"SQLite format 3\0", f"{self.path} is not a database of runs: choose another --out."
        )
        page = int.from_bytes(head[16:18], "big")
        size = (65536 if page == 1 else page) * int.from_bytes(head[28:32], "big")
        logged = Path(f"{self.path}-wal").exists()  # the newest pages may still be there
        whole = len(head) == 100 and (logged or size <= self.path.stat().st_size)
        require(whole, f"{self.path} is damaged (cut short): restore a copy, or choose another --out.")

    def _check_ours(self) -> None:
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        with self._writing() as connection:
            kind, version = (
                connection.execute(f"PRAGMA {n}").fetchone()[0] for n in ("application_id", "user_version")
            )
            if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {OURS}")
                connection.execute(f"PRAGMA user_version = {FORMAT}")
                return
        require(kind == OURS, f"{self.path} is another program's database: choose another --out.")
        require(
            version == FORMAT,
            f"{self.path} has format {version}, this version reads {FORMAT}: choose another --out.",
        )

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, one writer after the other."""
        with self._named():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (pd.errors.DatabaseError, sqlite3.DatabaseError, OSError) as error:
            said = str(error).splitlines()[-1]
            damaged = isinstance(error, (pd.errors.DatabaseError, sqlite3.DatabaseError))
            damaged = damaged and not isinstance(error, sqlite3.OperationalError)  # locked, read-only
            words = "is damaged" if damaged else "can't be used"
            raise UserError(
                f"{self.path} {words} ({said}): restore a copy, or choose another --out."
            ) from error


def _kept(outcome: Outcome) -> tuple[Any, ...]:
    tables = [zlib.compress(t.to_csv(index=False).encode()) for t in (outcome.history, outcome.evaluations)]
    means = zlib.compress(outcome.probabilities.astype(np.float32).tobytes())
    said = json.dumps(outcome.said, default=str)
    return *tables, *_packed(outcome.predictions), json.dumps(outcome.selected), means, said


def _unpacked(table: bytes) -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(zlib.decompress(table)), float_precision="round_trip")


def _packed(classes: np.ndarray) -> tuple[bytes, str]:
    """Class numbers in as few bytes as they need, and their type."""
    kind = "uint8" if classes.max() < 256 else "uint16"
    return zlib.compress(classes.astype(kind).tobytes()), kind
