"""The database of runs: keys, several writers, damage."""

from __future__ import annotations

import dataclasses
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bench_toys import FAST, outcome, write_domain, write_protocol

from ba3us import bench
from ba3us.assess.scoring import Score, scored
from ba3us.bench import jobs as planning
from ba3us.bench.database import Database, Failure
from ba3us.bench.tables import tables
from ba3us.errors import UserError


@pytest.fixture
def study(tmp_path):
    return bench.prepare(write_protocol(tmp_path), methods="source-only", seeds=2, options=FAST)


def test_a_run_comes_back_whole(study, tmp_path):
    job, data = study.jobs[0], study.datasets[0]
    right = data.labels
    wrong = (data.labels + 1) % 3
    made = outcome([wrong.tolist(), right.tolist(), wrong.tolist()], [0.1, 0.2, 0.3])
    with Database(tmp_path / "new" / "b.sqlite") as database:
        database.add_datasets("toy", study.datasets)
        database.record(job, made, data.labels)
        row = database.table().iloc[0]
        stored = database.run(job.key)
        with pytest.raises(UserError, match="No finished run"):
            database.run("x")
    assert [row[f"accuracy:{rule}"] for rule in ("last", "entropy", "oracle")] == [0, 0, 1]
    assert (row["outcome"], row["task"], row["steps"]) == ("ok", "P->Q", 4)
    assert np.array_equal(stored.predictions, made.predictions)
    assert stored.history.equals(made.history) and stored.evaluations.equals(made.evaluations)
    assert stored.spec == job.spec and set(stored.spec["versions"]) == {"ba3us", "torch", "numpy"}
    again = scored(
        stored.predictions, stored.evaluations["candidate"].to_numpy(), stored.selected, stored.labels
    )
    assert {rule: score.accuracy for rule, score in again.items()} == {"last": 0, "entropy": 0, "oracle": 1}


def test_a_table_of_some_runs_has_just_these(study, tmp_path):
    labels = {data.digest: data.labels for data in study.datasets}
    fine, other, failed = study.jobs[:3]
    with Database(tmp_path / "b.sqlite") as database:
        database.add_datasets("toy", study.datasets)
        for job, shift in ((fine, 0), (other, 1)):
            right = labels[job.data]
            database.record(job, outcome([((right + shift) % 3).tolist()], [0.1]), right)
        database.record(failed, Failure("nan"), labels[failed.data])
        whole, some = database.table(), database.table([failed.key, fine.key, "unknown"])
        with database._writing() as connection:  # one that is not asked for
            connection.execute(
                "UPDATE runs SET scores = replace(scores, '0.0', '0.5') WHERE key = ?", (other.key,)
            )
        assert database.table([fine.key]).equals(some[some["key"] == fine.key].reset_index(drop=True))
        with pytest.raises(UserError, match=f"the run {other.key} is not as it was written"):
            database.table()
    assert set(whole["key"]) == {fine.key, other.key, failed.key} and set(some["key"]) == {fine.key, failed.key}
    by_key = whole.set_index("key")["accuracy:entropy"]
    assert by_key[fine.key] == 1 and by_key[other.key] == 0 and np.isnan(by_key[failed.key])
    assert some.set_index("key").equals(whole.set_index("key").loc[some["key"]])
    assert whole["accuracy:neighbours"].isna().all()


def test_a_table_is_of_one_moment_while_another_process_writes(study, tmp_path, monkeypatch):
    labels, path = {data.digest: data.labels for data in study.datasets}, tmp_path / "b.sqlite"
    waiting = iter(study.jobs)
    read = Database._rows

    def add() -> None:
        job = next(waiting)
        with Database(path) as other:
            other.add_datasets("toy", study.datasets)
            other.record(job, outcome([labels[job.data].tolist()], [0.1]), labels[job.data])

    def slowly(self, query, *values):
        rows = read(self, query, *values)
        with monkeypatch.context() as patch:
            patch.setattr(Database, "_rows", read)
            add()
        return rows

    add()
    with Database(path) as database:
        monkeypatch.setattr(Database, "_rows", slowly)
        assert len(database.table()) == 2  # one was added before the runs were read
        monkeypatch.setattr(Database, "_rows", read)
        assert len(database.table()) == 4 and database.table()["accuracy:entropy"].eq(1).all()


def test_scores_by_hand():
    labels = np.array([0, 0, 1, 1])
    predictions = np.array([[0, 0, 1, 1], [0, 2, 0, 3], [0, 0, 0, 0]])
    found = scored(predictions, np.array([False, True, True]), {"entropy": 1}, labels)
    assert found["entropy"] == Score(accuracy=0.25, absent=0.5, lost=1)
    assert found["last"] == found["oracle"] == Score(accuracy=0.5, absent=0.0, lost=1)  # row 0 is no candidate


def keys(protocol: Path, **changes: object) -> set[str]:
    given = {"methods": "source-only", "seeds": 1, "options": FAST, **changes}
    return {job.key for job in bench.prepare(protocol, **given).jobs}


