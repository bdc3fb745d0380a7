"""Results of many runs in one SQLite file: several processes may write, and a kill loses no finished run."""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from itertools import chain, groupby
from operator import itemgetter
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

# --- packing ----------------------------------------------------------------------------------------------
# Runs as rows of the database, and back.


FIGURES = ("accuracy", "absent", "lost")  # of a run, by rule


def by_rule(runs: list[Any], scores: list[Any]) -> pd.DataFrame:
    """Figures of every run by rule, a column each; NaN where there are none."""
    width, rows = 2 + len(FIGURES), {key: row for row, (key, *_) in enumerate(runs)}
    rules = {rule: number for number, rule in enumerate((LAST, *rules_for_records(), ORACLE))}
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
    content = machine.decompress(packed, (total_memory() or 1 << 32) // 4)
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


# --- database ---------------------------------------------------------------------------------------------
# Results of many runs in one SQLite file: several processes may write, and a kill loses no finished run.


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
# Of the rows above as they were written, because SQLite itself does not notice a changed bit. Runs of files
# that were begun before there were digests have none, and are believed.
_DIGESTS = """
CREATE TABLE IF NOT EXISTS digests (key TEXT PRIMARY KEY, figures TEXT, spec TEXT, kept TEXT) WITHOUT ROWID
"""
_DRAWN = "WHERE (outcome = 'failed' OR key IN (SELECT key FROM points))"
# both domains in the plane, of the few runs that were drawn, and a digest of that
_POINTS = "CREATE TABLE IF NOT EXISTS points (key TEXT PRIMARY KEY, content BLOB, digest TEXT)"


@dataclass(frozen=True)
class Failure:
    """A run that came to nothing, and why."""

    reason: str


@dataclass(frozen=True, eq=False)
class KeptRun:
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
            try:
                self._check_ours()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Let the file go."""
        self._connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def outcomes(self, drawn: bool = False) -> dict[str, str]:
        """``ok`` or ``failed`` by key; `drawn`: of finished runs only those with points."""
        return dict(self._rows(f"SELECT key, outcome FROM runs {_DRAWN if drawn else ''}"))

    def has(self, key: str, drawn: bool = False) -> bool:
        """Whether there is a row of that key; `drawn`: if it is of a finished run, with points."""
        return bool(self._rows(f"SELECT 1 FROM runs {_DRAWN if drawn else 'WHERE 1'} AND key = ?", key))

    def points(self, key: str) -> pd.DataFrame:
        """What a run left to be drawn."""
        found = self._rows("SELECT content, digest FROM points WHERE key = ?", key)
        require(bool(found), f"The run {key} in {self.path} has left nothing to draw: run the command again.")
        self._require(found[0][1] == digest((key, found[0][0])), key)
        with self._readable(key):
            return unpacked(found[0][0])

    def forget_failed(self, keys: Iterable[str]) -> None:
        """Take away the failed ones of these runs, so that they are run again."""
        with self._writing() as connection:
            for key in keys:
                connection.execute("DELETE FROM runs WHERE key = ? AND outcome = 'failed'", (key,))
                connection.execute(
                    "DELETE FROM digests WHERE key = ? AND key NOT IN (SELECT key FROM runs)", (key,)
                )

    def know(self, protocol: str, datasets: Iterable[Dataset]) -> None:
        """Keep the target's labels of these datasets, once each, for scoring."""
        rows = [
            (d.digest, protocol, d.task, d.variant, json.dumps(d.classes), *packed(d.labels)) for d in datasets
        ]
        with self._writing() as connection:
            connection.executemany("INSERT OR IGNORE INTO datasets VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def record(self, job: Job, outcome: Outcome | Failure, labels: np.ndarray) -> None:
        """Add a run with its scores; a failed one may be replaced, a finished one stays but may get points."""
        named = (job.key, job.label, job.protocol, job.task, job.variant, job.method, job.seed, job.settings)
        rows: dict[str, list[tuple[Any, ...]]]
        if isinstance(outcome, Failure):
            rows = {"kept": [(job.key, json.dumps(job.spec), *[None] * 7)]}
            said: tuple[Any, ...] = ("failed", outcome.reason, 0, 0.0, 0.0)
        else:
            rows = {"kept": [(job.key, json.dumps(job.spec), *packed_outcome(outcome))]}
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
                # of what is there now: SQLite may have made an integer a float
                run, scores = (
                    connection.execute(f"SELECT * FROM {table} WHERE key = ?", (job.key,)).fetchall()
                    for table in ("runs", "scores")
                )
                kept = connection.execute("SELECT * FROM kept WHERE key = ?", (job.key,)).fetchone()
                digests = (digest(*run, *scores), digest(kept[:2]), digest(kept))
                connection.execute("INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?)", (job.key, *digests))
            if isinstance(outcome, Outcome) and outcome.points is not None:
                points = (job.key, packed_table(outcome.points))
                connection.execute("INSERT OR IGNORE INTO points VALUES (?, ?, ?)", (*points, digest(points)))

    def table(self, keys: Iterable[str] | None = None) -> pd.DataFrame:
        """A row per run, and for every rule columns ``accuracy:RULE``, ``absent:RULE`` and ``lost:RULE``.

        With `keys`, only of these runs, as far as they are there.
        """
        wanted = None if keys is None else json.dumps(list(keys))
        columns = [column for _, column, *_ in self._rows("PRAGMA table_info(runs)")]
        with self._transaction("DEFERRED"):  # another process may add runs meanwhile
            runs, scores = (self._ordered("*", name, wanted) for name in ("runs", "scores"))
            known = dict(self._ordered("key, figures", "digests", wanted))
        self._check_figures(runs, scores, known)
        return pd.concat([pd.DataFrame(runs, columns=columns), by_rule(runs, scores)], axis=1)

    def specs(self) -> dict[str, dict[str, Any]]:
        """By key: everything that the result of a run depends on."""
        known: dict[str, str] = dict(self._rows("SELECT key, spec FROM digests"))
        found: dict[str, dict[str, Any]] = {}
        for key, spec in self._rows("SELECT key, spec FROM kept"):
            self._require(key not in known or known[key] == digest((key, spec)), key)
            with self._readable(key):
                found[key] = json.loads(spec)
        return found

    def kept(self, key: str) -> KeptRun:
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
        known = self._rows("SELECT kept FROM digests WHERE key = ?", key)
        self._require(
            not known or known[0][0] == digest(*self._rows("SELECT * FROM kept WHERE key = ?", key)), key
        )
        spec, history, looks, blob, kind, selected, means, said, labels, labels_kind = found[0]
        with self._readable(key):
            evaluations = unpacked(looks)
            return KeptRun(
                json.loads(spec),
                unpacked(history),
                evaluations,
                np.frombuffer(inflated(blob), kind).reshape(len(evaluations), -1),
                np.frombuffer(inflated(means), np.float32).reshape(len(evaluations), -1),
                json.loads(selected),
                json.loads(said),
                np.frombuffer(inflated(labels), labels_kind),
            )

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._named():
            return self._connection.execute(query, values).fetchall()

    def _ordered(self, columns: str, table: str, wanted: str | None) -> list[tuple[Any, ...]]:
        """Rows of a table in the order in which they lie there; `wanted` is a JSON list of keys, or all."""
        where, values = (
            ("", ()) if wanted is None else ("WHERE key IN (SELECT value FROM json_each(?))", (wanted,))
        )
        return self._rows(f"SELECT {columns} FROM {table} {where} ORDER BY 1, 2", *values)

    def _check_figures(self, runs: list[Any], scores: list[Any], known: dict[str, str]) -> None:
        """Every run is as it was written, and none is missing."""
        of = {key: tuple(rows) for key, rows in groupby(scores, itemgetter(0))} if known else {}
        for row in runs if known else ():
            key = row[0]
            if known.pop(key, "") not in ("", digest(row, *of.get(key, ()))):
                self._require(False, key)
        self._require(not known, next(iter(known), ""))

    def _require(self, right: bool, key: str) -> None:
        require(
            right,
            f"{self.path} is damaged (the run {key} is not as it was written): restore a copy, or choose "
            "another `out`.",
        )

    @contextmanager
    def _readable(self, key: str) -> Iterator[None]:
        try:
            yield
        except (zlib.error, ValueError, TypeError) as error:
            raise UserError(
                f"{self.path} is damaged (the run {key} can't be read): restore a copy, or choose another "
                "`out`."
            ) from error

    def _check_whole(self) -> None:
        """A file that was cut off may open well and fail much later; its header says how long it should be."""
        if not self.path.exists() or self.path.stat().st_size == 0:
            return
        with self.path.open("rb") as file:
            head = file.read(100)
        require(
            head[:16] == b"SQLite format 3\0", f"{self.path} is not a database of runs: choose another `out`."
        )
        page = int.from_bytes(head[16:18], "big")
        size = (65536 if page == 1 else page) * int.from_bytes(head[28:32], "big")
        logged = Path(f"{self.path}-wal").exists()  # the newest pages may still be there
        whole = len(head) == 100 and (logged or size <= self.path.stat().st_size)
        require(whole, f"{self.path} is damaged (cut short): restore a copy, or choose another `out`.")

    def _check_ours(self) -> None:
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("PRAGMA trusted_schema = OFF")  # a file's schema calls no functions
        with self._writing() as connection:
            kind, version = (
                connection.execute(f"PRAGMA {n}").fetchone()[0] for n in ("application_id", "user_version")
            )
            if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {OURS}")
                connection.execute(f"PRAGMA user_version = {FORMAT}")
                kind, version = OURS, FORMAT
        require(kind == OURS, f"{self.path} is another program's database: choose another `out`.")
        require(
            version == FORMAT,
            f"{self.path} has format {version}, this version reads {FORMAT}: choose another `out`.",
        )
        with self._writing() as connection:
            connection.execute(_DIGESTS)
            connection.execute(_POINTS)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, one writer after the other."""
        with self._named():
            if not self.path.exists():  # SQLite goes on writing to a file that nobody can find any more
                raise FileNotFoundError("the file has vanished")
            with self._transaction("IMMEDIATE"):
                yield self._connection

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        """All that is read inside is of one moment, and all that is written is, or nothing."""
        with self._named():
            self._connection.execute(f"BEGIN {kind}")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk may have ended it
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, OSError) as error:
            said = str(error).splitlines()[-1]
            damaged = isinstance(error, sqlite3.DatabaseError)
            damaged = damaged and not isinstance(error, sqlite3.OperationalError)  # locked, read-only
            if damaged:
                words = f"{self.path} is damaged ({said}): restore a copy, or choose another `out`."
                raise UserError(words) from error
            raise UnwrittenError(
                f"{self.path} can't be used ({said}), what it held stays: mend that and run the same command "
                "again, or choose another `out`."
            ) from error
