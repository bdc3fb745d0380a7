"""Label spaces, numbers, the distance of domains, and the order of findings."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from check_toys import clouds, opened

from ba3us.check import arrays, check, classes, closeness, domains, findings, images, register_check
from ba3us.check.domains import sample_source
from ba3us.check.findings import CHECKS, Finding, Report, many, some
from ba3us.run.spec import Spec


def topics(findings) -> list[str]:
    return [finding.topic for finding in findings]


def test_findings_come_in_the_order_of_what_matters():
    given = [Finding(level, topic, "", "") for level, topic in (("note", "a"), ("stop", "b"), ("warning", "c"))]
    report = Report.of([*given, Finding("stop", "d", "", "")], {})
    assert topics(report.findings) == ["b", "d", "c", "a"]
    assert report.summary()["counts"] == {"stop": 2, "warning": 1, "note": 1}


def test_words():
    assert many(1, "image") == "1 image" and many(2000, "image") == "2,000 images"
    assert some([1, 2]) == "1, 2" and some(range(5)) == "0, 1, 2, and 2 more"
    assert len(Finding.of("note", "", "", "", ["x"] * 5000).items) == 1000


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"a": 9}, ["one class"]),
        ({}, ["one class"]),
        ({"a": 9, "b": 5}, []),
        ({"a": 9, "b": 4}, ["tiny classes"]),
        ({"a": 600, "b": 10}, ["uneven classes"]),
        ({"a": 500, "b": 10}, []),
    ],
)
def test_counts(counts, expected):
    assert topics(classes.class_sizes(SimpleNamespace(counts=counts, empty_classes=[]))) == expected


def test_empty_folders_and_small_targets():
    empty = SimpleNamespace(counts={"a": 9, "b": 9}, empty_classes=["c"])
    assert topics(classes.class_sizes(empty)) == ["empty classes"]
    small, large = (SimpleNamespace(names={"target": ["x"] * rows}) for rows in (29, 30))
    assert topics(classes.target_size(small)) == ["small target"] and topics(classes.target_size(large)) == []


def test_names_that_differ_in_case_or_blanks():
    counts = dict.fromkeys(["desk lamp", "Desk_Lamp", "desk", "lamp"], 9)
    (found,) = classes.similar_class_names(SimpleNamespace(counts=counts))
    assert found.items == ("desk lamp", "Desk_Lamp")


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        ([], []),
        (["cat"], []),  # a part of the classes is what this is for
        (["cat", "dog", "bird"], []),
        (["2021", "2022"], []),  # no classes at all
        (["cat", "Dog"], ["names spelled otherwise"]),
        (["cat", "cow"], ["unknown folders"]),
        (["cat", "cow", "b_ird"], ["names spelled otherwise", "unknown folders"]),
    ],
)
def test_folders_of_the_target(tmp_path, folders, expected):
    for folder in (*folders, ".hidden"):
        (tmp_path / folder).mkdir()
    known = SimpleNamespace(target_path=tmp_path, classes=["cat", "dog", "bird"])
    assert topics(images.target_folders(known)) == expected


def test_numbers_that_are_none():
    rows = np.zeros((5, 3))
    rows[1, 2], rows[3, 0], rows[4, 1] = np.nan, -np.inf, 1e300
    good = arrays.finite_rows(rows)
    assert good.tolist() == [True, False, True, False, False]
    (found,) = arrays.not_finite(SimpleNamespace(finite={"source": good}))
    assert found.level == "stop" and found.items == ("row 1", "row 3", "row 4")
    for whole in (np.ones((4, 2), np.float16), np.ones((2, 2), int)):
        assert arrays.finite_rows(whole).all()


def test_constant_columns_and_scales():
    rows = np.random.default_rng(0).standard_normal((50, 3))
    fine = opened(rows, 5 * rows)
    assert not [*closeness.constant_columns(fine), *closeness.scales(fine)]
    rows[:, 1] = 1e6
    (found,) = closeness.constant_columns(opened(rows, rows))
    assert found.level == "note" and found.items == ("column 1",)
    (found,) = closeness.constant_columns(opened(np.ones((9, 2)), rows))
    assert found.level == "stop"
    assert topics(closeness.scales(opened(rows[:, :1], 100 * rows[:, :1]))) == ["scales apart"]


def test_domains_are_told_apart_only_where_they_differ():
    x, y = clouds(range(4), 60)
    near, seen = clouds([0, 1], 60, seed=1)
    far = clouds([0, 1], 60, shift=2.0, seed=1)[0]
    alike, different = domains.accuracy(x, y, near, seen), domains.accuracy(x, y, far, seen)
    assert alike is not None and different is not None
    assert alike < 0.6 < 0.95 < different  # classes that the target has not got are no distance
    for told_apart, expected in ((alike, ["domains alike"]), (different, [])):
        found = SimpleNamespace(vectors=(), closeness=(None, None, told_apart))
        assert topics(closeness.similar_domains(found)) == expected
    assert domains.accuracy(x, y, near[:5], seen[:5]) is None
    assert "too few" in domains.in_words(None) and "hardly" in domains.in_words(0.5)
    assert "in part" in domains.in_words(0.8) and "clearly" in domains.in_words(0.95)


def test_what_lies_between_two_folders_of_one_content_is_not_unknown():
    x, _ = clouds([0, 1, 2, 3, 3])
    folders = np.repeat(np.arange(5), 20)  # the last two hold the same
    xt = clouds([0, 1, 3], 30, seed=1)[0]
    both = opened(x, xt, folders, list("abcde"))
    assert topics(closeness.mislabelled(both)) == ["same content"]
    assert topics(closeness.unknown_class(both)) == []
    assert both.figures()["classes_seen_in_target"] == ["a", "b", "d"]


def test_large_domains_are_sampled_by_class():
    labels = np.repeat([0, 1, 2], [5, 900, 9000])
    rows = sample_source(labels, most=600)
    assert np.bincount(labels[rows]).tolist() == [5, 200, 200] and (np.diff(rows) > 0).all()
    assert len(sample_source(np.repeat(np.arange(500), 12), most=600)) == 1200  # ten of each would be more
    assert sample_source(labels, most=len(labels)).tolist() == list(range(len(labels)))


def test_a_check_is_one_function(tmp_path, monkeypatch):
    monkeypatch.setattr("ba3us.check.findings.CHECKS", {kind: [*known] for kind, known in CHECKS.items()})
    monkeypatch.setattr("ba3us.check.CHECKS", findings.CHECKS)

    @register_check("arrays")
    def many_columns(domains):
        for domain, features in domains.features.items():
            yield Finding("note", "many columns", f"{domain}: {features.shape[1]}", "")

    x, y = clouds(range(3))
    np.savez(tmp_path / "s.npz", features=x, labels=y)
    np.savez(tmp_path / "t.npz", features=x + 1)
    spec = Spec(source=str(tmp_path / "s.npz"), target=str(tmp_path / "t.npz"))
    found = [f.text for f in check(spec, cost=False).findings if f.topic == "many columns"]
    assert found == [f"source: {x.shape[1]}", f"target: {x.shape[1]}"]
    assert len(findings.CHECKS["images"]) == len(CHECKS["images"])
