"""The automatic choice: what it serves, says, keeps and resumes; no target label is in reach."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from arrays_toys import NAMES, clouds
from ba3us import PartialAdapter
from ba3us.adapt import adapt, predict, train
from ba3us.assess import verdict as verdicts
from ba3us.assess.verdict import ADAPTED, HARMED, HELPED, NO_EVIDENCE, SOURCE_ONLY, Agreement
from ba3us.auto import candidates, guard
from ba3us.auto import choose as autos
from ba3us.auto.candidates import Candidate, CandidateResult
from ba3us.auto.ensemble import TOP, WEIGHTED_AVERAGE, Ensemble, half_weighted_average
from ba3us.data import Target
from ba3us.errors import UserError
from ba3us.run.arrays import ArraySamples, OpenedArrays
from ba3us.run.run import Run
from ba3us.run.spec import Spec, check_auto, depth
from ba3us.scores import Neighbours

X, Y, XT, YT = clouds(120, 90)
CODES = np.searchsorted(NAMES, Y)
STEPS = {"steps": 40}


def opened(x=X, xt=XT) -> OpenedArrays:
    return OpenedArrays(ArraySamples(x.shape[1:]), x, CODES, xt, NAMES.tolist())


def auto(x=X, xt=XT, **options):
    return train(Spec(method="auto", method_params=STEPS | options), opened(x, xt))[0]


def chosen(probabilities, near, method):
    """A choice among source-only and members given as probabilities."""
    first, *others = probabilities
    choice = Ensemble(near, first)
    for number, p in enumerate(others):
        choice.add(CandidateResult(Candidate(f"m{number}", method), p))
    return choice


def test_an_easy_target_is_helped_and_served():
    run = auto()
    assert (run.verdict.outcome, run.verdict.model_used) in [(HELPED, ADAPTED), (NO_EVIDENCE, SOURCE_ONLY)]
    assert np.mean(NAMES[run.best.predictions] == YT) >= np.mean(NAMES[run.evaluations[0].predictions] == YT)
    assert set(run.leaderboard["candidate"]) == {"SAFN", SOURCE_ONLY, "weighted average"}
    assert run.classes_where("present") == ["ant", "bee"]


def test_a_member_that_collapsed_has_no_vote_and_a_collapse_is_never_called_help():
    spread = 0.01 * torch.randn(80, 4, generator=torch.Generator().manual_seed(0))
    near = Neighbours.among(torch.eye(4).repeat(20, 1) + spread, torch.zeros(4))
    soft = np.full((80, 4), 0.2)
    soft[np.arange(80), np.arange(80) % 4] = 0.4
    astray = np.tile([1 - 3e-6, 1e-6, 1e-6, 1e-6], (80, 1))
    choice = chosen([soft, astray], near, "safn")
    assert (
        choice.best.name == SOURCE_ONLY
        and choice.leaderboard()["rejected_because"].str.contains("fall onto 1.0").sum() == 1
    )
    collapsed = Agreement.of(astray.argmax(axis=1), near)
    assert not verdicts.has_evidence(collapsed, choice.source_only)
    assert verdicts.has_evidence(choice.source_only, choice.source_only)


def test_a_script_without_a_guard_can_try_members_side_by_side(tmp_path):
    """Workers are started anew, and must not run the script again."""
    script = tmp_path / "script.py"
    script.write_text(
        "print('once')\n"
        "import numpy as np\n"
        "from ba3us import PartialAdapter\n"
        "from ba3us.auto import candidates\n"
        "candidates.cpu_count = lambda: 2\n"
        "X = np.random.default_rng(0).standard_normal((60, 4)) + 4 * np.eye(4)[np.arange(60) % 4]\n"
        "model = PartialAdapter(preset='best', steps=3).fit(X, np.arange(60) % 4, X[:30] + 0.1)\n"
        "print(len(model.predict(X)))\n"
    )
    for call in ([str(script)], ["-"]):
        text = script.read_text() if call == ["-"] else None
        done = subprocess.run([sys.executable, *call], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.split()) == (0, ["once", "60"]), done.stderr


def test_a_worker_that_dies_is_no_loss(monkeypatch):
    died = Future()
    died.set_exception(BrokenProcessPool())
    pool = SimpleNamespace(submit=lambda *_: died)
    monkeypatch.setattr(candidates, "_process_pool", lambda *_: nullcontext(pool))
    (here,) = candidates.train_candidates(candidates.FAST, Spec(method_params=STEPS), opened(), None, math.inf)
    assert here.probabilities.shape == (90, 4)


def test_the_scale_of_what_is_taught_is_the_sources():
    run = auto(x=1000 * X, xt=1000 * XT, force=True)
    scale = run.model.module.network.backbone
    assert torch.allclose(scale.mean, torch.from_numpy(1000 * X.mean(axis=0)), rtol=1e-4)


def test_a_summary_is_json_also_if_a_member_failed():
    run = auto()
    run.leaderboard.loc[0, "kappa"] = np.nan
    assert "NaN" not in json.dumps(run.summary()["leaderboard"])


def test_without_evidence_source_only_is_served_unless_forced():
    noise = np.random.default_rng(0).standard_normal(XT.shape).astype(np.float32)  # no neighbourhoods
    small = X / 4  # features of about unit size are not standardised
    run, forced = auto(small, noise), auto(small, noise, force=True)
    assert (run.verdict.outcome, run.verdict.model_used) == (NO_EVIDENCE, SOURCE_ONLY)
    assert np.array_equal(run.best.predictions, run.evaluations[0].predictions)
    assert run.model.blueprint.method == SOURCE_ONLY
    assert (forced.verdict.outcome, forced.verdict.model_used) == (NO_EVIDENCE, ADAPTED)
    assert forced.model.blueprint.method == "auto"


def test_a_run_is_calibrated_by_a_twin_that_did_not_see_the_rows_put_aside(monkeypatch):
    asked = []
    real = autos.train_one

    def seen(spec, opened, *, domains=None, **how):
        asked.append((spec.method, len(domains.source)))
        return real(spec, opened, domains=domains, **how)

    monkeypatch.setattr(autos, "train_one", seen)
    monkeypatch.setattr(guard, "train_one", seen)
    run = auto()
    assert asked == [
        (SOURCE_ONLY, 120),
        ("auto", 120 + 90),
        (SOURCE_ONLY, 120 - 24),
    ]  # of thirty rows of a class six
    sure = run.calibration
    assert sure.temperature >= sure.held_out > 0 and run.verdict.model_used == SOURCE_ONLY
    assert sure.kappa == round(run.verdict.figures["kappa_source_only"], 4)  # of what is served
    assert sure.confidence(run.logits(Target(XT))).mean() <= sure.kappa**0.5 + 1e-3
    model = PartialAdapter(steps=40).fit(X, Y, XT)
    logits = model.decision_function(XT)
    confidence = model.calibration_.confidence(logits)
    np.testing.assert_allclose(model.predict_proba(XT).max(axis=1), confidence, atol=1e-6)
    with pytest.raises(UserError, match="has no calibration: use method='auto'"):
        PartialAdapter("source-only", steps=2).fit(X, Y, XT).predict(XT, max_error=0.05)


def test_a_source_with_one_row_a_class_has_none_to_put_aside():
    x = OpenedArrays(ArraySamples(X.shape[1:]), X[:4], CODES[:4], XT, NAMES.tolist())
    run = train(Spec(method="auto", method_params={"steps": 2, "batch_size": 4}), x)[0]
    assert run.calibration.held_out == 1 and "too few samples to hold some out" in run.calibration.cautions[-1]


def test_best_tries_more_and_sharpens_only_near_targets(monkeypatch):
    names = []

    def trained(members, *_):
        names.append([candidate.name for candidate in members])
        return iter(())

    monkeypatch.setattr(autos, "train_candidates", trained)
    auto(preset="best")
    monkeypatch.setattr(autos, "NEAR", 1.1)
    auto(preset="best")
    assert names == [
        [m.name for m in candidates.ROBUST + candidates.SHARPENING],
        [m.name for m in candidates.ROBUST],
    ]


def four_clusters():
    """Neighbourhoods of four even classes, their labels, and a poor guess at them."""
    rows = np.repeat(np.eye(4), 10, axis=0) * 5 + 0.1 * np.random.default_rng(0).standard_normal((40, 4))
    near = Neighbours.among(torch.tensor(rows), torch.zeros(4), count=5)
    truth = np.repeat(np.arange(4), 10)
    return near, truth, np.where(np.arange(40) % 3 == 0, (truth + 1) % 4, truth)


def test_the_best_three_take_the_place_of_the_vote_where_their_kappa_is_larger():
    near, truth, poor = four_clusters()
    better = np.where(np.arange(40) % 9 == 0, (truth + 1) % 4, truth)
    collapsed = np.repeat([0, 0, 0, 1], 10)  # κ is 1, but half of the classes are gone
    p = [np.eye(4)[labels] for labels in (poor, better, truth, truth, poor, collapsed)]
    choice = chosen(p, near, "ba3us")
    assert choice.best.name == TOP
    assert np.array_equal(
        choice.best.probabilities, np.mean(p[1:4], axis=0)
    )  # neither the worst nor the collapsed
    board = choice.leaderboard().set_index("candidate")
    assert board.loc[TOP, "chosen"] == "yes"
    assert "fall onto" in board.loc["m4", "rejected_because"]
    assert chosen(p[:3], near, "ba3us").best.name == SOURCE_ONLY  # two are no three
    assert chosen([p[2], p[0], p[0], p[0]], near, "ba3us").best.name == SOURCE_ONLY  # worse than source-only
    assert np.array_equal(chosen([p[1]], near, "ba3us").labels(), truth)


def test_source_only_has_half_of_the_votes():
    sure, astray, unsure = [0.9, 0.1], [0.2, 0.8], [0.55, 0.45]
    # by hand: √(0.9·0.2) : √(0.1·0.8) = 3 : 2; two members count as much as one
    assert half_weighted_average([np.array([sure]), np.array([astray])])[0] == pytest.approx(
        [0.6, 0.4], abs=1e-4
    )
    assert half_weighted_average([np.array([sure])] + 2 * [np.array([astray])])[0] == pytest.approx(
        [0.6, 0.4], abs=1e-4
    )
    assert (
        half_weighted_average([np.array([unsure]), np.array([astray])])[0].argmax() == 1
    )  # it was not sure itself
    assert half_weighted_average([np.array([sure])])[0] == pytest.approx(sure, abs=1e-4)
    assert np.isfinite(half_weighted_average([np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])])).all()


def test_robust_members_vote_and_the_board_says_so():
    near, truth, poor = four_clusters()
    p = [0.7 * np.eye(4)[labels] + 0.075 for labels in (poor, truth)]
    choice = chosen(p, near, "safn")
    assert choice.best.name == WEIGHTED_AVERAGE
    board = choice.leaderboard().set_index("candidate")
    assert board.loc[WEIGHTED_AVERAGE, "chosen"] == "yes" and (board["chosen"] == "yes").sum() == 1
    assert set(board.index) == {SOURCE_ONLY, "m0", WEIGHTED_AVERAGE}


def test_a_member_that_fails_is_a_row_with_its_reason():
    near = Neighbours.among(torch.randn(20, 3), torch.zeros(3))
    choice = Ensemble(near, np.eye(3)[np.arange(20) % 3])
    choice.add(CandidateResult(Candidate("broken", "safn"), None, "The loss became nan."))
    assert (
        choice.leaderboard().set_index("candidate").loc["broken", "rejected_because"] == "The loss became nan."
    )
    assert choice.best.name == SOURCE_ONLY


def test_members_side_by_side_equal_those_one_by_one(monkeypatch):
    members = (Candidate("a", "safn"), Candidate("b", "hafn"), Candidate("c", "source-only"))
    spec = Spec(method="auto", method_params=STEPS)
    together = list(candidates.train_candidates(members, spec, opened(), None, float("inf")))
    monkeypatch.setattr(candidates, "cpu_count", lambda: 1)
    apart = list(candidates.train_candidates(members, spec, opened(), None, float("inf")))
    assert [b.candidate.name for b in together] == ["a", "b", "c"]
    for one, other in zip(together, apart):
        assert np.array_equal(one.probabilities, other.probabilities)


def test_after_the_time_limit_no_member_is_begun(monkeypatch):
    assert (
        list(candidates.train_candidates(candidates.FAST, Spec(method_params=STEPS), opened(), None, -1.0))
        == []
    )
    run = auto(time_limit=1e-9)
    assert run.leaderboard["candidate"].tolist() == [SOURCE_ONLY]


def test_a_large_target_is_sampled(monkeypatch):
    monkeypatch.setattr("ba3us.training.evaluation.MAX_ROWS", 30)
    run = auto()
    assert len(run.best.predictions) == len(XT)
    assert np.mean(NAMES[run.best.predictions] == YT) > 0.7


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_hardly_any_target(rows):
    run = auto(xt=XT[:rows])
    assert run.verdict.model_used == SOURCE_ONLY or len(run.best.predictions) == rows


def test_same_seed_same_bits_other_seed_others():
    one, same, other = auto(), auto(), train(Spec(method_params=STEPS, seed=1), opened())[0]
    assert all(np.array_equal(a, b) for a, b in zip(one.model.state().values(), same.model.state().values()))
    assert not np.array_equal(one.best.mean_probabilities, other.best.mean_probabilities)


# --- run directories ----------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path):
    np.savez(tmp_path / "s.npz", features=X, labels=CODES, class_names=NAMES)
    np.savez(tmp_path / "t.npz", features=XT)
    return tmp_path


def spec(data, **fields) -> Spec:
    return Spec(source=str(data / "s.npz"), target=str(data / "t.npz"), **{"method_params": STEPS} | fields)


def test_run_directory_says_it_all_and_loads(data):
    run = adapt(spec(data), data / "run")
    found = Run.load(data / "run")
    assert found.verdict == dataclasses.replace(run.verdict, figures=run.verdict.to_dict()["figures"])
    assert found.leaderboard["candidate"].tolist() == run.leaderboard["candidate"].tolist()
    assert found.presence["present"].tolist() == run.presence["present"].tolist()
    predict(data / "run", data / "t.npz", data / "out.csv")
    assert (data / "out.csv").read_text() == (data / "run" / "predictions.csv").read_text()


def test_members_that_have_ended_are_not_trained_again(data, monkeypatch):
    whole = adapt(spec(data, method_params=STEPS | {"preset": "best"}), data / "whole")
    trained, real = [], candidates.train_one

    def stopping(asked, *args, **kwargs):
        trained.append(asked.method)
        if len(trained) == 3:
            raise KeyboardInterrupt
        return real(asked, *args, **kwargs)

    monkeypatch.setattr(candidates, "cpu_count", lambda: 1)
    monkeypatch.setattr(candidates, "train_one", stopping)
    with pytest.raises(KeyboardInterrupt):
        adapt(spec(data, method_params=STEPS | {"preset": "best"}), data / "run")
    assert [path.name for path in (data / "run").iterdir()] == ["checkpoints"]
    with pytest.raises(UserError, match="add `resume`"):
        adapt(spec(data), data / "run")
    trained.clear()
    monkeypatch.setattr(
        candidates, "train_one", lambda asked, *a: trained.append(asked.method) or real(asked, *a)
    )
    adapt(spec(data, method_params=STEPS | {"preset": "best"}), data / "run", resume=True)
    assert len(trained) == len(whole.leaderboard) - len((SOURCE_ONLY, WEIGHTED_AVERAGE, TOP)) - 2
    for name in ("model.safetensors", "predictions.csv", "presence.csv"):
        assert (data / "run" / name).read_bytes() == (data / "whole" / name).read_bytes()


def test_a_damaged_member_is_trained_again(data, tmp_path):
    candidate, asked = candidates.FAST[0], Spec(method_params=STEPS)
    (first,) = candidates.train_candidates([candidate], asked, opened(), tmp_path / "kept", float("inf"))
    (file,) = (tmp_path / "kept").iterdir()
    file.write_bytes(file.read_bytes()[:100])
    (again,) = candidates.train_candidates([candidate], asked, opened(), tmp_path / "kept", float("inf"))
    assert np.array_equal(first.probabilities, again.probabilities)


def test_a_named_system_has_a_verdict_beside_it_and_stays_as_it_is(data):
    small = {"steps": 30, "bottleneck": 8, "discriminator_hidden": 8}
    asked = spec(data, method="ba3us", method_params=small)
    run = adapt(asked, data / "run")
    assert run.verdict.outcome in (HELPED, NO_EVIDENCE, HARMED)
    assert run.verdict.model_used == ADAPTED
    alone = train(asked, opened())[0]
    assert np.array_equal(run.best.predictions, alone.best.predictions)
    assert alone.verdict is None


def test_auto_wants_the_head(data):
    with pytest.raises(UserError, match="adapts the head"):
        check_auto(Spec(train="all"))
    assert depth(Spec()) == "head"


# --- scaling by the source ------------------------------------------------------------------------------------


def test_arrays_of_any_scale_work_at_once_and_predict_alike():
    unit = PartialAdapter(steps=40, standardize=True).fit(X, Y, XT)
    units = np.geomspace(1e-3, 1e5, X.shape[1]).astype(np.float32)
    large = PartialAdapter(steps=40).fit(X * units + 1e4, Y, XT * units + 1e4)
    assert large.run_.spec.standardize is True
    assert np.mean(large.predict(XT * units + 1e4) == unit.predict(XT)) > 0.95
    assert PartialAdapter(steps=40).fit(X / 4, Y, XT / 4).run_.spec.standardize is False  # of about unit size


def test_published_settings_are_not_scaled():
    spec = Spec(method="ba3us", protocol="office31", method_params={"steps": 5, "bottleneck": 8})
    assert train(spec, opened(X * 1e-4, XT * 1e-4))[0].spec.standardize is False


# --- bad input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"method_params": {"preset": "slow"}}, "Option 'preset' is 'slow': it must be 'fast' or 'best'"),
        (
            {"method_params": {"beta": 1}},
            "Unknown option 'beta': choose one of: batch_size, force, preset, steps, time_limit",
        ),
        ({"method_params": {"time_limit": 0}}, "Option 'time_limit' is 0: it must be above 0"),
        ({"selection": "last"}, "`selection` 'last' is for named methods: leave it out"),
        ({"evaluate_every": 5}, "`evaluate_every` 5 is for named methods: leave it out"),
        ({"protocol": "office31"}, "office31"),
    ],
)
def test_what_auto_does_not_take(fields, sentence):
    with pytest.raises(UserError, match=sentence):
        train(Spec(**fields), opened())


def test_samples_of_another_width():
    with pytest.raises(UserError, match=r"A source sample has shape \(6,\), a target sample \(5,\)"):
        auto(xt=XT[:, :5])
