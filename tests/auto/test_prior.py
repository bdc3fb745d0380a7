"""The prior corrected: where only shares differ it helps, whoever trained; what is saved is what was said."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from ba3us.adapt import adapt, predict
from ba3us.data import Target
from ba3us.data.files import read_features
from ba3us.errors import UserError
from ba3us.run.run import Run
from ba3us.run.spec import Spec

RNG = np.random.default_rng(0)
CENTRES = 1.5 * RNG.standard_normal((4, 8))
SMALL = {"steps": 60, "bottleneck": 8, "discriminator_hidden": 8}


def drawn(counts):
    """Rows of classes that overlap, so many of each."""
    labels = np.repeat(np.arange(len(counts)), counts)
    return (CENTRES[labels] + 1.6 * RNG.standard_normal((len(labels), 8))).astype(np.float32), labels


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    x, y = drawn([150, 150, 150, 150])
    xt, yt = drawn([300, 60, 0, 0])
    np.savez(folder / "s.npz", features=x, labels=y)
    np.savez(folder / "t.npz", features=xt)
    return folder, yt


def asked(folder, **fields):
    return Spec(source=str(folder / "s.npz"), target=str(folder / "t.npz"), **fields)


def test_where_only_shares_differ_it_helps(data):
    folder, truth = data
    plain = adapt(
        asked(folder, method="source-only", method_params={"steps": 60, "bottleneck": 8}), folder / "plain"
    )
    assert "em_proportion" not in plain.presence
    fields = {
        "method": "e-dann",
        "method_params": SMALL,
        "standardize": False,
    }  # standardised, all is right before
    run = adapt(asked(folder, correct_prior=True, **fields), folder / "right")
    before = adapt(asked(folder, **fields), folder / "before")
    assert np.mean(run.best.predictions == truth) >= np.mean(before.best.predictions == truth)
    low, high = run.presence["em_low"], run.presence["em_high"]
    assert (low <= run.presence["em_proportion"] + 1e-6).all() and (
        run.presence["em_proportion"] <= high + 1e-6
    ).all()
    assert run.presence["em_proportion"].sum() == pytest.approx(1, abs=1e-4)
    assert any("corrected" in note for note in run.notes)


def test_the_saved_model_is_the_one_that_was_put_right(data):
    folder, _ = data
    run = adapt(asked(folder, method="dann", method_params=SMALL, correct_prior=True), folder / "run")
    predict(folder / "run", folder / "t.npz", folder / "out.csv")
    assert (folder / "out.csv").read_text() == (folder / "run" / "predictions.csv").read_text()
    found = Run.load(folder / "run")
    assert np.array_equal(found.best.predictions, run.best.predictions)
    told = [line.split(",")[1] for line in (folder / "out.csv").read_text().splitlines()[1:]]
    assert told == run.best.predictions.astype(str).tolist()
    assert "em_proportion" in found.presence


def test_what_is_told_of_the_classes_is_of_the_model_that_was_put_right(data):
    folder, _ = data
    run = adapt(asked(folder, method="e-dann", method_params=SMALL, correct_prior=True), folder / "told")
    table, logits = run.presence, run.logits(Target(read_features(folder / "t.npz").features))
    assert table["mean_probability"].tolist() == pytest.approx(softmax(logits, axis=1).mean(axis=0), abs=1e-4)
    assert ((table["low"] <= table["proportion"] + 1e-6) & (table["proportion"] <= table["high"] + 1e-6)).all()
    kept = np.mean(run.calibration.confidence(logits) >= run.calibration.threshold(0.05))
    assert run.calibration.proportion_kept(0.05) == pytest.approx(kept, abs=0.01)


def test_a_model_that_was_taught_the_target_is_left_alone(data):
    folder, _ = data
    spec = asked(folder, method="auto", method_params={"steps": 20, "force": True}, correct_prior=True)
    run = adapt(spec, folder / "taught")
    assert (
        any("trained on the target's own samples" in note for note in run.notes)
        and "em_proportion" not in run.presence
    )


def test_a_system_with_its_own_way_to_predict_is_refused_before_anything_trains(data):
    folder, _ = data
    with pytest.raises(UserError, match="has its own way"):
        adapt(asked(folder, method="mcs", correct_prior=True), folder / "no")
    assert not (folder / "no").exists()
