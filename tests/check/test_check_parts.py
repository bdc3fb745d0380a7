"""Label spaces, numbers, the distance of domains, and the order of findings."""

from __future__ import annotations

import numpy as np
import pytest
from check_toys import clouds

from ba3us.check import arrays, domains
from ba3us.check.domains import Vectors, look, sample_source
from ba3us.check.findings import Finding, Report, many, some


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
    assert topics(domains.of_source(counts)) == expected


def test_empty_folders_and_small_targets():
    assert topics(domains.of_source({"a": 9, "b": 9}, ["c"])) == ["empty classes"]
    assert topics(domains.of_target(29)) == ["small target"] and topics(domains.of_target(30)) == []


def test_names_that_differ_in_case_or_blanks():
    (found,) = domains.names_alike(["desk lamp", "Desk_Lamp", "desk", "lamp"])
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
def test_folders_of_the_target(folders, expected):
    assert topics(domains.target_folders(folders, ["cat", "dog", "bird"])) == expected


def test_numbers_that_are_none():
    rows = np.zeros((5, 3))
    rows[1, 2], rows[3, 0], rows[4, 1] = np.nan, -np.inf, 1e300
    good = arrays.good_rows(rows)
    assert good.tolist() == [True, False, True, False, False]
    (found,) = arrays.not_finite("source", good)
    assert found.level == "stop" and found.items == ("row 1", "row 3", "row 4")
    assert arrays.good_rows(np.ones((4, 2), np.float16)).all() and arrays.good_rows(np.ones((2, 2), int)).all()


def test_constant_columns_and_scales():
    rows = np.random.default_rng(0).standard_normal((50, 3))
    assert not [*arrays.constant(rows, "source"), *arrays.scales(rows, 5 * rows)]
    rows[:, 1] = 1e6
    (found,) = arrays.constant(rows, "source")
    assert found.level == "note" and found.items == ("column 1",)
    (found,) = arrays.constant(np.ones((9, 2)), "source")
    assert found.level == "stop"
    assert topics(arrays.scales(rows[:, :1], 100 * rows[:, :1])) == ["scales apart"]


def test_domains_are_told_apart_only_where_they_differ():
    x, y = clouds(range(4), 60)
    near, seen = clouds([0, 1], 60, seed=1)
    far = clouds([0, 1], 60, shift=2.0, seed=1)[0]
    alike, different = domains.accuracy(x, y, near, seen), domains.accuracy(x, y, far, seen)
    assert alike is not None and different is not None
    assert alike < 0.6 < 0.95 < different  # classes that the target has not got are no distance
    assert topics(domains.finding(alike)) == ["domains alike"] and topics(domains.finding(different)) == []
    assert domains.accuracy(x, y, near[:5], seen[:5]) is None
    assert "too few" in domains.in_words(None) and "hardly" in domains.in_words(0.5)
    assert "in part" in domains.in_words(0.8) and "clearly" in domains.in_words(0.95)


def test_what_lies_between_two_folders_of_one_content_is_not_unknown():
    x, _ = clouds([0, 1, 2, 3, 3])
    folders = np.repeat(np.arange(5), 20)  # the last two hold the same
    xt = clouds([0, 1, 3], 30, seed=1)[0]
    rows = [str(row) for row in range(100)]
    found, facts = look(Vectors(x, folders, xt, list("abcde"), rows, rows))
    assert "same content" in topics(found) and "unknown class" not in topics(found)
    assert facts["classes_seen_in_target"] == ["a", "b", "d"]


def test_large_domains_are_sampled_by_class():
    labels = np.repeat([0, 1, 2], [5, 900, 9000])
    rows = sample_source(labels, most=600)
    assert np.bincount(labels[rows]).tolist() == [5, 200, 200] and (np.diff(rows) > 0).all()
    assert len(sample_source(np.repeat(np.arange(500), 12), most=600)) == 1200  # ten of each would be more
    assert sample_source(labels, most=len(labels)).tolist() == list(range(len(labels)))
