"""Plans: every printed number has its place, every row a registered method or the mark that it has none."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest

from ba3us import methods
from ba3us.bench.protocol import results
from ba3us.errors import UserError
from ba3us.methods.registry import TASKS
from ba3us.paper import PLANS, figures, plan

PARTS = [(p.name, part) for p in PLANS.values() for part in p.parts]


def test_every_printed_number_has_a_row_and_every_row_a_number(shared):
    printed = pd.read_csv(shared / "paper" / "paper_results.csv")
    columns = ["table", "dataset", "setting", "backbone", "method"]
    wanted = {tuple(row) for row in printed[columns].itertuples(index=False)}
    planned = [
        (int(name.removeprefix("table")), part.dataset, part.setting, part.backbone, row.printed)
        for name, part in PARTS
        if part.drawing == "table"
        for row in part.rows
    ]
    assert set(planned) == wanted and len(planned) == len(wanted)
    for (table, dataset, *_), rows in printed.groupby(columns[:2]):
        (part,) = (p for name, p in PARTS if name == f"table{table}" and p.dataset == dataset)
        assert list(dict.fromkeys(rows["method"])) == [row.printed for row in part.rows]
        assert set(rows["task"]) - {"Avg"} <= set(part.tasks)


def test_the_numbers_that_come_along_are_the_printed_ones(shared):
    columns = ["table", "printed", "task", "accuracy"]
    printed = pd.read_csv(shared / "paper" / "paper_results.csv").rename(columns={"method": "printed"})
    ours, theirs = (t[columns].sort_values(columns).to_numpy().tolist() for t in (results(), printed))
    assert ours == theirs


@pytest.mark.parametrize(("name", "part"), PARTS, ids=[f"{n}-{p.dataset}" for n, p in PARTS])
def test_rows_are_methods_that_fit_the_protocol(name, part):
    published = next(p for p in sorted(TASKS, key=len, reverse=True) if part.protocol.startswith(p))
    assert set(part.tasks) <= set(TASKS[published])
    assert part.drawing == "table" or hasattr(figures, part.drawing)
    for row in part.rows:
        if row.method is None:
            assert row.note
        else:
            methods.get(row.method).options(**row.options)


def test_safn_of_the_closed_set_trains_epochs_of_the_whole_target():
    (part,) = plan("table4").parts
    (row,) = (row for row in part.rows if row.printed == "SAFN")
    options = {task: methods.get(row.method).options("office-home", task) for task in ("Ar->Cl", "Cl->Ar")}
    assert [options[task].steps for task in options] == [180 * (4365 // 32), 180 * (2427 // 32)]
    partial = methods.get("safn").options("office-home", "Ar->Cl")
    assert partial.steps == 180 * (1675 // 32)
    assert dataclasses.replace(options["Ar->Cl"], steps=partial.steps) == partial  # all else is the same


def test_a_plan_on_another_protocol_joins_parts_that_become_alike():
    moved = plan("table2").on("caltech107-office10", ["C->W", "C->A"])
    (part,) = moved.parts
    assert (part.protocol, part.tasks, part.dataset) == ("caltech107-office10", ("C->W", "C->A"), "")
    assert part.rows == plan("table2").parts[0].rows
    study = plan("figure3").on("caltech107-office10", ["C->W"], target_classes=[2, 5])
    assert [(p.drawing, p.target_classes) for p in study.parts] == [
        ("accuracy_by_classes", (2, 5)),
        ("class_weights", ()),
    ]
    assert plan("table2").parts[0].dataset == "Office31"


def test_what_a_user_may_get_wrong():
    with pytest.raises(UserError, match="did you mean 'table1'"):
        plan("tabel1")
    with pytest.raises(UserError, match="no task of 'pacs-7-4'"):
        plan("figure4").on("pacs-7-4", [])