def test_whatever_the_result_depends_on_is_in_the_key(tmp_path, monkeypatch):
    protocol = write_protocol(tmp_path)
    first = keys(protocol)
    assert len(first) == 2 and first == keys(protocol)
    assert first < keys(protocol, seeds=2) and first < keys(protocol, methods="source-only,dann")
    assert first == keys(protocol, label="another {method}")
    assert first == keys(protocol, selection="information-maximisation")
    for change in ({"options": FAST | {"steps": 5}}, {"options": FAST | {"source-only.weight_decay": 0.5}}):
        assert not first & keys(protocol, **change)
    other = write_protocol(tmp_path, protocol.read_text() + "options: {momentum: 0.5}\n", "other")
    assert not first & keys(other)
    other.write_text(protocol.read_text().replace("cat", "bee"))
    assert not first & keys(other)
    other.write_text(protocol.read_text() + "classes: [bee, cat, ant]\n")
    assert not first & keys(other)
    monkeypatch.setattr(planning, "__version__", "9.9")
    assert not first & keys(protocol)
    monkeypatch.undo()
    write_domain(tmp_path / "two.npz", ["cat", "bee", "ant"], seed=7)
    assert not first & keys(protocol)


def test_a_failure_is_a_row_that_success_replaces_and_not_the_other_way_round(study, tmp_path):
    job, data = study.jobs[0], study.datasets[0]
    with Database(tmp_path / "b.sqlite") as database:
        database.add_datasets("toy", study.datasets)
        database.record(job, Failure("the loss is nan"), data.labels)
        assert database.outcomes() == {job.key: "failed"}
        assert database.table()["reason"].tolist() == ["the loss is nan"]
        assert [table.title for table in tables(database.table(), "T", ["entropy"])][-1] == "T: failed runs"
        database.record(job, outcome([data.labels.tolist()], [0.1]), data.labels)
        database.record(job, Failure("too late"), data.labels)
        assert database.table()["outcome"].tolist() == ["ok"]
        database.forget_failed([job.key])
        assert database.has(job.key)


WRITER = """
import dataclasses, sys
from pathlib import Path
from bench_toys import FAST, outcome
from ba3us import bench
from ba3us.bench.database import Database
study = bench.prepare(Path(sys.argv[1]), methods="source-only", seeds=1, options=FAST)
job, data = study.jobs[0], study.datasets[0]
with Database(sys.argv[2]) as database:
    database.add_datasets("toy", study.datasets)
    for i in range(60):
        named = dataclasses.replace(job, key=f"{sys.argv[3]}{i}")
        database.record(named, outcome([data.labels.tolist()], [0.1]), data.labels)
"""


def test_two_processes_lose_nothing(tmp_path):
    protocol, out = write_protocol(tmp_path), tmp_path / "b.sqlite"
    call = [sys.executable, "-c", WRITER, str(protocol), str(out)]
    here = str(Path(__file__).parent)
    paths = {"PYTHONPATH": f"{here}:{Path(bench.__file__).parents[2]}", "OMP_NUM_THREADS": "1"}
    both = [subprocess.Popen([*call, name], env=paths) for name in "xy"]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    with Database(out) as database:
        table = database.table()
    assert set(table["key"]) == {f"{name}{i}" for name in "xy" for i in range(60)}
    assert (table["accuracy:oracle"] == 1).all()


def filled(study, path: Path) -> Path:
    with Database(path) as database:
        database.add_datasets("toy", study.datasets)
        for i in range(50):
            job = dataclasses.replace(study.jobs[0], key=f"k{i}")
            database.record(job, outcome([study.datasets[0].labels.tolist()], [0.1]), study.datasets[0].labels)
    return path


def test_what_is_no_database_of_ours_is_a_sentence(study, tmp_path):
    text = tmp_path / "t.sqlite"
    text.write_text("hello " * 100)
    other = tmp_path / "o.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE things (x)")
    newer = filled(study, tmp_path / "n.sqlite")
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    for path, words in (
        (text, "not a database of runs"),
        (other, "another program's database"),
        (newer, "format 99"),
        (tmp_path, "is a folder"),
        (text / "below.sqlite", "can't be used"),
    ):
        with pytest.raises(UserError, match=words):
            Database(path)
    assert text.read_text() == "hello " * 100


def test_cut_off_and_damaged_files_are_sentences(study, tmp_path):
    whole = filled(study, tmp_path / "b.sqlite").read_bytes()
    for length in (50, 4096, len(whole) // 2, len(whole) - 10):
        cut = tmp_path / f"cut{length}.sqlite"
        cut.write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"cut\d+.sqlite is damaged"):
            Database(cut)
    spoilt = tmp_path / "spoilt.sqlite"
    spoilt.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(UserError, match=r"spoilt\.sqlite is damaged"), Database(spoilt) as database:
        database.table()
