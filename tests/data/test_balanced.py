"""Class-balanced source batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ba3us.data.streams import Balanced, Streams
from ba3us.training import Callback
from toys import CLASSES, blobs, trainer

LABELS = np.array([3, 0, 0, 5, 0, 3, 0])  # one class with a single row, three numbers with none


def test_every_turn_gives_each_class_once():
    rows = Balanced(LABELS, 0, 0).take(3 * 40)
    turns = LABELS[rows].reshape(40, 3)
    assert (np.sort(turns, axis=1) == [0, 3, 5]).all()
    assert len({tuple(turn) for turn in turns}) == 6  # in every order


def test_each_class_goes_through_its_own_rows():
    rows = Balanced(LABELS, 0, 0).take(3 * 8)
    for c in (0, 3, 5):
        own = np.flatnonzero(c == LABELS)
        given_ = rows[LABELS[rows] == c]
        for start in range(0, len(given_) - len(own) + 1, len(own)):
            assert sorted(given_[start : start + len(own)]) == own.tolist()


@given(st.integers(0, 100), st.integers(0, 30), st.lists(st.integers(0, 4), min_size=1, max_size=20))
def test_a_position_is_the_whole_state(position, count, labels):
    played, jumped = (Balanced(np.array(labels), 3, 0) for _ in range(2))
    played.take(position)
    jumped.position = position
    assert np.array_equal(played.take(count), jumped.take(count))
    assert played.position == position + count


def test_streams_are_balanced_where_labels_are_given():
    a, b = Streams(len(LABELS), 4, 1, LABELS), Streams(len(LABELS), 4, 1, LABELS)
    a.draw(5, 2, 1)
    b.seek(a.positions())
    assert np.array_equal(a.draw(6, 2, 1).source, b.draw(6, 2, 1).source)
    assert not np.array_equal(a.source.take(30), Streams(len(LABELS), 4, 2, LABELS).source.take(30))


class Labels(Callback):
    """The labels of every source batch."""

    def on_start(self, trainer):
        self.seen = []
        draw = trainer.streams.draw

        def noted(*counts):
            rows = draw(*counts)
            self.seen.append(rows.source)
            return rows

        trainer.streams.draw = noted


@pytest.mark.parametrize(("name", "balanced"), [("etn", True), ("dann", False)])
def test_the_loop_draws_what_the_recipe_asks_for(name, balanced):
    source, target, _ = blobs(n_source=41)
    labels = Labels()
    trainer(name, callbacks=(labels,), batch_size=CLASSES).fit(source, target)
    batches = source.labels.numpy()[np.stack(labels.seen)]
    assert all(len(set(batch)) == CLASSES for batch in batches.tolist()) == balanced
