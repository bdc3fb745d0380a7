"""Runs on this machine: killed, resumed, failed."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from bench_toys import FAST, PROTOCOL, deadly, deaf, marked, talkative, write_domain, write_protocol

from ba3us import bench, progress
from ba3us.bench import workers
from ba3us.bench.database import Database
from ba3us.bench.jobs import Outcome, execute

COLUMNS = ["label", "task", "seed", "accuracy:last", "accuracy:entropy", "accuracy:oracle"]


def prepared(protocol: Path, **changes: object) -> bench.Study:
    return bench.prepare(protocol, **{"methods": "source-only,dann", "seeds": 2, "options": FAST, **changes})


@pytest.fixture
def marks(tmp_path, monkeypatch):
    folder = tmp_path / "marks"
    folder.mkdir()
    monkeypatch.setenv("BENCH_MARKS", str(folder))
    return folder


def executions(marks: Path) -> list[str]:
    return sorted(path.name.split(".")[0] for path in marks.iterdir())


KILLED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start what runs behind it without
from pathlib import Path
from bench_toys import FAST, slow_after_two
from ba3us import bench
study = bench.prepare(Path(sys.argv[1]), methods="source-only,dann", seeds=2, options=FAST)
bench.run(study, Path(sys.argv[2]), workers=1, work=slow_after_two)
"""


def start(tmp_path: Path, protocol: Path) -> subprocess.Popen:
    """A benchmark in a process group of its own that stands still after two runs."""
    here = str(Path(__file__).parent)
    env = os.environ | {"PYTHONPATH": f"{here}:{Path(bench.__file__).parents[2]}"}
    call = [sys.executable, "-c", KILLED, str(protocol), str(tmp_path / "b.sqlite")]
    return subprocess.Popen(call, env=env, start_new_session=True, stderr=subprocess.PIPE, text=True)


def wait_for_rows(path: Path, count: int) -> None:
    for _ in range(1200):
        if path.exists() and path.stat().st_size:
            with Database(path) as database:
                if len(database.outcomes()) >= count:
                    return
        time.sleep(0.1)
    pytest.fail(f"{path} never had {count} rows")


def test_a_killed_benchmark_goes_on_where_it_was(tmp_path, marks):
    protocol, out = write_protocol(tmp_path), tmp_path / "b.sqlite"
    process = start(tmp_path, protocol)
    wait_for_rows(out, 2)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = executions(marks)
    assert len(before) == 2
    study = prepared(protocol)
    resumed = bench.run(study, out, workers=1, work=marked)
    assert executions(marks) == sorted(job.key for job in study.jobs)  # each once, the first two included
    bench.run(study, out, workers=1, work=marked)
    assert len(executions(marks)) == 8
    fresh = bench.run(study, tmp_path / "fresh.sqlite", workers=2)
    pd.testing.assert_frame_equal(resumed[COLUMNS], fresh[COLUMNS])
    assert (fresh["accuracy:oracle"] >= fresh["accuracy:entropy"]).all()


