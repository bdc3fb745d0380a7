"""The verdict: when a model may take source-only's place, and what is said of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from ba3us.assess import verdict
from ba3us.assess.verdict import ADAPTED, HARMED, HELPED, NO_EVIDENCE, SOURCE_ONLY, Agreement
from ba3us.scores import Neighbours


def near(n: int = 60) -> Neighbours:
    """Two far clusters of equal size."""
    g = torch.Generator().manual_seed(0)
    rows = 0.1 * torch.randn(n, 4, generator=g)
    rows[: n // 2, 0] += 5
    rows[n // 2 :, 1] += 5
    return Neighbours.among(rows, torch.zeros(4), count=5)


@pytest.mark.parametrize(
    ("candidate", "plain", "words"),
    [
        (Agreement(0.6, 4.0), Agreement(0.5, 4.0), ""),
        (Agreement(0.4, 3.0), Agreement(0.5, 4.0), ""),
        (Agreement(0.9, 2.0), Agreement(0.5, 4.0), "fall onto 2.0 classes"),
    ],
)
def test_rejection_reasons(candidate, plain, words):
    found = verdict.rejection_reason(candidate, plain)
    assert words in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize(
    ("chosen", "plain", "changed", "word", "served"),
    [
        (Agreement(0.5, 4.0), Agreement(0.3, 4.0), 0.2, HELPED, ADAPTED),  # neighbours confirm more
        (Agreement(0.32, 4.0), Agreement(0.3, 4.0), 0.2, NO_EVIDENCE, SOURCE_ONLY),  # hardly more
        (
            Agreement(0.9, 1.2),
            Agreement(0.3, 4.0),
            0.2,
            NO_EVIDENCE,
            SOURCE_ONLY,
        ),  # κ rose, with the classes gone
        (
            Agreement(0.37, 5.0),
            Agreement(0.4, 2.0),
            0.2,
            HELPED,
            ADAPTED,
        ),  # κ fell, but there is more to agree on
        (Agreement(0.3, 5.0), Agreement(0.4, 2.0), 0.2, NO_EVIDENCE, SOURCE_ONLY),  # κ fell too far
        (Agreement(0.8, 4.0), Agreement(0.8, 4.0), 0.1, HELPED, ADAPTED),  # source-only was good: smoothed
        (Agreement(0.9, 4.0), Agreement(0.3, 4.0), 0.001, NO_EVIDENCE, SOURCE_ONLY),  # nothing changed
    ],
)
def test_of_choice(chosen, plain, changed, word, served):
    said = verdict.judge_auto("weighted average", chosen, plain, changed)
    assert (said.outcome, said.model_used) == (word, served)
    assert f"{100 * changed:.1f} %" in said.reasons[1]
    assert said.figures["evidence"] == pytest.approx(chosen.kappa * np.log(chosen.effective))


def test_force_serves_what_was_adapted_but_the_word_stays():
    said = verdict.judge_auto(SOURCE_ONLY, Agreement(0.3, 4.0), Agreement(0.3, 4.0), 0.2, forced=True)
    assert (said.outcome, said.model_used) == (NO_EVIDENCE, ADAPTED)


def test_of_run_asks_who_is_nearer_to_the_reference():
    truth = np.repeat([0, 1], 30)
    worse, better = truth.copy(), truth.copy()
    worse[:12] = 1
    better[:1] = 1
    assert verdict.judge_run(better, worse, truth, near()).outcome == HELPED
    assert verdict.judge_run(worse, better, truth, near()).outcome == HARMED
    assert verdict.judge_run(better, better, truth, near()).outcome == NO_EVIDENCE
    said = verdict.judge_run(better, worse, None, near())
    assert said.outcome == NO_EVIDENCE
    assert said.model_used == ADAPTED  # a named system is never replaced
    assert json.loads(json.dumps(said.to_dict()))["figures"]["kappa"] > 0.8


def test_a_verdict_is_short_when_printed():
    judged = verdict.Verdict(HELPED, ADAPTED, ["Neighbours agree.", "More."], {"kappa": 0.8})
    assert repr(judged) == str(judged) == "<Verdict: likely helped; model used: adapted; Neighbours agree.>"
