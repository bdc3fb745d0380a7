"""Pairs of equal and of nearly equal samples, and what is said of them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ba3us.check import duplicates
from ba3us.check.domains import digest
from ba3us.check.findings import Finding


@given(st.integers(0, 10_000), st.integers(0, 12), st.integers(0, 40))
def test_near_pairs_are_those_that_counting_finds(seed, rows, most):
    rng = np.random.default_rng(seed)
    bits = rng.random((rows, 64)) < 0.5
    if rows > 2:
        bits[-1] = bits[0] ^ (rng.random(64) < 0.2)
    partners = [[a for a in range(b) if (bits[a] != bits[b]).sum() <= most] for b in range(rows)]
    assert duplicates.near_pairs(bits, most) == [(min(few), b) for b, few in enumerate(partners) if few]


def test_many_equal_pictures_are_no_square_of_pairs():
    assert len(duplicates.near_pairs(np.zeros((3000, 8), dtype=bool), 1)) == 2999


def test_near_pairs_reach_across_chunks(monkeypatch):
    monkeypatch.setattr(duplicates, "_CHUNK", 2)
    bits = np.eye(7, 256, dtype=bool) | (np.arange(7)[:, None] % 2 == 0) & (np.arange(256) > 99)
    assert duplicates.near_pairs(bits, 2) == [(0, 2), (1, 3), (0, 4), (1, 5), (0, 6)]


def test_equal_pairs_name_the_first():
    keys = [digest(np.array(row)) for row in (1.0, 2.0, 1.0, 3.0, 1.0, 2.0)]
    assert sorted(duplicates.equal_pairs(keys)) == [(0, 2), (0, 4), (1, 5)]


def findings(pairs, target: int = 10) -> list[Finding]:
    """Of two classes of two and one images; the samples of a pair are equal."""
    keys = [bytes([row]) for row in range(3 + target)]
    for first, row in pairs:
        keys[row] = keys[first]
    names = {"source": ["a/1", "a/2", "b/1"], "target": [f"t{number}" for number in range(target)]}
    domains = SimpleNamespace(names=names, labels=np.array([0, 0, 1]), noun="image")
    domains.fingerprints = lambda: (keys, None)
    return [*duplicates.duplicates(domains)]


def said(pairs, target: int = 10) -> dict[str, tuple[str, int]]:
    return {f.topic: (f.level, f.count) for f in findings(pairs, target)}


def test_where_a_pair_lies_decides_how_much_it_matters():
    assert said([]) == {}
    assert said([(0, 1)]) == {"duplicates in source": ("note", 1)}
    assert said([(3, 4), (3, 5)]) == {"duplicates in target": ("note", 2)}
    assert said([(0, 2)]) == {"duplicates of two classes": ("warning", 1)}
    assert said([(0, 3), (2, 4)]) == {"duplicates across": ("warning", 2)}


def test_a_target_that_is_mostly_the_source_stops():
    assert said([(0, 3)], target=2) == {"duplicates across": ("warning", 1)}
    assert said([(0, 3), (1, 4)], target=3) == {"duplicates across": ("stop", 2)}


def test_pairs_name_the_source_first():
    (finding,) = findings([(1, 5)])
    assert finding.items == ("a/2 = t2",) and "1 target image is in the source too: a/2 = t2." in finding.text
