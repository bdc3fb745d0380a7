"""Symptoms in the history: class weights that vanish, a discriminator that is always right."""

from __future__ import annotations

import numpy as np
import pytest

from ba3us.data import Source, Target
from ba3us.training import Execution, TrainingMonitor
from ba3us.training.monitoring import saturated_discriminator, vanished_weights
from toys import blobs, trainer


def rows(count: int = 10, **figures):
    return [{"phase": "adaptation", "step": 10 * i, **figures} for i in range(count)]


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"effective_classes": 1.0}, "one class alone"),
        ({"effective_classes": 0.0}, "no class at all"),
        ({"shared_classes": 0.0}, "no class at all"),
    ],
)
def test_weights_on_one_class_or_none(figures, words):
    found = vanished_weights({}, rows(**figures))
    assert found.message.startswith(f"From step 0 on the class weights stood on {words}")


def test_weights_that_are_well_or_not_there():
    assert vanished_weights({}, rows(effective_classes=1.2)) is None
    assert vanished_weights({}, rows(loss=1.0)) is None
    passing = [*rows(9, effective_classes=1.0), *rows(1, effective_classes=3.0)]
    assert vanished_weights({}, passing) is None


def test_a_saturated_discriminator_is_one_far_below_guessing():
    first = {"alignment": 0.69, "lambda": 0.0}
    found = saturated_discriminator(first, rows(alignment=0.001))
    assert found.summary == "discriminator saturated" and "told source and target apart" in found.message
    assert saturated_discriminator(first, rows(alignment=0.1)) is None
    assert (
        saturated_discriminator({"alignment": 0.69}, rows(alignment=0.001)) is None
    )  # a distance, no adversary
    assert saturated_discriminator({}, rows(loss=1.0)) is None


@pytest.mark.parametrize(("factor", "noticed"), [(1.0, []), (1e-3, ["discriminator saturated"])])
def test_a_training_is_told_so(factor, noticed):
    made = trainer("dann", run=Execution(n_threads=1, log_every=1), callbacks=(TrainingMonitor(),), steps=20)
    losses = made.method.losses

    def sure(outputs, step):
        """From step 5 on the discriminator is always right."""
        terms = losses(outputs, step)
        return terms | ({"alignment": factor * terms["alignment"]} if step.number >= 5 else {})

    made.method.losses = sure
    made.fit(*blobs()[:2])
    assert list(made.warnings) == noticed
    assert all(said.startswith("From step 5 on") for said in made.warnings.values())


def test_what_was_noticed_does_not_depend_on_where_a_run_goes_on():
    made = trainer(callbacks=(TrainingMonitor(),))
    made.history = [{"phase": "adaptation", "step": i, "effective_classes": 1.0} for i in range(12)]
    made.callbacks[0].on_start(made)
    assert (
        list(made.warnings) == ["class weights vanish"] and "step 0 on" in made.warnings["class weights vanish"]
    )
    made.history = made.history[:5]  # given up
    made.callbacks[0].on_end(made)
    assert made.warnings == {}


def test_source_without_adversary_is_never_noticed():
    y = np.arange(24) % 4
    x = np.eye(6, dtype=np.float32)[y]
    made = trainer("source-only", callbacks=(TrainingMonitor(),))
    made.fit(Source(x, y), Target(x))
    assert not made.warnings.keys() & {"class weights vanish", "discriminator saturated"}
