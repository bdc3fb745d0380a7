"""The loop: when it looks at the target, what it keeps, domains of any size, sentences for what can't work."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn

from ba3us.data import BatchIndices, Source, Streams, Target
from ba3us.errors import UserError
from ba3us.methods.base import Phase
from ba3us.training import Callback, Execution, Trainer
from toys import CLASSES, SMALL, WIDTH, blobs, build, fit, options_for, same_state, trainer

RUN = Execution(n_threads=1, log_every=1)


class TrainingMonitor(Callback):
    """Counts updates and copies the state at every evaluation."""

    def __init__(self):
        self.updates, self.states, self.refreshed = 0, [], 0

    def on_start(self, trainer):
        inner = trainer.method.refresh

        def counted(target):
            self.refreshed += 1
            inner(target)

        trainer.method.refresh = counted

    def on_gradients(self, trainer, step):
        self.updates += 1

    def on_evaluation(self, trainer, evaluation):
        self.states.append({k: v.clone() for k, v in trainer.module.state_dict().items()})


# --- updates, evaluations, history ---


def test_a_phase_makes_exactly_its_updates_and_evaluates_at_every_refresh_and_the_end():
    source, target, _ = blobs()
    watch = TrainingMonitor()
    result = trainer(callbacks=(watch,), steps=10, refresh_every=4).fit(source, target)
    assert watch.updates == 10
    assert [e.step for e in result.evaluations] == [4, 8, 10]
    assert watch.refreshed == 3
    assert result.history["step"].tolist() == list(range(10))


def test_evaluations_are_separate_from_refreshes():
    source, target, _ = blobs()
    rare, often = TrainingMonitor(), TrainingMonitor()
    a = trainer(callbacks=(rare,), steps=12, refresh_every=6).fit(source, target)
    run = dataclasses.replace(RUN, evaluate_every=4)
    b = trainer(callbacks=(often,), steps=12, refresh_every=6, run=run).fit(source, target)
    assert [e.step for e in a.evaluations] == [6, 12]
    assert [e.step for e in b.evaluations] == [4, 6, 8, 12]
    assert rare.refreshed == often.refreshed == 2
    assert same_state(a.states["last"], b.states["last"])  # looking changes nothing
    assert a.history.equals(b.history)


def test_a_warm_up_has_its_own_schedule_and_is_no_candidate():
    source, target, _ = blobs()
    watch = TrainingMonitor()
    result = trainer(callbacks=(watch,), warmup_steps=5).fit(source, target)
    history = result.history
    assert history["phase"].tolist() == ["warmup"] * 5 + ["adapt"] * 8
    assert watch.updates == 13
    warm, adapt = (history[history["phase"] == p] for p in ("warmup", "adapt"))
    assert warm["lr"].iloc[0] == adapt["lr"].iloc[0] == 0.01  # it starts from its beginning
    assert adapt["lambda"].iloc[0] == pytest.approx(2 / (1 + math.exp(-10 / 8)) - 1)
    assert (warm["borrowed"] == 0).all() and adapt["borrowed"].iloc[0] == 1
    assert warm["alignment"].isna().all() and adapt["alignment"].notna().all()
    assert [(e.phase, e.step, e.candidate) for e in result.evaluations] == [
        ("warmup", 5, False),
        ("adapt", 4, True),
        ("adapt", 8, True),
    ]
    assert watch.refreshed == 2  # m stays uniform until the adapting phase first looks
    assert result.evaluations[result.best_index].candidate


def test_warm_up_draws_no_target_and_leaves_the_method_alone():
    source, target, _ = blobs()
    drawn = []

    class Noted(Streams):
        def draw(self, source, target, borrowed):
            drawn.append((source, target, borrowed))
            return super().draw(source, target, borrowed)

    network, method = build(warmup_steps=3)
    before = {k: v.clone() for k, v in method.state_dict().items()}
    states = []

    class AtBoundary(Callback):
        def on_evaluation(self, trainer, evaluation):
            states.append({k: v.clone() for k, v in method.state_dict().items()})

    Trainer(network, method, RUN, streams=Noted(40, 18, 0), callbacks=[AtBoundary()]).fit(source, target)
    assert drawn[:4] == [(6, 0, 0)] * 3 + [(6, 6, 1)]
    assert same_state(states[0], before)


def test_history_rows_every_log_every_updates():
    source, target, _ = blobs()
    result = trainer(run=Execution(n_threads=1, log_every=3), steps=8).fit(source, target)
    assert result.history["step"].tolist() == [0, 3, 6]
    wanted = {
        "phase",
        "step",
        "lr",
        "borrowed",
        "loss",
        "classification",
        "alignment",
        "entropy",
        "uncertainty",
    }
    assert wanted | {"lambda", "lambda_entropy", "effective_classes"} == set(result.history.columns)
    terms = result.history[["classification", "alignment", "entropy", "uncertainty"]]
    np.testing.assert_allclose(result.history["loss"], terms.sum(axis=1), rtol=1e-5)


def test_hooks_see_the_events_in_order():
    events = []

    class Order(Callback):
        def __getattribute__(self, name):
            if name.startswith("on_"):
                return lambda *_: events.append(name)
            return super().__getattribute__(name)

    source, target, _ = blobs()
    trainer(callbacks=(Order(),), steps=2, refresh_every=1).fit(source, target)
    update = ["on_gradients", "on_log", "on_step"]
    assert events == ["on_start", *update, "on_evaluation", *update, "on_evaluation", "on_end"]


# --- selection ---


def test_the_selected_weights_are_a_true_copy_of_those_at_the_lowest_entropy():
    source, target, _ = blobs()
    watch = TrainingMonitor()
    # a high rate makes entropy go up and down, so the best is not the last
    result = trainer(callbacks=(watch,), steps=12, refresh_every=2, learning_rate=0.3, alpha=0.0).fit(
        source, target
    )
    scores = [e.score for e in result.evaluations]
    assert result.best_index == int(np.argmax(scores)) < len(scores) - 1
    assert same_state(result.states["selected"], watch.states[result.best_index])
    assert not same_state(result.states["selected"], result.states["last"])
    assert same_state(result.states["last"], watch.states[-1])
    assert same_state(result.module.state_dict(), result.states["selected"])
    kept = result.evaluations[result.best_index]
    assert np.array_equal(result.predict(target).logits.argmax(1).numpy(), kept.predictions)


def test_training_on_changes_nothing_in_the_selected_weights():
    source, target, _ = blobs()
    result = trainer().fit(source, target)
    before = {k: v.clone() for k, v in result.states["selected"].items()}
    with torch.no_grad():
        for parameter in result.module.parameters():
            parameter.add_(1.0)
    assert same_state(result.states["selected"], before)
    Trainer(result.module.network, result.module.method, RUN).fit(source, target)
    assert same_state(result.states["selected"], before)


def test_use_switches_weights_and_names_the_known_ones():
    source, target, _ = blobs()
    result = trainer().fit(source, target)
    assert same_state(result.use("last").module.state_dict(), result.states["last"])
    with pytest.raises(UserError, match=r"^There are no weights called 'selectd': did you mean 'selected'"):
        result.use("selectd")


def test_predictions_are_kept_whole_at_each_evaluation():
    source, target, _ = blobs()
    result = trainer(run=Execution(n_threads=1, predict_batch=5)).fit(source, target)
    for evaluation in result.evaluations:
        assert evaluation.predictions.shape == (18,)
        assert evaluation.mean_probabilities.shape == (CLASSES,)
        assert evaluation.mean_probabilities.sum() == pytest.approx(1, abs=1e-6)
    whole = trainer(run=Execution(n_threads=1, predict_batch=1000)).fit(source, target)
    assert np.array_equal(whole.evaluations[-1].predictions, result.evaluations[-1].predictions)


# --- domains of any size ---


@pytest.mark.parametrize("name", ["source-only", "dann", "e-dann", "ba3us", "ba3us+cdan"])
@pytest.mark.parametrize(
    ("n_target", "present"),
    [(1, 1), (3, 2), (18, 1)],
    ids=["one sample", "smaller than a batch", "one class"],
)
def test_small_and_narrow_targets(name, n_target, present):
    source, target, _ = blobs(n_target=n_target, present=present)
    result = trainer(name).fit(source, target)
    assert result.history["loss"].map(math.isfinite).all()
    assert result.predict(target).logits.isfinite().all()
    assert len(result.evaluations[-1].predictions) == n_target


def test_a_network_that_begins_in_place_leaves_the_callers_arrays_alone():
    g = np.random.default_rng(0)
    x, xt = (g.standard_normal((n, WIDTH)).astype(np.float32) for n in (12, 9))
    before = x.copy(), xt.copy()
    target = Target(xt, views=xt[None])
    for name in ("ba3us", "pada"):  # pada looks at the views
        result = trainer(name, backbone=nn.ReLU(inplace=True)).fit(Source(x, np.arange(12) % CLASSES), target)
        result.predict(target)
        assert np.array_equal(x, before[0]) and np.array_equal(xt, before[1])


def test_a_class_seen_once_and_a_class_never_seen():
    x = np.random.default_rng(0).standard_normal((9, WIDTH)).astype(np.float32)
    source = Source(x, [0, 0, 0, 0, 0, 0, 0, 0, 2], num_classes=CLASSES)
    result = trainer().fit(source, blobs()[1])
    assert result.history["loss"].map(math.isfinite).all()


def test_a_source_of_one_sample_fills_its_batches():
    source = Source(np.ones((1, WIDTH), dtype=np.float32), [0], num_classes=CLASSES)
    assert trainer().fit(source, blobs()[1]).history["loss"].map(math.isfinite).all()


@pytest.mark.parametrize("classes", [1, 2])
def test_one_and_two_classes(classes):
    x = np.random.default_rng(0).standard_normal((12, WIDTH)).astype(np.float32)
    source = Source(x, np.arange(12) % classes)
    result = fit("ba3us", source, blobs()[1], options=options_for("ba3us"), config=RUN)
    assert result.history["loss"].map(math.isfinite).all()
    assert (result.history["uncertainty"] == 0).all()


def test_injected_streams_decide_the_batches():
    source, target, _ = blobs()
    seen = []

    class Fixed:
        def draw(self, source, target, borrowed):
            return BatchIndices(np.full(source, 3), np.full(target, 5), np.full(borrowed, 7))

    network, method = build()
    inner = method.outputs

    def noted(network, inputs):
        seen.append(inputs)
        return inner(network, inputs)

    method.outputs = noted
    Trainer(network, method, RUN, streams=Fixed()).fit(source, target)
    first = seen[0]
    assert torch.equal(first.source.x, source.batch(np.full(6, 3)))
    assert torch.equal(first.target.x, target.batch(np.full(6, 5)))
    assert torch.equal(first.borrowed.x, source.batch(np.full(1, 7)))
    assert first.source.rows.tolist() == [3] * 6 and first.source.labels.tolist() == [3] * 6
    assert first.target.rows.tolist() == [5] * 6 and first.target.labels is None
    assert first.borrowed.labels.tolist() == [3]


# --- what can't work is a sentence ---


def test_shapes_and_classes_must_agree():
    source, target, _ = blobs()
    wide = Target(np.zeros((3, WIDTH + 1), dtype=np.float32))
    with pytest.raises(UserError, match=r"source sample has shape \(6,\), a target sample \(7,\)"):
        trainer().fit(source, wide)
    more = Source(source.batch(slice(0, 40)), source.labels, num_classes=CLASSES + 1)
    with pytest.raises(UserError, match="source has 5 classes, the network 4"):
        trainer().fit(more, target)


@pytest.mark.parametrize("option", [{"learning_rate": 1e30}, {"learning_rate": 1e30, "warmup_steps": 3}])
def test_a_run_that_diverges_says_where_and_what_to_do(option):
    source, target, _ = blobs()
    with pytest.raises(UserError, match=r"became (nan|-?inf) at step \d+ of phase '.*': lower learning_rate"):
        trainer(**option).fit(source, target)


def test_a_phase_with_nothing_to_train_is_named():
    source, target, _ = blobs()
    network, method = build()
    recipe = dataclasses.replace(method.recipe(), phases=(Phase("idle", 3, trains=("elsewhere",)),))
    with pytest.raises(UserError, match="Phase 'idle' has nothing to train"):
        Trainer(network, method, RUN, recipe=recipe).fit(source, target)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("seed", -1), ("n_threads", 0), ("evaluate_every", 0), ("log_every", 0), ("predict_batch", -2),
        ("checkpoint_every", 0),
    ],
)  # fmt: skip
def test_bad_run_options(option, value):
    with pytest.raises(UserError, match=rf"{option} is {value}: it must be"):
        Execution(**{option: value})


def test_fit_builds_what_the_name_says_and_knows_no_other():
    source, target, _ = blobs()
    result = fit("baa", source, target, options=options_for("baa"), config=RUN)
    assert "uncertainty" not in result.history and result.history["borrowed"].iloc[0] == 1
    assert result.module.network.bottleneck.out_features == SMALL["bottleneck"]
    with pytest.raises(UserError, match="Unknown method 'bba'"):
        fit("bba", source, target)


def test_it_learns():
    source, target, labels = blobs(n_source=80, n_target=40)
    result = trainer("source-only", steps=200, batch_size=20).fit(source, target)
    assert (result.predict(source).logits.argmax(1) == source.labels).float().mean() > 0.95
    assert (result.predict(target).logits.argmax(1).numpy() == labels).mean() > 0.8


@pytest.mark.parametrize(("horizon", "seen"), [(3, 3), (100, 8)])
def test_a_phase_is_evaluated_where_it_or_its_schedules_end(horizon, seen):
    source, target, _ = blobs()
    made = trainer(refresh_every=50)
    (phase,) = made.recipe.phases
    phases = (dataclasses.replace(phase, horizon=horizon),)
    made.recipe = dataclasses.replace(made.recipe, phases=phases)
    result = made.fit(source, target)
    assert [e.step for e in result.evaluations] == [seen] and result.best_index == 0
