"""The verdict: when a model may take source-only's place, and what is said of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from ba3us.assess import verdict
from ba3us.assess.verdict import ADAPTED, HARMED, HELPED, NO_EVIDENCE, PLAIN, Standing
from ba3us.scores import Neighbours


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
        (Standing(0.4, 3.0), Standing(0.5, 4.0), ""),
        (Standing(0.9, 2.0), Standing(0.5, 4.0), "fall onto 2.0 classes"),
    ],
)
def test_objections(member, plain, words):
    found = verdict.objection(member, plain)
    assert words in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize(
    ("chosen", "plain", "changed", "word", "served"),
    [
        (Standing(0.5, 4.0), Standing(0.3, 4.0), 0.2, HELPED, ADAPTED),  # neighbours confirm more
        (Standing(0.32, 4.0), Standing(0.3, 4.0), 0.2, NO_EVIDENCE, PLAIN),  # hardly more
        (Standing(0.9, 1.2), Standing(0.3, 4.0), 0.2, NO_EVIDENCE, PLAIN),  # κ rose, with the classes gone
        (
            Standing(0.37, 5.0),
            Standing(0.4, 2.0),
            0.2,
            HELPED,
            ADAPTED,
        ),  # κ fell, but there is more to agree on
        (Standing(0.3, 5.0), Standing(0.4, 2.0), 0.2, NO_EVIDENCE, PLAIN),  # κ fell too far
        (Standing(0.8, 4.0), Standing(0.8, 4.0), 0.1, HELPED, ADAPTED),  # source-only was good: smoothed
        (Standing(0.9, 4.0), Standing(0.3, 4.0), 0.001, NO_EVIDENCE, PLAIN),  # nothing changed
    ],
)
def test_of_choice(chosen, plain, changed, word, served):
    said = verdict.of_choice("vote", chosen, plain, changed)
    assert (said.word, said.served) == (word, served)
    assert f"{changed:.1%}" in said.reasons[1]
    assert said.figures["evidence"] == pytest.approx(chosen.kappa * np.log(chosen.effective))


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