def living(group: int) -> list[str]:
    """Processes of a group that have not ended (an ended one may wait to be collected)."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("no /proc here to list processes with")
    stats = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # gone by now
            stats.append(path.read_text().rpartition(")")[2].split())
    return [state for state, _, its_group, *_ in stats if int(its_group) == group and state != "Z"]


def test_a_polite_end_leaves_no_process_and_says_how_to_go_on(tmp_path, marks):
    process = start(tmp_path, write_protocol(tmp_path))
    wait_for_rows(tmp_path / "b.sqlite", 2)
    os.kill(process.pid, signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert "Stopped with 6 runs to go" in said
    for _ in range(300):
        if not living(process.pid):
            return
        time.sleep(0.1)
    pytest.fail("a worker outlived the benchmark")


def test_a_worker_that_does_not_listen_is_ended_all_the_same(tmp_path, marks, monkeypatch):
    monkeypatch.setattr(workers, "_END_TIMEOUT", 0.2)
    study = prepared(write_protocol(tmp_path), methods="source-only", tasks="P->Q")
    ended = workers.run_local(study.jobs, workers=2, work=deaf)
    assert next(ended)[0].seed == 0
    ended.close()  # would wait for ever
    assert not [process for process in multiprocessing.active_children() if process.is_alive()]


def test_a_dying_worker_and_a_raising_run_are_rows_and_the_others_go_on(tmp_path, marks):
    study, out = prepared(write_protocol(tmp_path), seeds=4, methods="source-only"), tmp_path / "b.sqlite"
    rows = bench.run(study, out, workers=2, work=deadly).sort_values("seed")
    reasons = ["", "", "the process ended (signal 9)", "the process ended (signal 9)"]
    assert rows["reason"].tolist() == [*reasons, "the loss is nan", "the loss is nan", "", ""]
    again = bench.run(study, out, workers=1, work=marked)
    assert executions(marks) == [] and again["outcome"].tolist().count("failed") == 4
    retried = bench.run(study, out, workers=1, retry_failed=True, work=marked)
    assert len(executions(marks)) == 4 and set(retried["outcome"]) == {"ok"}
    tables = bench.study_tables(study, rows)
    assert tables[0].rows[0][tables[0].columns.index("failed")].text == "4"
    assert [cell.text for cell in tables[-1].rows[0]][-1] == "the process ended (signal 9)"


def test_a_second_protocol_with_the_same_names_gets_its_own_numbers(tmp_path):
    out = tmp_path / "b.sqlite"
    first = bench.run(prepared(write_protocol(tmp_path), seeds=1), out, workers=1)
    other = tmp_path / "other"
    other.mkdir()
    protocol = write_protocol(other, PROTOCOL.replace("classes: [ant, cat]", "first: 1"))
    write_domain(other / "two.npz", ["ant", "bee", "cat"][::-1], rows=33, seed=5)
    second = bench.run(prepared(protocol, seeds=1), out, workers=1)
    alone = bench.run(prepared(protocol, seeds=1), tmp_path / "alone.sqlite", workers=1)
    pd.testing.assert_frame_equal(second[COLUMNS], alone[COLUMNS])
    with Database(out) as database:
        assert len(database.table()) == len(first) + len(second)


def test_a_diverging_run_is_a_row(tmp_path):
    options = FAST | {"dann.learning_rate": 1e30, "steps": 30}
    rows = bench.run(
        prepared(write_protocol(tmp_path), options=options, seeds=1), tmp_path / "b.sqlite", workers=1
    )
    assert dict(zip(rows["method"], rows["outcome"])) == {"source-only": "ok", "dann": "failed"}


def test_how_far_a_run_has_come_is_heard_before_it_ends(tmp_path):
    study, heard = prepared(write_protocol(tmp_path), methods="source-only"), list[tuple[str, float]]()
    ended = workers.run_local(
        study.jobs, 2, talkative, on_progress=lambda job, share: heard.append((job.key, share))
    )
    keys = {job.key for job, outcome in ended if isinstance(outcome, Outcome)}
    assert keys == {job.key for job in study.jobs} and sorted(heard) == sorted((key, 0.5) for key in keys)


def test_the_line_of_progress_counts_parts_of_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "_INTERVAL", 0.0)
    study = prepared(write_protocol(tmp_path), methods="dann", seeds=1)
    bench.run(study, tmp_path / "b.sqlite", workers=1, show=True, work=talkative)
    lines = capsys.readouterr().err.splitlines()
    assert "Benchmark 0/2 · dann P->Q 50%" in lines
    assert any(line.startswith("Benchmark 1/2 · dann P->Q · dann Q->P 50% · 0:00:0") for line in lines)


def test_updates_are_told_as_shares_of_all_phases(tmp_path, monkeypatch):
    clock = itertools.count(step=10)
    monkeypatch.setattr(sys.modules[execute.__module__].time, "monotonic", lambda: next(clock))
    shares: list[float] = []
    options = FAST | {"warmup_steps": 4}
    for name in ("dann", "auto"):
        job = prepared(write_protocol(tmp_path), methods=name, seeds=1, options=options).jobs[0]
        execute(dataclasses.replace(job, on_progress=shares.append))
        options = {"steps": 4}
    assert shares == [n / 8 for n in range(1, 9)]  # of the automatic choice nothing is told
