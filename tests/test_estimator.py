"""PartialAdapter: scikit-learn's whole suite, domains, labels, arrays of every kind, skada, pickles."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import ba3us
from arrays_toys import FAST, NAMES, clouds
from ba3us import PartialAdapter, methods
from ba3us.adapt import adapt
from ba3us.data import Target
from ba3us.data.domains import Mapped
from ba3us.errors import UserError
from ba3us.run.spec import Spec
from ba3us.training import Callback, Trainer

X, Y, XT, YT = clouds()
WITHOUT_TARGET = pytest.mark.filterwarnings("ignore:No target is given")
ON_FEATURES = [e.name for e in methods.entries() if "pixels" not in e.info.needs]


def adapter(method: str = "ba3us", **parameters) -> PartialAdapter:
    return PartialAdapter(method, **{**FAST, **parameters})


def stacked():
    """Both domains in one array, as skada wants them; target labels are nonsense."""
    domain = np.r_[np.full(len(X), 1), np.full(len(XT), -2)]
    return np.r_[X, XT], np.r_[Y, np.full(len(XT), "?")], domain


@pytest.fixture(scope="module")
def fitted():
    return adapter().fit(X, Y, XT)


def same(one: PartialAdapter, other: PartialAdapter) -> bool:
    return np.array_equal(one.predict_proba(XT), other.predict_proba(XT)) and one.history_.equals(
        other.history_
    )


# --- scikit-learn's own checks ----------------------------------------------------------------------------


@WITHOUT_TARGET
@parametrize_with_checks([PartialAdapter(steps=40, n_threads=1)])
def test_scikit_learns_suite(estimator, check):
    check(estimator)


# --- what it learns ---------------------------------------------------------------------------------------


def test_adapts_and_says_which_classes_are_present():
    model = PartialAdapter(steps=100, n_threads=1).fit(X, Y, XT)
    assert model.score(XT, YT) >= 0.95
    assert model.classes_.tolist() == NAMES.tolist()
    assert model.classes_present_.tolist() == ["ant", "bee"]
    assert model.class_proportions_.shape == (4,) and model.class_proportions_.sum() == pytest.approx(1)
    assert model.class_proportions_[:2].sum() > 0.9


def test_predictions_are_those_of_the_selected_evaluation(fitted):
    best = fitted.evaluations_[fitted.best_index_]
    assert best.candidate and best.score == max(e.score for e in fitted.evaluations_ if e.candidate)
    assert np.array_equal(fitted.predict(XT), NAMES[best.predictions])
    proba = fitted.predict_proba(XT)
    assert proba.shape == (len(XT), 4) and np.allclose(proba.sum(axis=1), 1)
    assert np.array_equal(NAMES[proba.argmax(axis=1)], fitted.predict(XT))
    assert np.allclose(fitted.class_proportions_, proba.mean(axis=0), atol=1e-6)


def test_transform_gives_what_the_classifier_sees(fitted):
    features = fitted.transform(XT)
    assert features.shape == (len(XT), 8) and features.dtype == np.float32
    with torch.no_grad():
        logits = fitted.run_.model.module.network.classifier(torch.from_numpy(features))
    assert np.allclose(logits.softmax(dim=1), fitted.predict_proba(XT), atol=1e-6)
    assert fitted.get_feature_names_out().tolist() == [f"partialadapter{i}" for i in range(8)]
    assert np.array_equal(adapter().fit_transform(X, Y, XT), fitted.transform(X))


def test_history_is_a_table(fitted):
    assert isinstance(fitted.history_, pd.DataFrame)
    updates = fitted.history_[fitted.history_["loss"].notna()]
    assert updates["step"].tolist() == [0, 10, 20]
    looks = fitted.history_[fitted.history_["target_entropy"].notna()]
    assert looks["step"].tolist() == [e.step for e in fitted.evaluations_]
    assert {"classification", "alignment", "entropy", "uncertainty", "loss"} <= set(fitted.history_)


@pytest.mark.parametrize("name", ON_FEATURES)
def test_every_method_that_takes_features(name):
    known = methods.get(name).method.Options.__dataclass_fields__
    small = {"bottleneck": 8, "discriminator_hidden": 8}
    model = PartialAdapter(
        name, steps=6, n_threads=1, method_params={k: v for k, v in small.items() if k in known}
    )
    model.fit(X, Y, XT)
    again = pickle.loads(pickle.dumps(model))
    assert set(model.predict(XT)) <= set(NAMES)
    assert np.array_equal(again.predict_proba(XT), model.predict_proba(XT))


def test_without_a_target_it_is_source_only_for_as_many_steps():
    with pytest.warns(UserWarning, match="No target is given.*source only.*pass Xt"):
        plain = adapter(warmup_steps=5).fit(X, Y)
    assert plain.run_.model.blueprint.method == "source-only"
    assert plain.history_["step"].max() == 35
    assert plain.best_index_ is None and plain.evaluations_ == []
    assert plain.classes_present_.tolist() == NAMES.tolist() and np.allclose(plain.class_proportions_, 1 / 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # who names source-only knows
        direct = adapter("source-only", steps=35, method_params={"bottleneck": 8}).fit(X, Y)
    assert np.array_equal(plain.predict_proba(XT), direct.predict_proba(XT))
    assert plain.score(X, Y) > 0.9


# --- what the engine offers -------------------------------------------------------------------------------


def test_published_settings():
    fewer = {"steps": 3, "batch_size": 6, "bottleneck": 5, "discriminator_hidden": 7}
    model = PartialAdapter("ba3us", protocol="office31", task="A->W", n_threads=1, method_params=fewer).fit(
        X, Y, XT
    )
    assert model.run_.spec.method_params["beta"] == 5.0
    assert "office31" in model.run_.about["settings"]
    with pytest.raises(UserError, match="Unknown task 'A->X'"):
        PartialAdapter("ba3us", protocol="office31", task="A->X").fit(X, Y, XT)


@pytest.mark.parametrize(
    "selection", ["last", "information-maximisation", lambda outputs: -len(outputs.logits)]
)
def test_another_rule_selects(selection):
    model = adapter(selection=selection).fit(X, Y, XT)
    candidates = [i for i, e in enumerate(model.evaluations_) if e.candidate]
    if selection == "last":
        assert model.best_index_ == candidates[-1]
    elif callable(selection):
        assert model.best_index_ == candidates[0]  # all the same
    else:
        best = max(candidates, key=lambda i: model.evaluations_[i].scores["information_maximisation"])
        assert model.best_index_ == best
    with pytest.raises(UserError, match="did you mean 'entropy'"):
        adapter(selection="entropie").fit(X, Y, XT)


class Stop(Callback):
    def __init__(self):
        self.seen = 0

    def on_step(self, trainer, step):
        self.seen += 1
        if step.number == 14:
            raise KeyboardInterrupt


def test_device_hooks_and_checkpoint(fitted, tmp_path):
    stop, state = Stop(), tmp_path / "deep" / "state"
    with pytest.raises(KeyboardInterrupt):
        adapter(callbacks=[stop], checkpoint=state, device="cpu").fit(X, Y, XT)
    assert stop.seen == 15 and state.is_file()
    counted = Stop()
    counted.on_step = lambda trainer, step: setattr(counted, "seen", counted.seen + 1)
    model = adapter(callbacks=[counted], checkpoint=state, device="cpu").fit(X, Y, XT)
    assert same(fitted, model) and counted.seen < 30 and not state.exists()
    with pytest.raises(UserError, match="Unknown accelerator 'tpu'"):
        adapter(device="tpu").fit(X, Y, XT)


def test_threads_are_used():
    class Look(Callback):
        def on_start(self, trainer):
            self.n_threads = torch.get_num_threads()

    before = torch.get_num_threads()
    for n_threads in (1, before + 1):
        look = Look()
        adapter(n_threads=n_threads, callbacks=[look]).fit(X, Y, XT)
        assert look.n_threads == n_threads and torch.get_num_threads() == before


# --- what it says of the target ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judged():
    return PartialAdapter(steps=60, n_threads=1).fit(X, Y, XT)


def test_class_presence_is_indexed_by_class(fitted, judged):
    for model in (fitted, judged):
        table = model.class_presence_
        assert table.index.name == "class" and table.index.tolist() == NAMES.tolist()
        assert list(table)[:5] == ["proportion", "low", "high", "mean_probability", "present"]
        assert set(table["present"]) <= {"present", "absent", "uncertain"}
        assert model.classes_present_.tolist() == table.index[table["present"] == "present"].tolist()
    assert judged.class_presence_.loc["ant", "present"] == "present"


@WITHOUT_TARGET
def test_without_a_target_nothing_is_known_of_the_classes():
    table = adapter().fit(X, Y).class_presence_
    assert table[["proportion", "mean_probability"]].isna().all(axis=None)
    assert set(table["present"]) == {"uncertain"}


def test_probabilities_are_calibrated_where_that_is_known(fitted, judged):
    for model in (fitted, judged):
        logits, p = model.decision_function(XT), model.predict_proba(XT)
        temperature = 1 if model.calibration_ is None else model.calibration_.temperature
        assert logits.dtype == p.dtype == np.float32
        assert np.allclose(softmax(logits / temperature, axis=1), p, atol=1e-6)
        assert np.array_equal(model.classes_[logits.argmax(axis=1)], model.predict(XT))
        assert np.array_equal(model.classes_[p.argmax(axis=1)], model.predict(XT))
    assert fitted.calibration_ is None and judged.calibration_.temperature != 1


def test_the_decision_for_two_classes_is_one_column():
    model = adapter().fit(X, Y == "ant", XT)
    decision = model.decision_function(XT)
    assert decision.shape == (len(XT),) and np.array_equal(decision > 0, model.predict(XT))


def test_predictions_may_abstain(judged, fitted):
    confidence = judged.calibration_.confidence(judged.decision_function(XT))
    strict, some, loose = (judged.predict(XT, max_error=level) for level in (0.001, 0.05, 0.5))
    assert np.array_equal(np.ma.getmaskarray(some), confidence < judged.calibration_.threshold(0.05))
    assert strict.mask.sum() >= some.mask.sum() >= loose.mask.sum() and strict.mask.sum() > loose.mask.sum()
    assert some.dtype == judged.classes_.dtype and np.array_equal(some.data, judged.predict(XT))
    assert not np.ma.isMaskedArray(judged.predict(XT))
    with pytest.raises(UserError, match="'ba3us' has no calibration: use method='auto' or assess=True"):
        fitted.predict(XT, max_error=0.05)
    with pytest.raises(UserError, match="error level is 2"):
        judged.predict(XT, max_error=2)


# --- on disk ----------------------------------------------------------------------------------------------


def alike(one: PartialAdapter, other: PartialAdapter) -> None:
    """The same predictions and attributes."""
    for name in ("predict", "predict_proba", "decision_function", "transform"):
        assert np.array_equal(getattr(one, name)(XT), getattr(other, name)(XT)), name
    for name in ("classes_", "class_proportions_", "classes_present_"):
        first, second = getattr(one, name), getattr(other, name)
        assert first.dtype == second.dtype and np.array_equal(first, second), name
    for name in ("history_", "class_presence_"):
        pd.testing.assert_frame_equal(getattr(one, name), getattr(other, name), check_dtype=False)
    assert one.calibration_ == other.calibration_ and one.best_index_ == other.best_index_
    assert (one.leaderboard_ is None) == (other.leaderboard_ is None)
    assert len(one.evaluations_) == len(other.evaluations_) and one.n_features_in_ == other.n_features_in_
    if one.verdict_ is not None:
        assert one.verdict_.to_dict() == other.verdict_.to_dict()


def test_what_is_saved_is_loaded(judged, fitted, tmp_path):
    for name, model in (("judged", judged), ("fitted", fitted)):
        model.save(tmp_path / name)
        loaded = PartialAdapter.load(tmp_path / name)
        alike(model, loaded)
        assert loaded.get_params() == model.get_params()
        loaded.save(tmp_path / name)  # in place of the other one
        alike(model, PartialAdapter.load(tmp_path / name))
    assert np.array_equal(
        judged.predict(XT, max_error=0.05).mask,
        PartialAdapter.load(tmp_path / "judged").predict(XT, max_error=0.05).mask,
    )
    assert same(clone(loaded).fit(X, Y, XT), fitted)


@WITHOUT_TARGET
@pytest.mark.parametrize("labels", [np.array([7, 3, 1, 4], np.uint8), np.array([1.5, 2, 3, 4], np.float32)])
def test_labels_and_columns_are_loaded_as_they_were(tmp_path, labels):
    frame = pd.DataFrame(X, columns=list("abcdef"))
    y = labels[np.searchsorted(NAMES, Y)].round()
    model = adapter(random_state=None, method_params={"bottleneck": np.int64(8)}).fit(frame, y)
    model.save(tmp_path / "run")
    loaded = PartialAdapter.load(tmp_path / "run")
    assert loaded.classes_.dtype == labels.dtype and loaded.feature_names_in_.tolist() == list("abcdef")
    assert loaded.best_index_ is None and loaded.evaluations_ == []
    assert np.array_equal(loaded.predict_proba(frame), model.predict_proba(frame))
    again = clone(loaded).fit(frame, y)
    assert np.array_equal(
        again.predict_proba(frame), model.predict_proba(frame)
    )  # with the seed that was drawn


def test_a_run_of_the_command_line_is_loaded(tmp_path):
    np.savez(tmp_path / "s.npz", features=X, labels=Y)
    np.savez(tmp_path / "t.npz", features=XT)
    source, target = str(tmp_path / "s.npz"), str(tmp_path / "t.npz")
    options = {"steps": 30, "bottleneck": 8, "discriminator_hidden": 8}
    run = adapt(
        Spec(source=source, target=target, method="ba3us", method_params=options, n_threads=1), tmp_path / "run"
    )
    model = PartialAdapter.load(tmp_path / "run")
    assert np.array_equal(model.decision_function(XT), run.logits(Target(XT)))
    assert model.method == "ba3us" and model.verdict_.outcome == run.verdict.outcome
    direct = clone(model).fit(X, Y, XT)
    assert np.array_equal(direct.predict_proba(XT), model.predict_proba(XT))


def test_what_cannot_be_saved_or_loaded_is_a_sentence(fitted, tmp_path):
    with pytest.raises(NotFittedError):
        adapter().save(tmp_path / "run")
    with pytest.raises(UserError, match="label b'ant' is of type bytes, which can't be saved"):
        adapter(steps=2).fit(X, Y.astype("S3"), XT).save(tmp_path / "run")
    with pytest.raises(UserError, match="`selection` that is a function can't be saved"):
        adapter(steps=2, selection=lambda outputs: 0.0).fit(X, Y, XT).save(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="There is no run in"):
        PartialAdapter.load(tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(UserError, match="holds other files"):
        fitted.save(tmp_path / "mine")
    cnn = adapt(
        Spec(**image_like(tmp_path), method="source-only", method_params={"steps": 2}, backbone="small-cnn"),
        tmp_path / "cnn",
    )
    assert cnn.verdict is None
    with pytest.raises(UserError, match="is not on feature vectors"):
        PartialAdapter.load(tmp_path / "cnn")


def image_like(folder) -> dict[str, str]:
    """Files of small grey squares."""
    squares = np.random.default_rng(0).normal(size=(12, 1, 28, 28)).astype(np.float32)
    np.savez(folder / "a.npz", features=squares, labels=np.arange(12) % 2)
    np.savez(folder / "b.npz", features=squares)
    return {"source": str(folder / "a.npz"), "target": str(folder / "b.npz")}


# --- it repeats -------------------------------------------------------------------------------------------


def test_the_random_state_decides(fitted):
    assert same(fitted, adapter().fit(X, Y, XT))
    assert not same(fitted, adapter(random_state=1).fit(X, Y, XT))
    generators = [np.random.RandomState(5) for _ in range(2)]
    first, second = (adapter(random_state=g).fit(X, Y, XT) for g in generators)
    assert same(first, second)
    assert not same(first, adapter(random_state=generators[0]).fit(X, Y, XT))
    assert not same(*(adapter(random_state=None).fit(X, Y, XT) for _ in range(2)))


def test_fitting_leaves_global_randomness_and_threads_alone():
    torch.manual_seed(3)
    before, n_threads = torch.get_rng_state(), torch.get_num_threads()
    adapter().fit(X, Y, XT)
    assert torch.equal(before, torch.get_rng_state()) and torch.get_num_threads() == n_threads


@pytest.mark.parametrize("method", ["ba3us", "shot", "mcs", "cdan+transnorm"])
def test_copies_and_pickles_predict_the_same(method):
    model = PartialAdapter(method, steps=6, n_threads=1).fit(X, Y, XT)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert np.array_equal(other.predict_proba(XT), model.predict_proba(XT))
        assert np.array_equal(other.transform(XT), model.transform(XT))
        assert other.history_.equals(model.history_)
    unfitted = clone(model)
    assert unfitted.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        unfitted.predict(XT)


# --- sample_domain ----------------------------------------------------------------------------------------


def test_the_sign_of_sample_domain_decides(fitted):
    both, labels, domain = stacked()
    assert same(fitted, adapter().fit(both, labels, sample_domain=domain))
    order = np.random.default_rng(0).permutation(len(both))
    back = np.argsort(order, kind="stable")
    mixed = adapter().fit(both[order], labels[order], sample_domain=domain[order])
    rows = np.sort(back[: len(X)])  # the order in which the source's rows now come
    assert same(
        mixed, adapter().fit(both[order][rows], labels[order][rows], XT[order[order >= len(X)] - len(X)])
    )
    several = np.r_[np.arange(len(X)) % 3 + 1, -(np.arange(len(XT)) % 2) - 4]
    assert same(fitted, adapter().fit(both, labels, sample_domain=several))


@pytest.mark.parametrize("masked", [None, np.nan, -1, "ant", ["a", "list"]])
def test_target_labels_are_never_looked_at(fitted, masked):
    both, _, domain = stacked()
    labels = [*Y.tolist(), *([masked] * len(XT))]
    assert same(fitted, adapter().fit(both, labels, sample_domain=domain))
    if not isinstance(masked, list):
        assert same(
            fitted, adapter().fit(pd.DataFrame(both), pd.Series(labels), sample_domain=pd.Series(domain))
        )


@WITHOUT_TARGET
def test_only_source_rows_means_no_target():
    model = adapter().fit(X, Y, sample_domain=np.ones(len(X)))
    assert model.best_index_ is None and model.run_.model.blueprint.method == "source-only"


# --- kinds of arrays and labels ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        np.array([-7, 3, 11, 400]),
        np.array([2.0, 0.0, -1.0, 5.0]),
        np.array(["d", "c", "b", "a"], dtype=object),
        np.array([b"w", b"x", b"y", b"z"]),
        np.array([200, 1, 7, 3], dtype=np.uint8),
    ],
    ids=lambda a: str(a.dtype),
)
def test_labels_of_any_type(labels):
    code = np.searchsorted(NAMES, Y)
    model = adapter("source-only", method_params={"bottleneck": 8}).fit(X, labels[code], XT)
    assert model.classes_.dtype == model.predict(XT).dtype == labels.dtype
    assert sorted(model.classes_.tolist()) == sorted(labels.tolist())
    assert np.mean(model.predict(X) == labels[code]) > 0.9
    assert set(model.classes_present_) <= set(labels)


def test_boolean_and_categorical_labels():
    model = adapter().fit(X, Y == "ant", XT)
    assert model.classes_.tolist() == [False, True] and model.predict(XT).dtype == bool
    for kind in ("category", "string", object):
        assert adapter().fit(X, pd.Series(Y).astype(kind), XT).classes_.tolist() == NAMES.tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ">f4"])
def test_floats_of_any_size(fitted, dtype):
    model = adapter().fit(X.astype(dtype), Y, XT.astype(dtype))
    tolerance = 0.05 if dtype == np.float16 else 1e-6
    assert np.allclose(model.predict_proba(XT.astype(dtype)), fitted.predict_proba(XT), atol=tolerance)


def test_lists_tensors_and_integers():
    for made in (X.tolist(), torch.from_numpy(X)):
        assert same(adapter().fit(made, Y.tolist(), XT), adapter().fit(X, Y, XT))
    whole = np.round(10 * X).astype(int)
    assert adapter(learning_rate=1e-4).fit(whole, Y, whole).predict(whole).shape == (len(X),)


def test_data_frames_keep_their_column_names(fitted):
    columns = list("abcdef")
    frame, target = pd.DataFrame(X, columns=columns), pd.DataFrame(XT, columns=columns)
    model = adapter().fit(frame, pd.Series(Y), target)
    assert model.feature_names_in_.tolist() == columns and model.n_features_in_ == 6
    assert np.array_equal(model.predict_proba(target), fitted.predict_proba(XT))
    shuffled = target[columns[::-1]]
    with pytest.raises(UserError, match="feature names should match"):
        model.predict(shuffled)
    with pytest.raises(UserError, match="feature names should match"):
        adapter().fit(frame, Y, shuffled)
    named = model.set_output(transform="pandas").transform(target)
    assert list(named.columns) == [f"partialadapter{i}" for i in range(8)]


@pytest.fixture
def mapped(tmp_path):
    """A function that saves an array and maps it."""

    def save(array: np.ndarray, name: str) -> np.memmap:
        np.save(tmp_path / name, array)
        return np.load(tmp_path / name, mmap_mode="r")

    return save


@pytest.fixture
def sources(monkeypatch):
    """What the domains of a fit were made of."""
    seen = []

    trained = Trainer.fit

    def watched(self, source, target):
        seen.extend([source, target])
        return trained(self, source, target)

    monkeypatch.setattr(Trainer, "fit", watched)
    return seen


def test_mapped_arrays_stay_on_disk(fitted, mapped, sources):
    x, xt = mapped(X, "x.npy"), mapped(XT, "xt.npy")
    model = adapter().fit(x, Y, xt)
    assert [type(d._x) for d in sources] == [Mapped, Mapped]
    assert same(fitted, model) and model.n_features_in_ == 6
    assert np.array_equal(model.predict_proba(xt), fitted.predict_proba(XT))


def test_mapped_blocks_of_one_array_stay_on_disk(fitted, mapped, sources):
    both, labels, domain = stacked()
    model = adapter().fit(mapped(both, "both.npy"), labels, sample_domain=domain)
    assert [type(d._x) for d in sources] == [Mapped, Mapped]
    assert same(fitted, model)


def test_predictions_do_not_depend_on_batches(fitted):
    many = np.tile(XT, (60, 1))  # more than two batches
    assert np.allclose(fitted.predict_proba(many)[-len(XT) :], fitted.predict_proba(XT), atol=1e-6)
    assert np.array_equal(fitted.predict(many)[: len(XT)], fitted.predict(XT))


# --- in company -------------------------------------------------------------------------------------------


def test_pipelines_transform_both_domains_with_sample_domain():
    both, labels, domain = stacked()
    model = make_pipeline(StandardScaler(), adapter(steps=60))
    model.fit(100 * both + 7, labels, partialadapter__sample_domain=domain)
    assert model.score(100 * XT + 7, YT) > 0.9
    assert "ant" in model[-1].classes_present_
    assert pickle.loads(pickle.dumps(model)).predict(XT).shape == (len(XT),)


def test_grid_search_scores_held_out_source_rows_and_passes_the_target():
    grid = GridSearchCV(adapter(), {"learning_rate": [1e-6, 0.01]}, cv=2).fit(X, Y, Xt=XT)
    assert grid.best_params_ == {"learning_rate": 0.01}
    assert grid.best_estimator_.best_index_ is not None  # it was adapted
    assert grid.cv_results_["mean_test_score"][1] > 0.9


def test_grid_search_with_a_scorer_that_looks_at_the_target():
    def sure_and_diverse(model, X, y):
        p = model.predict_proba(XT)
        mean = p.mean(axis=0)
        return (p * np.log(p + 1e-9)).sum(axis=1).mean() - (mean * np.log(mean + 1e-9)).sum()

    grid = GridSearchCV(adapter(), {"steps": [2, 60]}, scoring=sure_and_diverse, cv=2).fit(X, Y, Xt=XT)
    assert grid.best_params_ == {"steps": 60}


@WITHOUT_TARGET
def test_cross_validation_without_a_target():
    assert cross_val_score(adapter(), X, Y, cv=2).mean() > 0.9


@pytest.fixture
def skada():
    """skada switches metadata routing on for the whole process; here it is put back afterwards."""
    with sklearn.config_context():
        yield pytest.importorskip("skada", reason="skada is not installed")


@pytest.fixture
def routed(skada):
    with sklearn.config_context(enable_metadata_routing=True):
        yield skada


CODE = np.searchsorted(NAMES, Y)
CODE_T = np.searchsorted(NAMES, YT)


@pytest.mark.parametrize(
    "scorer", ["PredictionEntropyScorer", "SoftNeighborhoodDensity", "ImportanceWeightedScorer", "MixValScorer"]
)
def test_skadas_scorers_and_splitters(routed, scorer):
    from skada import metrics
    from skada.model_selection import SourceTargetShuffleSplit
    from sklearn.model_selection import cross_validate

    both, _, domain = stacked()
    labels = np.r_[CODE, np.full(len(XT), -1)]
    found = cross_validate(
        adapter(),
        both,
        labels,
        params={"sample_domain": domain},
        cv=SourceTargetShuffleSplit(n_splits=2, test_size=0.5, random_state=0),
        scoring=getattr(metrics, scorer)(),
        error_score="raise",
    )
    assert np.isfinite(found["test_score"]).all()


def test_skadas_supervised_scorer_scores_the_target(routed):
    from skada.metrics import SupervisedScorer

    both, _, domain = stacked()
    model = adapter(steps=60).fit(both, np.r_[CODE, np.full(len(XT), -1)], sample_domain=domain)
    truth = np.r_[CODE, CODE_T]
    found = SupervisedScorer()(model, both, truth, sample_domain=domain, target_labels=truth)
    assert found == model.score(XT, CODE_T) > 0.9


def test_skadas_pipelines(routed):
    from skada.metrics import CircularValidation, DeepEmbeddedValidation

    both, _, domain = stacked()
    masked = np.r_[CODE, np.full(len(XT), -1)]
    model = routed.make_da_pipeline(StandardScaler(), adapter(steps=60))
    assert isinstance(model, Pipeline)
    model.fit(both, np.r_[CODE, CODE_T], sample_domain=domain)  # skada masks the target's labels
    assert np.mean(model.predict(XT, sample_domain=np.full(len(XT), -2)) == CODE_T) > 0.9
    for scorer in (DeepEmbeddedValidation(), CircularValidation()):
        assert np.isfinite(scorer(model, both, masked, sample_domain=domain))


def test_importing_the_package_is_quick():
    """torch and scikit-learn are imported with the estimator, not with the package."""
    code = "import ba3us, sys; print({'torch', 'sklearn'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"
    assert "PartialAdapter" in dir(ba3us)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ba3us.nothing


@WITHOUT_TARGET
def test_a_named_method_is_judged_where_that_is_asked_for():
    small = {"steps": 20, "method_params": {"bottleneck": 8, "discriminator_hidden": 8}}
    alone = PartialAdapter("ba3us", **small).fit(X, Y, XT)
    judged = PartialAdapter("ba3us", assess=True, **small).fit(X, Y, XT)
    assert alone.verdict_ is None
    assert judged.verdict_.outcome in ("likely helped", "no evidence", "likely harmed")
    assert judged.verdict_.model_used == "adapted"
    assert np.array_equal(alone.predict(XT), judged.predict(XT))  # it stays as it is
    assert PartialAdapter("ba3us", assess=True, **small).fit(X, Y).verdict_ is None


def test_a_fit_that_fails_leaves_nothing_fitted():
    model = PartialAdapter("ba3us", steps=2, learning_rate=1e30)
    with pytest.raises(UserError, match="became"):
        model.fit(X, Y, XT)
    with pytest.raises(NotFittedError):
        model.predict(XT)
