"""Shares with intervals, and which classes are called present, absent or unsure."""

from __future__ import annotations

import numpy as np
import pytest

from ba3us.assess.presence import class_proportions, presence, presence_uncertainty


def test_shares_sum_to_one_over_all_classes():
    assert class_proportions(np.array([0, 0, 2, 1]), 4).tolist() == [0.5, 0.25, 0.25, 0.0]


def test_without_uncertainty_rows_at_hand_decide():
    rows = np.repeat([0, 1, 2], [150, 49, 1])  # one stray row of 200 is half a per cent
    table = presence(rows, [], 4)
    assert table["present"].tolist() == ["present", "present", "absent", "absent"]


@pytest.mark.parametrize("rows", [1, 3, 15])
def test_of_few_rows_none_that_is_there_is_called_absent(rows):
    calls = presence(np.arange(rows), [], rows + 1)["present"].tolist()
    assert calls == ["uncertain"] * rows + ["absent"]


def test_intervals_of_others_are_those_of_their_own_rows():
    table = presence(np.repeat([0, 1], 5000), [np.repeat([0, 1], 5)], 2)
    assert table["low"][0] < 0.3 and table["high"][0] > 0.7  # five of ten rows


def test_systems_that_differ_make_it_unsure():
    served, other = np.repeat([0, 1], [180, 20]), np.repeat([0, 2], [180, 20])
    table = presence(served, [other], 4)
    assert table["present"].tolist() == ["present", "uncertain", "uncertain", "absent"]
    assert table["low"][1] == 0.0
    assert table["high"][2] > 0.1 > table["proportion"][2] == 0.0


def test_with_too_much_uncertainty_no_class_is_called_present():
    rows = np.repeat([0, 1], [90, 10])
    assert presence(rows, [], 2, uncertainty=0.37)["present"].tolist() == ["present", "uncertain"]
    assert presence(rows, [], 2, uncertainty=0.38)["present"].tolist() == ["uncertain", "uncertain"]


def test_interval_is_wilsons():
    table = presence(np.repeat([0, 1], [10, 90]), [], 2)
    # Wilson, 10 of 100 at 95 %: worked out with the textbook formula
    assert table.loc[0, ["low", "high"]].tolist() == pytest.approx([0.0552, 0.1744], abs=1e-4)


def test_uncertainty_widens_intervals_and_withholds_calls():
    rows = np.repeat([0, 1, 2, 3], [40, 30, 25, 5])
    certain, uncertain = presence(rows, [], 5), presence(rows, [], 5, uncertainty=0.3)
    assert certain["present"].tolist() == ["present", "present", "present", "present", "absent"]
    assert uncertain["present"].tolist() == ["present", "present", "present", "uncertain", "uncertain"]
    assert np.allclose(uncertain["low"], np.clip(certain["low"] - 0.3, 0, 1))
    assert np.allclose(uncertain["high"], np.clip(certain["high"] + 0.3, 0, 1))


@pytest.mark.parametrize(
    ("kappa", "uncertainty"), [(0.9, 0.0), (0.7, 0.0), (0.6, 0.3), (0.0, 0.75), (-0.2, 0.75)]
)
def test_uncertainty_falls_with_kappa(kappa, uncertainty):
    assert presence_uncertainty(kappa, 0.7, changed=0.1) == pytest.approx(uncertainty)


@pytest.mark.parametrize(
    ("kappa", "changed", "uncertainty"), [(0.8, 0.15, 0.0), (0.8, 0.2, 0.2), (0.6, 0.5, 0.3)]
)
def test_much_that_adapting_moved_is_uncertain_where_neighbours_agree(kappa, changed, uncertainty):
    assert presence_uncertainty(kappa, 0.7, changed) == pytest.approx(uncertainty)
