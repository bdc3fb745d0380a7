"""Calibrated confidence: temperatures by hand and by scikit-learn, thresholds, and when nothing is promised."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import sklearn

from ba3us.assess import calibration as c
from ba3us.assess.verdict import ADAPTED, HARMED, HELPED, NO_EVIDENCE, SOURCE_ONLY, Verdict
from ba3us.errors import UserError


def sample(sharper, n=4000, classes=4, seed=0):
    """Logits whose softmax is true, and the same `sharper` than true; labels drawn from the true ones."""
    chance = np.random.default_rng(seed)
    true = 2 * chance.standard_normal((n, classes))
    labels = (true + chance.gumbel(size=true.shape)).argmax(axis=1)
    return sharper * true, labels


def verdict(kappa=0.95, word=HELPED, served=ADAPTED, changed=0.1, plain=0.95, effective=3.0):
    figures = {"kappa": kappa, "kappa_source_only": plain, "changed": changed, "effective_classes": effective}
    return Verdict(word, served, [], figures)


def test_the_likeliest_temperature_undoes_what_made_logits_too_sharp():
    logits, labels = sample(3.0, 20_000)
    assert c.likeliest(logits, labels) == pytest.approx(3.0, rel=0.05)


@pytest.mark.skipif(
    tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 8), reason="scikit-learn has it from 1.8 on"
)
def test_scikit_learn_finds_the_same_temperature():
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator
    from sklearn.linear_model import LogisticRegression

    logits, labels = sample(2.5)
    model = LogisticRegression().fit(logits, labels)
    model.coef_, model.intercept_ = np.eye(4), np.zeros(4)  # its scores are the logits themselves
    judge = CalibratedClassifierCV(FrozenEstimator(model), method="temperature").fit(logits, labels)
    temperature = c.likeliest(logits, labels)
    sure = judge.predict_proba(logits).max(axis=1)
    np.testing.assert_allclose(c.confidence(logits, temperature), sure, atol=2e-3)


def test_a_temperature_is_found_by_the_mean_confidence():
    logits, _ = sample(3.0)
    for share in (0.4, 0.7, 0.95):
        assert c.confidence(logits, c.matching(logits, share)).mean() == pytest.approx(share, abs=1e-4)
    assert c.matching(logits, 0.0) == pytest.approx(50) and c.matching(logits, 1.0) == pytest.approx(0.05)


def test_thresholds_by_hand():
    sure = np.array([0.5, 0.99, 0.9, 0.8])  # expected errors of the surest 1, 2, 3, 4: 1, 5.5, 10.3, 20.25 %
    assert [c.threshold_of(sure, level) for level in (0.005, 0.011, 0.06, 0.11, 0.3)] == [
        1.1,
        0.99,
        0.9,
        0.8,
        0.5,
    ]


def test_equal_samples_are_kept_together_or_not_at_all():
    assert (
        c.threshold_of(np.array([1.0] + [0.9] * 10), 0.05) == 1.0
    )  # with the ten, 9 % are expected to be wrong
    assert c.threshold_of(np.array([1.0] + [0.9] * 10), 0.095) == 0.9


def test_a_stated_level_holds_where_confidence_is_true_and_kappa_fits():
    logits, labels = sample(1.0, 20_000)
    right = logits.argmax(axis=1) == labels
    made = c.calibrate(logits, *sample(1.0, seed=1), verdict(right.mean() ** 2))
    assert made.temperature == pytest.approx(1, abs=0.05)
    for level in (0.05, 0.1):
        kept = made.confidence(logits) >= made.threshold(level)
        assert 0.7 * level < 1 - right[kept].mean() < 1.1 * level
        assert kept.mean() == pytest.approx(made.proportion_kept(level), abs=1e-5)


def test_the_higher_temperature_is_used():
    logits, _ = sample(1.0)
    sharp, labels = sample(3.0, seed=1)
    assert c.calibrate(logits, sharp, labels, verdict(0.999)).temperature == pytest.approx(3, rel=0.1)
    doubtful = c.calibrate(logits, *sample(1.0, seed=1), verdict(0.25))
    assert doubtful.confidence(logits).mean() == pytest.approx(0.5, abs=1e-4)
    assert c.calibrate(logits, sharp, labels, verdict(-0.2)).temperature == 50  # worse than by chance


@pytest.mark.parametrize(
    ("said", "held_out", "words"),
    [
        (verdict(0.95), 9, []),
        (verdict(0.69), 9, ["κ 0.69, at least 0.7"]),
        (verdict(0.95, NO_EVIDENCE, SOURCE_ONLY), 9, []),  # source-only is already where adapting would lead
        (verdict(0.95, NO_EVIDENCE), 9, ["no evidence"]),
        (verdict(0.5, HARMED), 9, ["κ 0.5,", "harmed"]),
        (verdict(0.95, changed=0.2), 9, ["20.0 % of the samples another class (at most 15 %"]),
        (verdict(0.95), 0, ["too few samples"]),
        (verdict(0.95, NO_EVIDENCE, SOURCE_ONLY, plain=0.5, changed=0.2), 9, ["κ 0.5,"]),  # of what is served
        (verdict(0.0, effective=1.0), 9, ["predicted as one class, so neighbours say nothing"]),
    ],
)
def test_when_no_level_can_be_promised(said, held_out, words):
    logits, labels = sample(1.0, 50)
    made = c.calibrate(logits, logits[:held_out], labels[:held_out], said)
    assert len(made.cautions) == len(words)
    assert all(word in text for word, text in zip(words, made.cautions))
    assert ("No error level can be promised" in " ".join(made.summary())) == bool(words)


def test_levels_between_and_out_of_reach():
    made = c.calibrate(*sample(1.0)[:1], *sample(1.0, seed=1), verdict())
    assert made.threshold(0.055) == made.threshold(0.05) >= made.threshold(0.06)
    for level in (0.0, -1, 1, 5, math.nan):
        with pytest.raises(UserError, match="error level"):
            made.threshold(level)
    hopeless = c.calibrate(np.zeros((9, 4)), *sample(1.0, seed=1), verdict())
    assert (
        hopeless.proportion_kept(0.05) == 0
        and "no target sample has enough confidence" in hopeless.summary()[0]
    )


def test_it_comes_back_from_json():
    made = c.calibrate(*sample(1.0)[:1], *sample(1.0, seed=1), verdict(0.5))
    assert c.Calibration(**json.loads(json.dumps(made.to_dict()))) == made
