"""Selection by a rule of choice: names, functions, ties, and what stands in the history."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from ba3us import scores
from ba3us.errors import UserError
from ba3us.methods.base import DomainOutputs, Phase
from ba3us.training import Execution, Trainer
from ba3us.training.evaluation import RULES, SelectionRule, find_rule
from toys import blobs, build, same_state, trainer

SWING = {"steps": 12, "refresh_every": 2, "learning_rate": 0.3, "alpha": 0.0}  # entropy goes up and down


def outputs(*logits):
    rows = torch.tensor(logits)
    return DomainOutputs(rows, rows, torch.arange(len(rows)))


def run(rule="entropy", **options):
    source, target, _ = blobs()
    return trainer(rule=rule, **SWING | options).fit(source, target)


@pytest.mark.parametrize("name", RULES)
def test_the_largest_score_is_selected(name):
    result = run(name)
    found = [e.score for e in result.evaluations]
    assert result.rule == name
    assert result.best_index == (len(found) - 1 if name == "last" else int(np.argmax(found)))
    kept = result.evaluations[result.best_index]
    source, target, _ = blobs()
    predicted = result.predict(target)
    assert np.array_equal(predicted.logits.argmax(1).numpy(), kept.predictions)
    rule = RULES[name].prepared(source, target)
    assert rule(predicted) == pytest.approx(kept.score, rel=1e-6)


def test_the_paper_s_rule_is_the_default_and_takes_the_lowest_mean_entropy():
    source, target, _ = blobs()
    network, method = build(**SWING)
    result = Trainer(network, method, Execution(n_threads=1)).fit(source, target)
    entropies = [e.scores["entropy"] for e in result.evaluations]
    assert result.rule == "entropy" and result.best_index == int(np.argmin(entropies)) < len(entropies) - 1
    assert [e.score for e in result.evaluations] == [-h for h in entropies]


def test_scores_of_the_rules_by_hand():
    both, one = outputs([40.0, 0.0], [0.0, 40.0]), outputs([40.0, 0.0], [40.0, 0.0])
    said = {name: (rule(both), rule(one)) for name, rule in RULES.items() if rule.prepare is None}
    assert said["entropy"] == pytest.approx((0, 0), abs=1e-4)
    assert said["information-maximisation"] == pytest.approx((math.log(2), 0), abs=1e-6)
    assert said["diversity"] == pytest.approx((math.log(2), 0), abs=1e-6)
    assert said["nuclear-norm"] == pytest.approx((1, 2**-0.5), abs=1e-6)
    assert said["density"] == pytest.approx((0, 0), abs=1e-6)  # one neighbour each


@pytest.mark.parametrize(("latest", "expected"), [(False, 0), (True, -1)])
def test_of_equal_scores_the_first_counts_unless_the_rule_says_the_latest(latest, expected):
    flat = dataclasses.replace(find_rule(lambda target: 1.0), latest=latest)
    result = run(flat)
    assert result.best_index == expected % len(result.evaluations)


def test_last_keeps_the_last_weights():
    result = run("last")
    assert same_state(result.states["selected"], result.states["last"])


def test_a_function_of_the_target_s_outputs_selects():
    seen = []

    def middle(target):
        assert target.labels is None and target.features.shape[0] == target.logits.shape[0] == 18
        seen.append(len(seen))
        return torch.tensor(-abs(len(seen) - 3))

    result = run(middle)
    assert result.best_index == 2 and result.rule == "middle" and seen == [0, 1, 2, 3, 4, 5]


def test_features_are_kept_only_where_somebody_looks_at_them():
    seen = []

    def width(outputs):
        seen.append(outputs.features.shape[1])
        return 0.0

    run(width)
    assert set(seen) != {0}
    seen.clear()
    run(SelectionRule("width", width, reads="logits"))
    assert set(seen) == {0}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_function_that_gives_no_finite_number_is_a_sentence(bad):
    def mine(target):
        return bad

    with pytest.raises(
        UserError, match=rf"^The selection rule 'mine' gave {bad}: it must give a finite number"
    ):
        run(mine)


@pytest.mark.parametrize("bad", [None, "high", torch.ones(2)])
def test_a_function_that_gives_no_number_is_a_sentence(bad):
    with pytest.raises(UserError, match=r"gave (NoneType|str|Tensor): it must give a number"):
        run(lambda target: bad)


def test_unknown_rules_are_named():
    with pytest.raises(UserError, match=r"^Unknown selection 'entropie': did you mean 'entropy'\?"):
        trainer(rule="entropie")
    with pytest.raises(UserError, match=r"^The selection is 3: give a name, such as 'entropy', or a function"):
        trainer(rule=3)


def test_a_checkpoint_of_another_rule_is_a_sentence(tmp_path):
    source, target, _ = blobs()
    config = Execution(n_threads=1, checkpoint=tmp_path / "c.pt")
    trainer(run=config, rule="density").fit(source, target)
    with pytest.raises(UserError, match=r"is of another run \(other data, .*rule.*\): give the same"):
        trainer(run=config).resume(tmp_path / "c.pt")
    trainer(run=config, rule="density").resume(tmp_path / "c.pt")


# --- there is always a selected evaluation ---


@pytest.mark.parametrize(
    "phases",
    [
        (Phase("warmup", 3, adapts=False, target=False),),
        (Phase("adapt", 3, horizon=100),),
        (Phase("adapt", 0),),
        (Phase("adapt", 4), Phase("after", 0, horizon=7)),
    ],
    ids=["nothing adapts", "cut short", "no update", "an empty phase after"],
)
def test_every_run_ends_with_an_evaluation_and_selects_one(phases):
    source, target, _ = blobs()
    network, method = build(refresh_every=50)
    recipe = dataclasses.replace(method.recipe(), phases=phases)
    result = Trainer(network, method, Execution(n_threads=1), recipe=recipe).fit(source, target)
    assert 0 <= result.best_index < len(result.evaluations)
    end = result.evaluations[-1]
    assert (end.phase, end.step) == (phases[-1].name, phases[-1].steps)
    kept = result.evaluations[result.best_index].predictions
    assert np.array_equal(result.predict(target).logits.argmax(1).numpy(), kept)
    assert result.full_history()["selected"].eq(True).sum() == 1


def test_a_recipe_without_phases_is_a_sentence():
    source, target, _ = blobs()
    network, method = build()
    recipe = dataclasses.replace(method.recipe(), phases=())
    with pytest.raises(UserError, match="The recipe has no phases"):
        Trainer(network, method, Execution(n_threads=1), recipe=recipe).fit(source, target)


# --- what stands in the history ---


def test_every_evaluation_stands_in_the_full_history():
    source, target, _ = blobs()
    config = Execution(n_threads=1, log_every=3)
    result = trainer(run=config, warmup_steps=4, **SWING).fit(source, target)
    table = result.full_history()
    assert list(zip(table["phase"], table["step"])) == [
        *[("warmup", i) for i in (0, 3, 4)],
        *[("adapt", i) for i in (0, 2, 3, 4, 6, 8, 9, 10, 12)],
    ]
    looks = table[table["target_entropy"].notna()].reset_index()
    assert looks["step"].tolist() == [e.step for e in result.evaluations]
    for name in ("entropy", "information_maximisation", "effective_classes", "nuclear_norm"):
        assert looks[f"target_{name}"].tolist() == [e.scores[name] for e in result.evaluations]
    assert looks["score"].tolist() == [e.score for e in result.evaluations]
    assert looks.index[looks["selected"] == True].tolist() == [result.best_index]  # noqa: E712
    updates = table[table["loss"].notna()]
    assert updates["loss"].tolist() == result.history["loss"].tolist()
    both = table[table["loss"].notna() & table["score"].notna()]  # after 6 updates, say
    assert both["step"].tolist() == [6]


def test_the_scores_are_those_of_the_outputs():
    result = run("last")
    shown, logits = result.evaluations[-1].scores, result.predict(blobs()[1]).logits
    assert shown == pytest.approx(
        {
            "entropy": scores.mean_entropy(logits),
            "information_maximisation": scores.information_maximisation(logits),
            "effective_classes": math.exp(scores.diversity(logits)),
            "nuclear_norm": scores.nuclear_norm(logits),
        },
        rel=1e-5,
    )
