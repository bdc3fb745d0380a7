"""Databases with changed bits, pickles and blobs without end: noticed, in a sentence."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import sqlite3
import zlib

import numpy as np
import pandas as pd
import pytest
from bench_toys import FAST, outcome, write_protocol

from ba3us import bench
from ba3us.bench import database as database_module
from ba3us.bench.database import Database, Failure
from ba3us.errors import UserError


@pytest.fixture
def stored(tmp_path):
    """A database of two runs, and the key of the first."""
    study = bench.prepare(write_protocol(tmp_path), methods="source-only", seeds=2, options=FAST)
    path, labels = tmp_path / "runs.sqlite", study.datasets[0].labels
    with Database(path) as database:
        database.add_datasets("toy", study.datasets)
        database.record(study.jobs[0], outcome([labels.tolist()], [0.5]), labels)
        database.record(study.jobs[1], Failure("no reason"), labels)
        assert len(database.table()) == 2
    return path, study.jobs[0].key


def change(path, *statements):
    connection = sqlite3.connect(path)
    for statement, *values in statements:
        connection.execute(statement, values)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET scores = replace(scores, '1.0', '0.75')",
        "UPDATE runs SET method = 'dann'",
        "UPDATE runs SET key = 'x' || substr(key, 2) WHERE outcome = 'ok'",
        "DELETE FROM runs WHERE outcome = 'failed'",
        "UPDATE runs SET scores = '{}' WHERE outcome = 'ok'",
    ],
)
def test_changed_figures_are_noticed(stored, statement):
    path, _ = stored
    change(path, (statement,))
    with Database(path) as database, pytest.raises(UserError, match=r"is damaged .*not as it was written"):
        database.table()


COLUMNS = {"spec": "specs", "labels": "datasets"}  # others are details


@pytest.mark.parametrize(
    "column", ["spec", "history", "predictions", "probabilities", "selected", "summary", "labels"]
)
def test_changed_details_are_noticed(stored, column):
    path, key = stored
    change(
        path, (f"UPDATE {COLUMNS.get(column, 'details')} SET {column} = replace({column}, 'e', 'f') || ' '",)
    )
    with Database(path) as database, pytest.raises(UserError, match=r"not as it was written|can't be used"):
        database.run(key)
    if column == "spec":
        with Database(path) as database, pytest.raises(UserError, match="is damaged"):
            database.specs()


def test_failed_runs_may_be_forgotten(stored):
    path, _ = stored
    with Database(path) as database:
        database.forget_failed(database.outcomes())
        assert len(database.table()) == 1


def forge(path, table, column, content):
    """Change a column of the first row, and make its checksum right."""
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE {table} SET {column} = ?", (content,))
    *row, _ = connection.execute(f"SELECT * FROM {table}").fetchone()
    connection.execute(f"UPDATE {table} SET checksum = ?", (database_module.checksum(*row),))
    connection.commit()
    connection.close()


class Bomb:
    """Unpickled, it makes a folder."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("column", ["history", "predictions", "summary"])
def test_databases_run_no_code(stored, tmp_path, column):
    path, key = stored
    packed = pickle.dumps(Bomb(tmp_path / "gone off"))
    for content in (packed, zlib.compress(packed)):
        forge(path, "details", column, content)
        with Database(path) as database, contextlib.suppress(UserError):
            database.run(key)
    assert not (tmp_path / "gone off").exists()


def test_points_that_are_not_as_they_were_written_are_noticed(tmp_path):
    study = bench.prepare(write_protocol(tmp_path), methods="source-only", seeds=1, options=FAST)
    job, labels, path = study.jobs[0], study.datasets[0].labels, tmp_path / "b.sqlite"
    points = pd.DataFrame({"x": [0.1, 1 / 3], "y": [2.0, 3.0], "domain": ["source", "target"], "row": [0, 4]})
    made = dataclasses.replace(outcome([labels.tolist()], [0.1]), points=points)
    with Database(path) as database:
        database.add_datasets("toy", study.datasets)
        database.record(job, made, labels)
        assert database.points(job.key).equals(points) and database.has(job.key, with_points=True)
        with pytest.raises(UserError, match="has left nothing to draw"):
            database.points("x")
    change(path, ("UPDATE points SET points = ?", zlib.compress(b"x,y\n1,2\n")))
    with Database(path) as database, pytest.raises(UserError, match="not as it was written"):
        database.points(job.key)


def test_a_blob_that_inflates_without_end_is_refused(stored, monkeypatch):
    path, key = stored
    forge(path, "details", "predictions", zlib.compress(bytes(10**7)))
    monkeypatch.setattr(database_module, "total_memory", lambda: 4 * 10**6)
    with Database(path) as database, pytest.raises(UserError, match="can't be read"):
        database.run(key)
    assert np.array_equal(database_module.decompressed(zlib.compress(bytes(9))), bytes(9))
