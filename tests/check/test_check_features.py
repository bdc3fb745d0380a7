"""Two feature files from end to end: every planted fault is found, and clean files give no finding."""

from __future__ import annotations

import numpy as np
import pytest
from check_toys import clouds

from ba3us.check import check
from ba3us.errors import UserError
from ba3us.run.spec import Spec

NAMES = [f"class {number}" for number in range(12)]


@pytest.fixture
def checked(tmp_path):
    """Write two files, check them, and give the findings by topic with the facts."""

    def do(x, y, xt, names=NAMES, cost=False, **more):
        source = (
            {"features": x, "labels": y} | ({"class_names": names} if names else {}) | more.pop("source", {})
        )
        np.savez(tmp_path / "s.npz", **source)
        np.savez(tmp_path / "t.npz", features=xt, **more.pop("target", {}))
        report = check(Spec(source=str(tmp_path / "s.npz"), target=str(tmp_path / "t.npz")), cost=cost)
        return {finding.topic: finding for finding in report.findings}, report

    return do


@pytest.fixture
def clean():
    x, y = clouds(range(6))
    return x, y, clouds(range(3), 20, shift=0.5, seed=1)[0]


def test_clean_files_give_no_finding_and_say_what_they_hold(checked, clean):
    found, report = checked(*clean, cost=True)
    assert found == {} and report.passed_over == []
    facts = report.facts
    assert facts["classes_seen_in_target"] == NAMES[:3] and facts["told_apart"] > 0.9
    assert facts["source"]["classes"] == dict.fromkeys(NAMES[:6], 20)
    assert [(cost["method"], cost["train"]) for cost in facts["cost"]] == [("auto", "head"), ("ba3us", "head")]
    assert all(cost["seconds"] > 0 for cost in facts["cost"])


def test_planted_faults_are_found(checked, clean):
    x, y, xt = clean
    xt = np.concatenate([xt, clouds([9], 20, seed=2)[0], x[:4]])  # an unknown class, and rows of the source
    x, y = np.concatenate([x, x[5:6], x[25:26]]), np.append(y, [0, 2])  # a repeated row, and one of two classes
    x[:, 3] = 7
    found, _ = checked(x, y, np.where(np.arange(20) == 3, np.float32(7), xt))
    assert found["duplicates across"].items[0] == "row 0 = row 80" and found["duplicates across"].count == 4
    assert found["duplicates of two classes"].items == ("row 25 = row 121",)
    assert found["duplicates in source"].items == ("row 5 = row 120",)
    assert found["constant columns in source"].items == ("column 3",)
    rows = {int(item.split()[1]) for item in found["unknown class"].items}
    assert len(rows & set(range(60, 80))) > 15
    assert list(found)[-1] != "duplicates across"  # warnings come before notes


def test_values_that_are_none_stop_and_the_rest_is_still_looked_at(checked, clean):
    x, y, xt = clean
    x[7, 2], xt[3] = np.nan, np.inf
    found, report = checked(x, y, xt, cost=True)
    assert {f.level for f in found.values()} == {"stop"}
    assert found["not finite in source"].items == ("row 7",) and found["not finite in target"].items == (
        "row 3",
    )
    assert report.facts["classes_seen_in_target"] == NAMES[:3] and "cost" not in report.facts


@pytest.mark.parametrize(
    ("change", "topic"),
    [
        (lambda x, y, xt: {"y": np.zeros(len(y), int)}, "labels"),
        (lambda x, y, xt: {"xt": xt[:, :5]}, "shapes"),
        (lambda x, y, xt: {"source": {"backbone": "a"}, "target": {"backbone": "b"}}, "backbones"),
        (lambda x, y, xt: {"xt": xt * 1000}, "scales apart"),
        (lambda x, y, xt: {"xt": xt[:20]}, "small target"),
        (
            lambda x, y, xt: {"names": None, "y": np.where(y == 1, "ANT", np.where(y == 2, "ant", "bee"))},
            "names alike",
        ),
        (
            lambda x, y, xt: {"x": np.delete(x, range(3, 20), 0), "y": np.delete(y, range(3, 20))},
            "tiny classes",
        ),
        (lambda x, y, xt: {"xt": x[:60]}, "duplicates across"),
        (lambda x, y, xt: {"xt": x[:60].astype(np.float16)}, "duplicates across"),
    ],
)
def test_what_is_wrong_has_a_name(checked, clean, change, topic):
    x, y, xt = clean
    found, _ = checked(**({"x": x, "y": y, "xt": xt} | change(x, y, xt)))
    assert topic in found


def test_a_refusal_of_training_is_a_finding_with_its_advice(checked, clean):
    x, y, xt = clean
    found, report = checked(x, y, xt, source={"backbone": "a"}, target={"backbone": "b"})
    finding = found["backbones"]
    assert finding.level == "stop" and finding.text.endswith("the source's of 'a'.")
    assert finding.advice == "Use one backbone with the same weights for both."
    found, report = checked(x, np.zeros(len(y), int), xt)
    assert found["labels"].level == "stop" and report.passed_over


def test_large_files_are_sampled_and_it_is_said(checked, monkeypatch):
    monkeypatch.setattr("ba3us.check.arrays.random_indices", lambda rows, _: np.arange(0, rows, 2))
    x, y = clouds(range(4))
    _, report = checked(x, y, clouds([0, 1], 40, seed=1)[0])
    assert report.passed_over == [
        "Classes and domains were judged by 80 of 80 source rows and 40 of 80 target rows."
    ]


def test_arrays_of_more_axes_and_whole_numbers(checked):
    x, y = clouds(range(4))
    xt = clouds([0, 1], 30, shift=1.0, seed=1)[0]
    found, report = checked((10 * x).astype(np.int16).reshape(-1, 4, 5), y, (10 * xt).reshape(-1, 4, 5))
    assert found == {} and report.facts["source"]["shape"] == [4, 5]


@pytest.mark.parametrize("values", [np.zeros((0, 20)), np.full((3, 20), "x")])
def test_what_holds_no_numbers_is_bad_input(checked, clean, values):
    x, y, _ = clean
    with pytest.raises(UserError, match=r"The target (is empty|holds values of type)"):
        checked(x, y, values)
