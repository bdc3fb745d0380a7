"""A source that labelled target rows have joined."""

from __future__ import annotations

import numpy as np
import torch

from ba3us.data import Source, Target
from ba3us.data.domains import PseudoLabelledSource


def test_rows_and_labels_of_both():
    source = Source(np.arange(12, dtype=np.float32).reshape(6, 2), [0, 1, 2, 0, 1, 2])
    target = Target(-np.arange(8, dtype=np.float32).reshape(4, 2))
    distilled = PseudoLabelledSource(source, target, np.array([3, 1]), np.array([2, 0]))
    assert (distilled.repeat, len(distilled), distilled.num_classes) == (3, 12, 3)
    assert distilled.labels.tolist() == [0, 1, 2, 0, 1, 2, 2, 0, 2, 0, 2, 0]
    assert distilled.batch([5, 6, 7, 10]).tolist() == [[10, 11], [-6, -7], [-2, -3], [-6, -7]]
    assert torch.equal(distilled.batch(slice(4, 8)), distilled.batch(np.arange(4, 8)))
    assert distilled.batch([0], torch.float64).dtype == torch.float64


def test_a_larger_target_joins_once():
    source, target = Source(np.zeros((4, 2)), [0, 1, 0, 1]), Target(np.ones((9, 2)))
    assert len(PseudoLabelledSource(source, target, np.arange(9), np.zeros(9, int))) == 13
