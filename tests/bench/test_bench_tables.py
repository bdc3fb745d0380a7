"""Tables: figures worked out by hand, in every format."""

from __future__ import annotations

import csv
import shutil
import subprocess
from itertools import chain

import numpy as np
import pandas as pd
import pytest

from ba3us.bench.tables import WRITERS, chosen_format, ranked, tables
from ba3us.errors import UserError


def rows_of(
    method: str, values: dict[tuple[str, int], float | None], **other: object
) -> list[dict[str, object]]:
    rules = ("last", "entropy", "oracle")
    return [
        {"label": method, "method": method, "task": task, "variant": "", "seed": seed, "settings": "ours"}
        | {"outcome": "failed" if value is None else "ok", "reason": "nan" if value is None else ""}
        | {"steps": 10, "seconds": 2.0, "cpu_seconds": 0.04}
        | {f"accuracy:{rule}": value for rule in rules}
        | {f"absent:{rule}": 0.1 for rule in rules}
        | {f"lost:{rule}": 0.0 for rule in rules}
        | other
        for (task, seed), value in values.items()
    ]


UNITS = [(task, seed) for task in "xy" for seed in (0, 1)]
SOURCE_ONLY = rows_of("source-only", dict.fromkeys(UNITS, 0.6))


def texts(table, label: str) -> dict[str, str]:
    found = next(row for row in table.rows if row[0].text == label)
    return dict(zip(table.columns, (cell.text for cell in found)))


def test_means_spreads_and_averages():
    rows = pd.DataFrame(rows_of("dann", dict(zip(UNITS, (0.5, 0.7, 0.9, 0.9)))))
    overview, by_task = tables(rows, "T", ["entropy"])
    assert texts(by_task, "dann") == {
        "method": "dann",
        "x": "60.0 ± 10.0",
        "y": "90.0 ± 0.0",
        "Avg": "75.00 ± 5.00",
    }
    assert texts(overview, "dann")["oracle"] == "75.00"
    assert "× source-only" not in overview.columns and "below" not in overview.columns


@pytest.mark.parametrize("seeds", [1, 5, 6])
def test_a_note_names_too_few_runs_for_any_difference(seeds):
    better = rows_of("dann", {("x", seed): 0.9 + 0.01 * seed for seed in range(seeds)})
    plain = rows_of("source-only", {("x", seed): 0.1 for seed in range(seeds)})
    for table in tables(pd.DataFrame([*better, *plain]), "T", ["entropy"]):
        notes = [note for note in table.notes if "it finds no difference" in note]
        assert len(notes) == (seeds < 6) and all(f"With {seeds} pair" in note for note in notes)
    assert table.rows[1][-1].similar == (seeds < 6)  # of all that is worse, the plainest case


def test_equal_best_averages_are_both_best_in_any_order():
    both = [rows_of("source-only", dict.fromkeys(UNITS, 0.6)), rows_of("dann", dict.fromkeys(UNITS, 0.6))]
    for order in (both, both[::-1]):
        by_task = tables(pd.DataFrame(list(chain(*order))), "T", ["entropy"])[1]
        assert [(row[-1].mark, row[-1].similar) for row in by_task.rows] == [("best", False)] * 2


def test_targets_of_a_task_are_averaged_and_paired_one_by_one():
    parts = [rows_of("dann", {("x", 0): v}, variant=f"draw {i}") for i, v in enumerate((0.5, 0.7))]
    better = [rows_of("pada", {("x", 0): 0.9}, variant=f"draw {i}") for i in range(2)]
    by_task = tables(pd.DataFrame(list(chain(*parts, *better))), "T", ["entropy"])[1]
    assert (
        texts(by_task, "dann")["x"] == "60.0 ± 0.0" and by_task.rows[0][-1].similar
    )  # two pairs prove nothing
    many = [
        rows_of(m, {("x", 0): v}, variant=f"draw {i}")
        for m, v in (("dann", 0.5), ("pada", 0.9))
        for i in range(8)
    ]
    assert not tables(pd.DataFrame(list(chain(*many))), "T", ["entropy"])[1].rows[0][-1].similar


def test_costs_and_mistakes_stand_beside_source_only():
    more = {"cpu_seconds": 0.1, "absent:entropy": 0.25, "lost:entropy": 2.0}
    rows = pd.DataFrame([*SOURCE_ONLY, *rows_of("twins", dict(zip(UNITS, (0.5, 0.6, 0.9, 0.8))), **more)])
    overview = tables(ranked(rows, "entropy"), "T", ["entropy"])[0]
    assert [row[0].text for row in overview.rows] == ["twins", "source-only"]
    found = texts(overview, "twins")
    assert [found[c] for c in ("ms/step", "× source-only", "below", "absent", "lost")] == [
        "10.0", "2.5", "1 of 4", "25.0", "4",
    ]  # fmt: skip
    assert texts(overview, "source-only")["below"] == "0 of 4"
    assert any("Losses: reconstruction: twins; textbook: source-only." in note for note in overview.notes)
    assert any("Settings: ours: twins, source-only." in note for note in overview.notes)


def test_best_second_and_noise():
    units = [(task, seed) for task in "wxyz" for seed in range(5)]
    noise = np.random.default_rng(0).normal(scale=0.01, size=(2, len(units)))
    values = {"ba3us": 0.9 + noise[0], "dann": 0.9 - 0.002 + noise[1], "pada": 0.7 + noise[1]}
    rows = pd.DataFrame(
        [row for name, v in values.items() for row in rows_of(name, dict(zip(units, v.tolist())))]
    )
    average = {row[0].text: row[-1] for row in tables(rows, "T", ["entropy"])[1].rows}
    assert {average["ba3us"].mark, average["dann"].mark} == {"best", "second"} and average["pada"].mark == ""
    assert [average[name].similar for name in ("ba3us", "dann")].count(True) == 1 and not average[
        "pada"
    ].similar


