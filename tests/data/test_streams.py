"""Endless streams of row indices."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ba3us.data.streams import Shuffled, Streams


@given(st.integers(1, 40), st.lists(st.integers(0, 100), max_size=12), st.integers(0, 5))
def test_every_pass_holds_every_row_once_whatever_the_batches(size, counts, seed):
    stream = Shuffled(size, seed, 0)
    taken = [stream.take(n) for n in counts]
    assert [len(t) for t in taken] == counts
    rows = np.concatenate([*taken, np.empty(0, dtype=np.int64)]).astype(int)
    assert stream.position == len(rows)
    for start in range(0, len(rows) - size + 1, size):
        assert sorted(rows[start : start + size]) == list(range(size))


def test_a_batch_larger_than_the_domain_cycles_through_it():
    assert np.array_equal(Shuffled(1, 0, 0).take(5), np.zeros(5))
    counts = np.bincount(Shuffled(3, 0, 0).take(36))
    assert counts.tolist() == [12, 12, 12]


def test_passes_are_shuffled_anew():
    stream = Shuffled(50, 0, 0)
    first, second = stream.take(50), stream.take(50)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, np.arange(50))


@given(st.integers(1, 20), st.integers(0, 200), st.integers(0, 30))
def test_a_position_is_the_whole_state(size, position, count):
    played, jumped = Shuffled(size, 3, 1), Shuffled(size, 3, 1)
    played.take(position)
    jumped.position = position
    assert np.array_equal(played.take(count), jumped.take(count))


def test_streams_depend_on_the_seed_and_not_on_each_other():
    def draw(seed, borrowed=4):
        s = Streams(30, 20, seed)
        return s.draw(6, 6, borrowed)

    a, b, c, d = draw(0), draw(0), draw(1), draw(0, borrowed=0)
    for name in ("source", "target", "borrowed"):
        assert np.array_equal(getattr(a, name), getattr(b, name))
        assert not np.array_equal(getattr(a, name), getattr(c, name))
    assert np.array_equal(a.source, d.source) and len(d.borrowed) == 0
    assert not np.array_equal(a.source[:4], a.borrowed)  # source and borrowed are drawn apart


def test_seek_goes_on_from_positions():
    a, b = Streams(7, 5, 2), Streams(7, 5, 2)
    for k in range(9):
        a.draw(4, 3, k % 3)
    b.seek(a.positions())
    one, other = a.draw(4, 3, 2), b.draw(4, 3, 2)
    for name in ("source", "target", "borrowed"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
