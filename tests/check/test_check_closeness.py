"""Mislabelled folders, unknown classes and hard shifts, on clouds whose truth is known."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from check_toys import clouds, opened
from hypothesis import given
from hypothesis import strategies as st

from ba3us.check import closeness, domains
from ba3us.check.domains import Confusion, Sight
from ba3us.check.findings import Finding

NAMES = [f"class {number}" for number in range(12)]


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def sight(x, y, xt) -> Sight:
    names, labels = np.unique(y, return_inverse=True)
    source, target = domains.directions(x, xt)
    return Sight.of(target, source, labels, len(names))


def findings(found: Sight) -> list[Finding]:
    rows = [f"row {row}" for row in range(len(found.predicted))]
    vectors = SimpleNamespace(classes=NAMES, target_names=rows)
    return [*closeness.unknown_class(SimpleNamespace(vectors=vectors, closeness=(None, found, None)))]


def topics(found: Sight) -> list[str]:
    return [finding.topic for finding in findings(found)]


@given(st.integers(0, 1000), st.integers(2, 5), st.integers(2, 9), st.booleans())
def test_closeness_is_the_mean_of_the_nearest(seed, classes, each, own):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(classes), each))
    source = unit(rng.standard_normal((len(labels), 4)))
    rows = source if own else unit(rng.standard_normal((3, 4)))
    close = domains.to_classes(rows, source, labels, classes, own)
    for i, j in np.ndindex(len(rows), classes):
        others = [k for k in np.flatnonzero(labels == j) if not (own and k == i)]
        nearest = sorted(float(source[k] @ rows[i]) for k in others)[-min(domains.NEAREST, each - own) :]
        assert close[i, j] == pytest.approx(np.mean(nearest), abs=1e-4)


def test_a_class_without_rows_is_far():
    rows = unit(np.random.default_rng(0).standard_normal((3, 4)))
    close = domains.to_classes(rows, rows, np.array([0, 0, 2]), 3, own=True)
    assert (close[:, 1] == -1).all() and (close[:, 2] == -1).all() and (close[:, 0] > -1).all()


def test_a_partial_target_is_no_finding():
    x, y = clouds(range(8))
    for classes in (range(8), range(3)):
        found = sight(x, y, clouds(classes, 30, shift=0.5, seed=1)[0])
        assert topics(found) == [] and found.classes() == list(classes)


def test_an_unknown_class_is_found_and_its_rows_are_named():
    x, y = clouds(range(6))
    xt, yt = clouds([0, 1, 2, 8], 30, shift=0.5, seed=1)
    found = sight(x, y, xt)
    assert topics(found) == ["unknown class"]
    assert set(yt[found.undecided]) == {8} and len(found.undecided) > 20
    finding = findings(found)[0]
    assert finding.level == "warning" and finding.items[0] == f"row {found.undecided[0]}"


def test_few_strange_rows_are_no_class():
    x, y = clouds(range(6))
    xt = np.concatenate([clouds([0, 1, 2], 60, seed=1)[0], clouds([8], 5, seed=1)[0]])
    assert topics(sight(x, y, xt)) == []


def test_a_target_without_visible_classes_is_a_hard_shift_and_nothing_else_is_claimed():
    x, y = clouds(range(6))
    noise = np.random.default_rng(3).standard_normal((200, x.shape[1])).astype(np.float32)
    found = sight(x, y, noise)
    assert found.kappa < domains.HOLDS and topics(found) == ["hard shift"]


def confused(labels: np.ndarray, x: np.ndarray) -> tuple[list, list]:
    source, _ = domains.directions(x, x[:1])
    found = Confusion.of(source, labels, int(labels.max()) + 1)
    return found.same(), found.mixed()


def test_clean_labels_are_no_finding():
    x, y = clouds(range(6))
    assert confused(y, x) == ([], [])


def test_a_folder_of_another_class_is_found():
    x, _ = clouds([0, 1, 2, 3, 3])
    folders = np.repeat(np.arange(5), 20)  # the last holds what class 3 holds
    assert confused(folders, x) == ([(3, 4)], [])
    finding, *others = closeness.mislabelled(opened(x, x[:1], folders, NAMES[:5]))
    assert finding.topic == "same content" and "class 3 and class 4" in finding.text and not others
    assert {int(item) // 20 for item in finding.items} == {3, 4}


def test_a_folder_with_some_of_another_class_is_found():
    x, y = clouds(range(5))
    y[20:24] = 0  # four of class 1, too few to speak for one another
    assert confused(y, x) == ([], [(0, 1)])
    y[20:22] = 1  # two could be chance
    assert confused(y, x) == ([], [])


def test_columns_of_any_unit_are_seen_alike():
    x, y = clouds(range(6))
    xt, _ = clouds([0, 1, 8], 30, seed=1)
    units = np.geomspace(1e-3, 1e6, x.shape[1]).astype(np.float32)
    plain, scaled = sight(x, y, xt), sight(x * units, y, xt * units)
    assert topics(scaled) == topics(plain) == ["unknown class"]
