"""Published settings: chosen by protocol and task, under what makes a system, over nobody's options."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from ba3us import methods
from ba3us.assess.scoring import summary
from ba3us.errors import UserError
from ba3us.methods.registry import TASKS
from ba3us.nn import Head, Network
from ba3us.training import Execution
from toys import CLASSES, WIDTH, blobs, fit


def test_without_a_protocol_all_methods_have_the_same_budget():
    """Steps, rates and batches; a method's own weights and stages are its own."""
    names = ("steps", "batch_size", "learning_rate", "weight_decay", "momentum", "backbone_scale")
    ours = {e.name: tuple(getattr(e.options(), n) for n in names) for e in methods.entries()}
    adversarial = ("adda", "cdan", "cdan+e", "cdan+transnorm", "san", "pada", "iwan", "iwan-original", "etn")
    assert {ours[name] for name in adversarial} == {ours["ba3us"]}
    assert all(getattr(methods.get(n).options(), "ramp_steps", None) is None for n in ours)


@pytest.mark.parametrize(("protocol", "steps", "every", "rate", "beta"), [
    ("office31", 2000, 200, 1e-3, 5.0),
    ("office-home", 5000, 500, 1e-2, 1.0),
    ("imagenet-caltech", 40000, 4000, 1e-2, 5.0),
])  # fmt: skip
def test_the_paper(protocol, steps, every, rate, beta):
    config = methods.get("ba3us").options(protocol)
    assert (config.steps, config.interval, config.learning_rate, config.beta) == (steps, every, rate, beta)
    assert methods.get("baa").options(protocol).beta == 0.0  # what makes a system wins
    assert methods.get("ba3us").options(protocol, beta=2.0).beta == 2.0  # and options win over all


def test_padas_table_is_marked_as_tuned_on_target_labels():
    entry = methods.get("pada")
    assert all(published.oracle for published in entry.protocols.values())
    config = entry.options("office-home", "Cl->Rw")
    assert (config.learning_rate, config.refresh_every, config.tau, config.ramp_high) == (3e-3, 1000, 10, 0.5)
    config = entry.options("office-home", "Rw->Pr")
    assert (config.learning_rate, config.refresh_every, config.tau, config.ramp_high) == (1e-2, 500, 10, 1.0)
    assert (entry.options().tau, entry.options().ramp_high) == (1.0, 1.0)


@pytest.mark.parametrize(("name", "protocol", "task", "options", "note"), [
    ("ba3us", None, None, {}, "ba3us defaults"),
    ("ba3us", None, None, {"beta": 2.0}, "ba3us defaults with beta=2.0"),
    ("ba3us", "office31", None, {}, "published (office31)"),
    ("ba3us", "office31", "A->D", {"beta": 5, "refresh_every": None}, "published (office31)"),  # no change
    ("ba3us", "office31", None, {"learning_rate": 0.01, "steps": 100, "refresh_every": 10},
     "published (office31) with steps=100, learning_rate=0.01, refresh_every=10"),
    ("pada", "office-home", "Cl->Rw", {"tau": 1.0},
     "published (office-home) with tau=1.0; tuned per task with target labels"),
    ("dann", "office31", None, {}, "published (office31: the budget of BA³US)"),
    ("ba3us-closed", "office-home", None, {},
     "published (office-home: those of the partial task; none were published for the full target)"),
])  # fmt: skip
def test_whose_settings_they_are_is_worked_out(name, protocol, task, options, note):
    entry = methods.get(name)
    assert entry.settings_note(entry.options(protocol, task, **options), protocol, task) == note


def test_whether_the_defaults_are_published_is_worked_out():
    assert methods.get("mcc").defaults_note() == "ba3us defaults (none published)"
    entry = methods.get("ba3us")
    assert entry.defaults_note() == "ba3us defaults (3 differ)"
    assert set(entry.departures("office31")) == {"steps", "refresh_every", "learning_rate", "released_quirks"}
    settings = {"learning_rate": 1e-3, "steps": 2000, "released_quirks": True}
    same = dataclasses.replace(entry, settings=settings)
    assert same.defaults_note() == "published"


def test_tasks_are_the_papers():
    assert [len(TASKS[p]) for p in ("office31", "office-home", "imagenet-caltech")] == [6, 12, 2]


@pytest.mark.parametrize(("arguments", "sentence"), [
    (("office-31",), "did you mean 'office31'"),
    (("office31", "A->X"), "Unknown task 'A->X'"),
])  # fmt: skip
def test_unknown_protocols_and_tasks(arguments, sentence):
    with pytest.raises(UserError, match=sentence):
        methods.get("ba3us").options(*arguments)


def test_a_method_without_published_settings_says_so():
    with pytest.raises(UserError, match="'shot' has no published settings for 'office31'"):
        methods.get("shot").options("office31")


# --- a pretrained classifier that is kept -------------------------------------------------------------------


def kept(name, classifier, **options):
    options = {"keep_classifier": True, "batch_size": 6, **options}
    source, target, labels = blobs()
    run = Execution(n_threads=1, log_every=1)
    return fit(name, source, target, options=options, classifier=classifier, config=run), target, labels


def test_source_only_with_a_kept_classifier_is_that_classifier():
    classifier = nn.Linear(WIDTH, CLASSES)
    result, target, labels = kept("source-only", classifier, protocol="imagenet-caltech", task="I->C")
    x = target.batch(slice(None))
    assert torch.equal(result.predict(target).logits, classifier(x))
    assert torch.equal(result.predict(target).features, x)
    accuracy = float((classifier(x).argmax(1).numpy() == labels).mean())
    assert {score.accuracy for score in summary(result, labels).values()} == {accuracy}


@pytest.mark.parametrize("name", ["pada", "san"])
def test_partial_methods_keep_it_at_the_backbones_rate(name):
    classifier = nn.Linear(WIDTH, CLASSES)
    before = classifier.weight.detach().clone()
    result, *_ = kept(name, classifier, steps=2, discriminator_hidden=4, gaussian_start=True, learning_rate=0.1)
    network = result.module.network
    assert network.classifier is classifier and isinstance(network.bottleneck, nn.Identity)
    assert 0 < (classifier.weight - before).abs().max() < 0.1
    assert next(g for g in result.recipe.groups if "network.classifier".startswith(g.prefix)).lr_scale == 0.1


@pytest.mark.parametrize(("classifier", "sentence"), [
    (None, "brought no pretrained classifier"),
    (nn.Linear(WIDTH, CLASSES + 1), f"{WIDTH} features to {CLASSES + 1} classes"),
])  # fmt: skip
def test_a_classifier_that_does_not_fit(classifier, sentence):
    with pytest.raises(UserError, match=sentence):
        Network(nn.Identity(), WIDTH, CLASSES, Head(None, keep_classifier=True), classifier)


def test_no_updates_only_with_a_kept_classifier():
    with pytest.raises(UserError, match="'steps' is 0"):
        methods.get("source-only").options(steps=0)


@pytest.mark.parametrize("name", ["dann", "drcn", "mcs", "mwpda", "source-only", "sspda", "twins"])
def test_methods_without_a_program_have_the_common_budget(name):
    for protocol in TASKS:
        options, paper = (methods.get(n).options(protocol) for n in (name, "ba3us"))
        assert (options.steps, options.learning_rate) == (paper.steps, paper.learning_rate)
    assert methods.get(name).options("office31").bottleneck == methods.get(name).options().bottleneck


def test_the_batch_of_iwan_is_that_of_its_program():
    assert {methods.get("iwan").options(protocol).batch_size for protocol in TASKS} == {36}