def test_a_failed_run_shows_and_a_task_without_runs_has_no_average():
    rows = pd.DataFrame([*SOURCE_ONLY, *rows_of("dann", dict(zip(UNITS, (0.5, None, None, None))))])
    overview, by_task, failed = tables(rows, "T", ["entropy"])
    assert texts(overview, "dann")["failed"] == "3" and texts(overview, "dann")["entropy"] == "–"
    assert texts(by_task, "dann")["x"] == "50.0 ± 0.0"
    assert (texts(by_task, "dann")["y"], texts(by_task, "dann")["Avg"]) == ("–", "–")
    assert len(failed.rows) == 3
    everything = pd.DataFrame(rows_of("dann", dict.fromkeys(UNITS, None)))
    assert texts(tables(everything, "T", ["entropy"])[1], "dann")["Avg"] == "–"


def test_the_papers_number_stands_below_ours():
    six = ("A->W", "D->W", "W->D", "A->D", "D->A", "W->A")
    rows = pd.DataFrame(rows_of("ba3us", {(task, 0): 0.9 for task in six}))
    by_task = tables(rows, "T", ["entropy"], printed="office31")[1]
    assert texts(by_task, "ba3us, paper")["Avg"] == "97.81"
    assert any("printed in the BA³US paper" in note for note in by_task.notes)
    swept = tables(rows.assign(label="BA3US (beta=0.0)"), "T", ["entropy"], printed="office31")[1]
    assert texts(swept, "BA3US (beta=0.0), paper") == {
        "method": "BA3US (beta=0.0), paper",
        **dict.fromkeys(six, "–"),
        "Avg": "96.20",
    }
    few = tables(rows[rows["task"].isin(six[:2])], "T", ["entropy"], printed="office31")[1]
    beside = texts(few, "ba3us, paper")
    assert float(beside["Avg"]) == pytest.approx((float(beside["A->W"]) + float(beside["D->W"])) / 2, abs=0.006)


def test_every_format_holds_the_figures():
    rows = pd.DataFrame([*SOURCE_ONLY, *rows_of("ba3us+cdan", dict(zip(UNITS, (0.5, 0.7, 0.9, 0.9))))])
    made = tables(rows, "Title_1 & more", ["entropy"])
    for name, write in WRITERS.items():
        text = write(made)
        assert "75.00" in text and "ba3us+cdan" in text, name
    assert "| ba3us+cdan | 60.0 ± 10.0" in WRITERS["markdown"](made).replace("**", "").replace("<u>", "")
    assert r"\textbf{75.00 $\pm$ 5.00}" in WRITERS["latex"](made) and r"Title\_1 \& more" in WRITERS["latex"](
        made
    )
    assert "<b>75.00 ± 5.00</b>" in WRITERS["html"](made) and "Title_1 &amp; more" in WRITERS["html"](made)
    lines = list(csv.reader(WRITERS["csv"](made).splitlines()))
    assert ["ba3us+cdan", "60.0 ± 10.0", "90.0 ± 0.0", "75.00 ± 5.00"] in lines


def test_a_wide_table_of_the_paper_fits_a_page_of_latex(tmp_path):
    if shutil.which("kpsewhich") is None or not found_by_latex("booktabs.sty"):
        pytest.skip("needs pdflatex with booktabs")
    tasks = [f"{a}->{b}" for a in ("Ar", "Cl", "Pr", "Rw") for b in ("Ar", "Cl", "Pr", "Rw") if a != b]
    systems = [rows_of("ba3us", {(t, s): 0.5 + 0.1 * s for t in tasks for s in (0, 1)}, label="BA3US_ξ #1")]
    systems += [rows_of("dann", {(t, s): 0.4 for t in tasks for s in (0, 1)})]
    made = tables(
        pd.DataFrame(list(chain(*systems))), "A & B → 50 %", ["entropy"], "office-home", ["κ_1 ~ 2^3"]
    )
    (tmp_path / "table.tex").write_text(WRITERS["latex"](made), encoding="utf-8")
    page = (
        "\\documentclass{article}\\usepackage{booktabs,graphicx}\\begin{document}\\input{table}\\end{document}"
    )
    (tmp_path / "page.tex").write_text(page, encoding="utf-8")
    call = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    said = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout[-2000:]
    assert "Overfull \\hbox" not in said.stdout and "Missing character" not in said.stdout


def found_by_latex(file: str) -> bool:
    return subprocess.run(["kpsewhich", file], capture_output=True, check=False).returncode == 0


def test_the_paper_is_called_by_its_name_where_people_read():
    rows = pd.DataFrame([*SOURCE_ONLY, *rows_of("ba3us", dict.fromkeys(UNITS, 0.7), label="BA3US")])
    made = tables(rows, "T", ["entropy"])
    for form in ("terminal", "markdown", "html"):
        assert "BA³US" in WRITERS[form](made) and "BA3US |" not in WRITERS[form](made)
    assert "BA$^3$US & " in WRITERS["latex"](made) and "BA3US," in WRITERS["csv"](made)


def test_formats_go_by_name(tmp_path):
    assert chosen_format(None, None) == "terminal"
    assert chosen_format(None, tmp_path / "x.tex") == "latex"
    assert chosen_format("csv", tmp_path / "x.tex") == "csv"
    with pytest.raises(UserError, match="Unknown format 'pdf'"):
        chosen_format("pdf", None)
    with pytest.raises(UserError, match="No format goes with"):
        chosen_format(None, tmp_path / "x.pdf")
