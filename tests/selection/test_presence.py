"""Which classes are present, by the provisional rule."""

from __future__ import annotations

import numpy as np

from ba3us.selection import class_shares, present_classes


def test_shares_by_hand():
    assert class_shares(np.array([0, 2, 2, 0, 2]), 4).tolist() == [0.4, 0, 0.6, 0]


def test_a_class_is_present_above_half_of_an_equal_share():
    # C = 4: the threshold is 1/8, and must be passed
    assert present_classes(np.array([0.125, 0.126, 0.0, 0.749])).tolist() == [False, True, False, True]
