"""The page of a benchmark: its figures are those of the runs, whether just run or read back."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pandas as pd
import pytest
from report_toys import Taken, taken, write_study
from typer.testing import CliRunner

from ba3us import bench
from ba3us.bench.database import Failure
from ba3us.bench.html_page import write_bench_page, write_database_page
from ba3us.bench.jobs import execute
from ba3us.cli import app
from ba3us.errors import UserError

METHODS = "source-only,dann"
FAST = {"steps": 20, "batch_size": 8, "bottleneck": 4}


def run(folder: Path, methods: str = METHODS, work=execute, seeds: int = 2, **options):
    """A study of two tasks, run in this process."""
    study = bench.prepare(folder / "toy.yaml", methods=methods, seeds=seeds, options=FAST | options)
    labels = {data.digest: data.labels for data in study.datasets}
    with bench.Database(folder / "b.sqlite") as database:
        for job in study.jobs:
            database.record(job, work(job), labels[job.data])
    return study, bench.run(study, folder / "b.sqlite")  # where all of it is done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    write_study(folder)
    return folder


@pytest.fixture(scope="module")
def study_and_rows(folder):
    return run(folder)


def figures(page: Taken, title: str) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in page.table(title)[1:]}


def test_a_study_has_its_tables_and_a_drawing_per_task(folder, study_and_rows):
    study, rows = study_and_rows
    made = bench.study_tables(study, rows)
    page = taken(write_bench_page(study, rows, made, folder / "study.html"))
    for table in made:
        shown = page.table(table.title)
        assert shown[0] == table.columns
        assert shown[1:] == [[c.text + (" ≈" if c.similar else "") for c in row] for row in table.rows]
    titles = page.texts("figcaption")
    assert titles[:2] == ["P → Q", "Q → P"]
    for title, chart in zip(("P->Q", "Q->P"), page.tips()):
        own = rows[rows["task"] == title]
        wanted = {
            f"{r['label']}\nseed {r['seed']}: {100 * r['accuracy:entropy']:.1f}\xa0%" for _, r in own.iterrows()
        }
        assert set(chart) == wanted
    assert "numpy" in page.section("made")


def test_gains_are_differences_on_the_same_task_and_seed(folder, study_and_rows):
    study, rows = study_and_rows
    page = taken(write_bench_page(study, rows, bench.study_tables(study, rows), folder / "gain.html"))
    accuracy = rows.pivot_table(index=["task", "seed"], columns="label", values="accuracy:entropy")
    gain = (100 * (accuracy["dann"] - accuracy["source-only"])).groupby("task").mean()
    (chart,) = (chart for chart in page.tips() if "points" in chart[0])
    assert set(chart) == {f"dann\n{task}: {value:+.1f} points" for task, value in gain.items()}
    assert page.texts("button", "key") == ["P->Q", "Q->P"]
    costs = page.tips()[-1]
    assert sorted(tip.split("\n")[0] for tip in costs) == ["dann", "source-only"]
    assert all("ms per step" in tip for tip in costs)


def test_a_database_gives_the_same_figures(folder, study_and_rows):
    study, rows = study_and_rows
    here = taken(write_bench_page(study, rows, bench.study_tables(study, rows), folder / "one.html"))
    path = write_database_page(folder / "b.sqlite")
    assert path == folder / "b.html"
    there = taken(path)
    title = "toy: accuracy (%) by task"
    assert figures(here, title) == figures(there, title)
    assert sorted(here.tips()[0]) == sorted(there.tips()[0])


def test_other_settings_under_one_label_are_rows_of_their_own(tmp_path):
    write_study(tmp_path)
    run(tmp_path, "source-only")
    run(tmp_path, "source-only", steps=5)
    page = taken(write_database_page(tmp_path / "b.sqlite"))
    labels = set(figures(page, "toy: accuracy (%) by task"))
    assert all(label.startswith("source-only (steps=") for label in labels) and len(labels) == 2
    assert "several settings" in page.section("tables")


def test_failed_runs_are_listed_and_their_reason_is_text(tmp_path):
    write_study(tmp_path)
    run(
        tmp_path,
        work=lambda job: Failure("it <b>diverged</b>") if job.method == "dann" else execute(job),
        seeds=1,
    )
    page = taken(write_database_page(tmp_path / "b.sqlite"))
    assert [row[-1] for row in page.table("toy: failed runs")[1:]] == ["it <b>diverged</b>"] * 2
    assert "2 of 4 runs failed" in page.texts("p", "reason")[0]
    assert "no finished run" in page.texts("text")


def test_source_only_is_known_by_its_method_not_its_label(tmp_path):
    write_study(tmp_path)
    study, rows = run(tmp_path)
    rows = rows.assign(label=rows["label"].replace("source-only", "plain"))
    page = taken(write_bench_page(study, rows, bench.study_tables(study, rows), tmp_path / "p.html"))
    (chart,) = (chart for chart in page.tips() if "points" in chart[0])
    assert {tip.split("\n")[0] for tip in chart} == {"dann"}
    assert len(page.all("g", "reference")) == 3  # two tasks and the gains


def test_without_source_only_there_is_no_gain(tmp_path):
    write_study(tmp_path)
    study, rows = run(tmp_path, "dann")
    page = taken(write_bench_page(study, rows, bench.study_tables(study, rows), tmp_path / "p.html"))
    assert "no finished run of source-only" in page.section("gain")
    assert "Accuracy and cost" in page.texts("figcaption")


def test_several_protocols_are_told_apart_and_a_shipped_one_has_its_title(tmp_path):
    write_study(tmp_path)
    study, _ = run(tmp_path, "source-only", seeds=1)
    with bench.Database(tmp_path / "b.sqlite") as database:
        for name, task in (("pacs-7-4", "p->a"), ("digits", "own->own")):
            job = dataclasses.replace(study.jobs[0], protocol=name, task=task, key=name)
            database.record(job, execute(job), study.datasets[0].labels)
    with pytest.raises(UserError, match="digits, pacs-7-4, toy"):
        write_database_page(tmp_path / "b.sqlite")
    titles = {
        name: taken(write_database_page(tmp_path / "b.sqlite", name, tmp_path / "p.html")).texts("h1")[0]
        for name in ("pacs-7-4", "digits", "toy")
    }
    assert titles == {"pacs-7-4": "PACS, 7 → 4", "digits": "digits", "toy": "toy"}  # those digits are another's


@pytest.mark.parametrize("name", ["gone.sqlite", "text.sqlite", "empty.sqlite"])
def test_what_is_no_database_is_a_sentence(tmp_path, name):
    (tmp_path / "text.sqlite").write_text("no database at all", encoding="utf-8")
    bench.Database(tmp_path / "empty.sqlite").close()
    with pytest.raises(UserError, match=r"There is no|is not a database"):
        write_database_page(tmp_path / name)
    assert not (tmp_path / "gone.sqlite").exists()


def cli(*arguments: str):
    return CliRunner().invoke(app, [*arguments])


def test_bench_writes_its_page_from_the_command_line(folder, study_and_rows, monkeypatch):
    monkeypatch.chdir(folder)
    few = ["--seeds", "2", "--out", "b.sqlite", "--methods", METHODS]
    few += [word for name, value in FAST.items() for word in ("--set", f"{name}={value}")]
    done = cli("bench", "toy.yaml", *few, "--report", "page.html", "--json")
    assert done.exit_code == 0, done.output
    assert taken(folder / "page.html").texts("h1") == ["toy"]
    refused = cli("bench", "toy.yaml", *few, "--report", "page.pdf")
    assert isinstance(refused.exception, UserError) and not (folder / "page.pdf").exists()
    done = cli("report", "b.sqlite", "--out", "again.html", "--json")
    assert done.exit_code == 0 and re.search(r'"page": "again.html"', done.stdout)
    assert isinstance(cli("report", "b.sqlite", "--labels", "toy.yaml").exception, UserError)


def test_ranked_rows_put_the_best_first(folder, study_and_rows):
    study, rows = study_and_rows
    ranked = bench.ranked(rows, "entropy")
    page = taken(write_bench_page(study, ranked, bench.study_tables(study, ranked), folder / "r.html"))
    order = [row[0] for row in page.table("toy")[1:]]
    assert order == pd.Series(ranked["label"]).unique().tolist()
