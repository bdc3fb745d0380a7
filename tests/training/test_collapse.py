"""Predictions that fall onto few classes are noticed, said, and may end a run."""

from __future__ import annotations

import numpy as np
import pytest

from arrays_toys import NAMES, clouds
from ba3us.adapt import train
from ba3us.errors import UserError
from ba3us.run.arrays import ArraySamples, OpenedArrays
from ba3us.run.spec import Spec
from ba3us.training import Evaluation
from ba3us.training.monitoring import collapsed

X, Y, XT, _ = clouds(120, 90)
CODES = np.searchsorted(NAMES, Y)
SMALL = {"steps": 60, "bottleneck": 8, "discriminator_hidden": 8, "refresh_every": 10}


def looks(*counts, classes=7, candidate=True):
    """Evaluations whose predictions spread evenly over so many classes."""
    return [
        Evaluation("adapt", 10 * i, candidate, 0.0, {}, np.arange(60) % n, np.ones(classes) / classes)
        for i, n in enumerate(counts)
    ]


@pytest.mark.parametrize(
    ("counts", "classes", "noticed"),
    [
        ((5, 4, 4), 7, False),
        ((5, 1, 1), 7, True),
        ((1, 1), 7, True),  # from the beginning
        ((5, 1), 7, False),  # once may pass
        ((5, 1, 4), 7, False),  # and did
        ((40, 12, 12), 50, True),  # fewer than 0.4 of what there was
        ((40, 20, 20), 50, False),
        ((2, 1, 1), 2, False),  # of two classes one may be all there is
        ((1,), 7, False),
    ],
)
def test_when_a_collapse_is_noticed(counts, classes, noticed):
    assert (collapsed(looks(*counts, classes=classes)) is not None) == noticed


def test_a_warm_start_is_no_collapse():
    assert collapsed(looks(1, 1, 1, candidate=False)) is None


def run(xt=XT, **fields):
    opened = OpenedArrays(ArraySamples(X.shape[1:]), X, CODES, xt, NAMES.tolist())
    return train(Spec(method="e-dann", method_params=SMALL, **fields), opened)[0]


def test_it_is_said_and_ends_a_run_that_is_asked_to():
    one_class = np.repeat(XT[:1], 90, axis=0)  # which no label-free sign tells from a collapse
    full, ended = run(one_class), run(one_class, on_collapse="stop")
    assert any("effective classes" in note for note in full.notes)
    assert any("effective classes" in note for note in ended.notes)
    assert len(ended.evaluations) == 2 < len(full.evaluations)
    assert full.about["steps"] == full.evaluations[-1].step
    assert ended.about["steps"] == ended.evaluations[-1].step < full.about["steps"]
    assert np.array_equal(ended.evaluations[1].predictions, full.evaluations[1].predictions)


def test_a_run_that_does_not_collapse_says_nothing_and_is_the_same():
    whole, watched = run(), run(on_collapse="stop")
    assert not [note for note in watched.notes if "effective classes" in note]
    assert all(
        np.array_equal(a, b) for a, b in zip(whole.model.state().values(), watched.model.state().values())
    )


def test_another_word_is_a_sentence():
    with pytest.raises(UserError, match="Unknown `on_collapse` 'end': choose one of continue, stop"):
        Spec(on_collapse="end")
