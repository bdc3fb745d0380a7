"""The verdict: when a model may take source-only's place, and what is said of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from ba3us.neighbours import Neighbours
from ba3us.selection import verdict
from ba3us.selection.verdict import ADAPTED, HARMED, HELPED, NO_EVIDENCE, PLAIN, Standing


def near(n: int = 60) -> Neighbours:
    """Two far clusters of equal size."""
    g = torch.Generator().manual_seed(0)
    rows = 0.1 * torch.randn(n, 4, generator=g)
    rows[: n // 2, 0] += 5
    rows[n // 2 :, 1] += 5
    return Neighbours.among(rows, torch.zeros(4), count=5)


@pytest.mark.parametrize(
    ("member", "plain", "words"),
    [
        (Standing(0.6, 4.0), Standing(0.5, 4.0), ""),
        (Standing(0.52, 4.0), Standing(0.5, 4.0), "not 0.03 above"),
        (Standing(0.9, 2.0), Standing(0.5, 4.0), "fall onto 2.0 classes"),
        (Standing(0.9, 4.0), Standing(0.0, 1.0), "one class"),
    ],
)
def test_objections(member, plain, words):
    found = verdict.objection(member, plain)
    assert words in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize(
    ("name", "plain", "changed", "word", "served"),
    [
        ("SAFN", 0.3, 0.2, HELPED, ADAPTED),  # a member that rose
        (PLAIN, 0.8, 0.1, HELPED, ADAPTED),  # source-only, smoothed where it may be
        (PLAIN, 0.3, 0.1, NO_EVIDENCE, PLAIN),  # where it may not
        ("SAFN", 0.3, 0.001, NO_EVIDENCE, PLAIN),  # nothing changed
    ],
)
def test_of_choice(name, plain, changed, word, served):
    said = verdict.of_choice(name, Standing(0.85, 4.0), Standing(plain, 4.0), changed)
    assert (said.word, said.served) == (word, served)
    assert f"{changed:.1%}" in said.reasons[1]


def test_force_serves_what_was_adapted_but_the_word_stays():
    said = verdict.of_choice(PLAIN, Standing(0.3, 4.0), Standing(0.3, 4.0), 0.2, forced=True)
    assert (said.word, said.served) == (NO_EVIDENCE, ADAPTED)


def test_of_run_asks_who_is_nearer_to_the_reference():
    truth = np.repeat([0, 1], 30)
    worse, better = truth.copy(), truth.copy()
    worse[:12] = 1
    better[:1] = 1
    assert verdict.of_run(better, worse, truth, near()).word == HELPED
    assert verdict.of_run(worse, better, truth, near()).word == HARMED
    assert verdict.of_run(better, better, truth, near()).word == NO_EVIDENCE
    said = verdict.of_run(better, worse, None, near())
    assert said.word == NO_EVIDENCE
    assert said.served == ADAPTED  # a named system is never replaced
    assert json.loads(json.dumps(said.packed()))["figures"]["kappa"] > 0.8
