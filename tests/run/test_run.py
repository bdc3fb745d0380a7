"""Run directories: what adapt writes, what predict reads, and nothing half-written."""

from __future__ import annotations

import csv
import itertools
import json

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from arrays_toys import FAST, NAMES, clouds
from ba3us import PartialAdapter, methods
from ba3us.adapt import adapt, predict, train
from ba3us.errors import UserError
from ba3us.run.arrays import ArraySamples, OpenedArrays
from ba3us.run.build import Model
from ba3us.run.run import Run
from ba3us.run.spec import Spec
from ba3us.training import Callback

X, Y, XT, YT = clouds()
SMALL = {"steps": FAST["steps"], **FAST["method_params"]}
FILES = [
    "evaluations.npz", "history.csv", "model.safetensors", "predictions.csv", "presence.csv",
    "results.json", "spec.yaml",
]  # fmt: skip


def run(source, target, out, *, overwrite=False, resume=False, callbacks=(), **fields):
    """Adapt from feature files with small settings."""
    named = {"method": "ba3us", "method_params": SMALL, "n_threads": 1}
    spec = Spec(**{"source": str(source), "target": str(target), **named, **fields})
    return adapt(spec, out, overwrite=overwrite, resume=resume, callbacks=callbacks)


@pytest.fixture
def data(tmp_path):
    """A source with names and paths, a target with paths and (unused) labels, and bare arrays."""
    code = np.searchsorted(NAMES, Y)
    np.savez(tmp_path / "s.npz", features=X, labels=code, class_names=NAMES, paths=[f"s{i}" for i in code])
    np.savez(tmp_path / "t.npz", features=XT, labels=np.zeros(len(XT), int), paths=[f"t, {i}" for i in YT])
    for name, array in {"s": X, "t": XT, "names": Y, "codes": code, "bytes": Y.astype("S")}.items():
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def raising(error):
    def broken(*args, **kwargs):
        raise error

    return broken


def same_files(one, other) -> bool:
    names = [name for name in FILES if name not in ("spec.yaml", "results.json")]  # paths, times
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


def table(path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_run_holds_what_it_should(data):
    done = run(data / "s.npz", data / "t.npz", data / "runs" / "new", seed=3)
    folder, summary = data / "runs" / "new", done.summary()
    assert sorted(p.name for p in folder.iterdir()) == FILES
    assert [p.name for p in folder.parent.iterdir()] == ["new"]
    model = PartialAdapter("ba3us", random_state=3, **FAST).fit(X, Y, XT)

    config = yaml.safe_load((folder / "spec.yaml").read_text())
    assert config.get("method", "ba3us") == "ba3us" and config["seed"] == 3 and config["n_threads"] == 1
    assert config["source"] == str(data / "s.npz")
    assert config["method_params"] == vars(methods.get("ba3us").options(**SMALL))
    results = json.loads((folder / "results.json").read_text())
    assert results["selected"]["step"] == model.evaluations_[model.best_index_].step

    lines = table(folder / "predictions.csv")
    assert [line["path"] for line in lines] == [f"t, {i}" for i in YT]
    assert [line["class"] for line in lines] == model.predict(XT).tolist()
    found = [float(line["probability"]) for line in lines]
    assert np.allclose(found, model.predict_proba(XT).max(axis=1), atol=1e-6)

    presence = pd.read_csv(folder / "presence.csv")
    assert presence["class"].tolist() == NAMES.tolist()
    shares = [np.mean(model.predict(XT) == name) for name in NAMES]
    assert np.allclose(presence["proportion"], shares, atol=1e-6)
    assert np.allclose(presence["mean_probability"], model.class_proportions_, atol=1e-6)
    assert presence["class"][presence["present"] == "present"].tolist() == model.classes_present_.tolist()
    assert set(pd.read_csv(folder / "history.csv")["step"]) >= {0, 10, 20}

    assert json.loads(json.dumps(summary))["classes_present"] == model.classes_present_.tolist()
    assert summary["source_samples"] == 80 and summary["target_samples"] == 40
    assert [row["class"] for row in summary["classes"]] == NAMES.tolist()


@pytest.mark.parametrize("target", ["t.npz", "t.npy"])
def test_predicting_again_gives_the_same(data, target):
    run(data / "s.npz", data / "t.npz", data / "run")
    summary = predict(data / "run", data / target, data / "deep" / "out.csv")
    first, second = table(data / "run" / "predictions.csv"), table(data / "deep" / "out.csv")
    for key in ("class", "probability"):
        assert [line[key] for line in first] == [line[key] for line in second]
    if target == "t.npy":
        assert [line["row"] for line in second] == [str(i) for i in range(40)]
    counts = {row["class"]: row["rows"] for row in summary["predicted"]}
    assert counts == pd.Series([line["class"] for line in second]).value_counts().to_dict()


@pytest.mark.parametrize(("labels", "kind"), [("names", str), ("codes", int), ("bytes", str)])
def test_bare_arrays_with_labels(data, labels, kind):
    summary = run(data / "s.npy", data / "t.npy", data / "run", labels=str(data / f"{labels}.npy")).summary()
    assert [type(row["class"]) for row in summary["classes"]] == [kind] * 4
    predicted = predict(data / "run", data / "t.npy", data / "out.csv")["predicted"]
    assert {type(row["class"]) for row in predicted} == {kind}


def test_the_targets_labels_change_nothing(data):
    np.savez(data / "u.npz", features=XT)
    for target in ("t", "u"):
        run(data / "s.npz", data / f"{target}.npz", data / target)
    one, other = ((data / name / "model.safetensors").read_bytes() for name in "tu")
    assert one == other


def test_a_run_is_replaced_only_when_told_to(data):
    run(data / "s.npz", data / "t.npz", data / "run")
    before = (data / "run" / "model.safetensors").read_bytes()
    with pytest.raises(
        UserError, match=r"There is a run in .* already: choose another .out., or add .overwrite"
    ):
        run(data / "s.npz", data / "t.npz", data / "run", seed=1)
    assert (data / "run" / "model.safetensors").read_bytes() == before
    run(data / "s.npz", data / "t.npz", data / "run", seed=1, overwrite=True)
    assert (data / "run" / "model.safetensors").read_bytes() != before
    assert sorted(p.name for p in (data / "run").iterdir()) == FILES


@pytest.mark.parametrize("error", [KeyboardInterrupt, UserError("The loss became nan: …")])
def test_a_training_that_breaks_at_once_leaves_nothing(data, monkeypatch, error):
    before = sorted(data.iterdir())
    monkeypatch.setattr("ba3us.run.train.Trainer.fit", raising(error))
    with pytest.raises((KeyboardInterrupt, UserError)):
        run(data / "s.npz", data / "t.npz", data / "run")
    assert sorted(data.iterdir()) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_run_that_could_not_be_written_goes_on_from_its_state(data, monkeypatch, error):
    run(data / "s.npz", data / "t.npz", data / "whole")
    with monkeypatch.context() as broken:
        broken.setattr("ba3us.run.build.Model.save", raising(error))
        with pytest.raises((KeyboardInterrupt, UserError)):
            run(data / "s.npz", data / "t.npz", data / "run")
    assert [p.name for p in (data / "run").iterdir()] == ["checkpoints"]
    with pytest.raises(UserError, match=r"interrupted run in .*: add .resume. to go on, or .overwrite"):
        run(data / "s.npz", data / "t.npz", data / "run")
    done = run(data / "s.npz", data / "t.npz", data / "run", resume=True)
    assert done.about["resumed"] and sorted(p.name for p in (data / "run").iterdir()) == FILES
    assert same_files(data / "run", data / "whole")


class Stop(Callback):
    """Breaks off after an update."""

    def __init__(self, after: int, error: BaseException) -> None:
        self.left, self.error = after, error

    def on_step(self, trainer, step):
        self.left -= 1
        if self.left == 0:
            raise self.error


@pytest.mark.parametrize("method", ["ba3us", "shot", "etn"])
def test_interrupted_and_resumed(data, method):
    files, options = (data / "s.npz", data / "t.npz"), {"steps": 30, "bottleneck": 8}
    run(*files, data / "whole", method=method, method_params=options)
    with pytest.raises(KeyboardInterrupt):
        run(
            *files,
            data / "run",
            method=method,
            method_params=options,
            callbacks=[Stop(20, KeyboardInterrupt())],
        )
    assert [p.name for p in (data / "run").iterdir()] == ["checkpoints"]
    done = run(*files, data / "run", method=method, method_params=options, resume=True)
    assert done.about["resumed"] and same_files(data / "run", data / "whole")


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"method_params": SMALL | {"beta": 2.0}},
        {"selection": "last"},
        {"evaluate_every": 4},
        {"source": "other.npz"},
        {"target": "other.npz"},
        {"source": "relabelled.npz"},
        {"n_threads": 2},
    ],
)
def test_only_the_very_same_run_is_resumed(data, other):
    np.savez(data / "other.npz", features=X + 1e-6, labels=np.searchsorted(NAMES, Y), class_names=NAMES)
    np.savez(
        data / "relabelled.npz", features=X, labels=np.roll(np.searchsorted(NAMES, Y), 1), class_names=NAMES
    )
    fields = {"source": data / "s.npz", "target": data / "t.npz", "out": data / "run"}
    with pytest.raises(KeyboardInterrupt):
        run(**fields, callbacks=[Stop(14, KeyboardInterrupt())])
    changed = {k: data / v if k in ("source", "target") else v for k, v in other.items()}
    with pytest.raises(UserError, match=r"of another run .*: .*.overwrite"):
        run(**fields | changed, resume=True)
    assert [p.name for p in (data / "run").iterdir()] == ["checkpoints"]  # still there for the right one
    run(**fields, resume=True)


def test_other_threads_of_torch_are_another_run(data, monkeypatch):
    fields = {"source": data / "s.npz", "target": data / "t.npz", "out": data / "run", "n_threads": None}
    with pytest.raises(KeyboardInterrupt):
        run(**fields, callbacks=[Stop(14, KeyboardInterrupt())])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    with pytest.raises(UserError, match="of another run"):
        run(**fields, resume=True)


class Look(Callback):
    """Remembers what training starts from."""

    def on_start(self, trainer):
        self.seed, self.rule = trainer.execution.seed, trainer.rule.name
        self.weights = trainer.module.network.classifier.weight.detach().clone()


def test_seed_and_selection_reach_training(data):
    one, other = Look(), Look()
    run(data / "s.npz", data / "t.npz", data / "one", seed=5, selection="last", callbacks=[one])
    run(data / "s.npz", data / "t.npz", data / "other", seed=6, callbacks=[other])
    assert (one.seed, one.rule, other.seed, other.rule) == (5, "last", 6, "entropy")
    assert not torch.equal(one.weights, other.weights)


def test_more_looks_at_the_target_change_what_is_kept_not_what_is_learned(data):
    few = run(data / "s.npz", data / "t.npz", data / "few", selection="last")
    many = run(data / "s.npz", data / "t.npz", data / "many", selection="last", evaluate_every=4)
    steps = [e.step for e in many.evaluations if e.phase == "adapt" and e.step > 0]
    asked = {step for step in range(1, max(steps) + 1) if step % 4 == 0}
    refreshed = {e.step for e in few.evaluations if e.phase == "adapt" and e.step > 0}
    assert steps == sorted(asked | refreshed) and asked - refreshed
    assert np.array_equal(few.best.predictions, many.best.predictions)
    models = [(data / name / "model.safetensors").read_bytes() for name in ("few", "many")]
    assert models[0] == models[1]
    assert Spec.read(data / "many" / "spec.yaml").evaluate_every == 4


def test_a_training_that_fails_in_the_middle_leaves_nothing(data):
    with pytest.raises(UserError, match="stop"):
        run(data / "s.npz", data / "t.npz", data / "run", callbacks=[Stop(14, UserError("stop"))])
    assert not (data / "run").exists()


def test_model_and_presence_are_those_of_the_selected_evaluation():
    opened = OpenedArrays(ArraySamples(X.shape[1:]), X, np.searchsorted(NAMES, Y), XT, NAMES.tolist())
    falling = itertools.count(0, -1)
    done, target = train(
        Spec(method="ba3us", method_params=SMALL, n_threads=1, selection=lambda outputs: next(falling)), opened
    )
    predicted = np.concatenate([logits.argmax(1) for _, logits in done.model.outputs(target)])
    assert np.array_equal(predicted, done.best.predictions)
    assert not np.array_equal(predicted, done.evaluations[-1].predictions)
    assert np.allclose(done.presence["proportion"], np.bincount(predicted, minlength=4) / len(predicted))


def test_a_run_repeats_from_its_own_spec(data, monkeypatch):
    run(data / "s.npz", data / "t.npz", data / "a", selection="information-maximisation")
    spec = Spec.read(data / "a" / "spec.yaml")
    monkeypatch.chdir(data.parent)
    adapt(spec, data / "b")
    assert same_files(data / "a", data / "b")


def test_a_function_that_selects_is_refused_before_the_work(data, monkeypatch):
    monkeypatch.setattr("ba3us.run.train.Trainer.fit", raising(AssertionError))
    with pytest.raises(UserError, match="can't be written to a file"):
        run(data / "s.npz", data / "t.npz", data / "run", selection=lambda outputs: 0.0)


def test_a_loaded_run_is_the_run(data):
    done = run(data / "s.npz", data / "t.npz", data / "run")
    again = Run.load(data / "run")
    assert again.spec.to_yaml() == done.spec.to_yaml() and again.best_index == done.best_index
    assert again.summary() == done.summary()
    for one, other in zip(again.evaluations, done.evaluations, strict=True):
        assert (one.phase, one.step, one.candidate, one.scores) == (
            other.phase, other.step, other.candidate, other.scores,
        )  # fmt: skip
        assert np.array_equal(one.predictions, other.predictions)
    assert again.history.shape == done.history.shape
    (data / "run" / "evaluations.npz").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"evaluations .* can't be read"):
        Run.load(data / "run")
    (data / "run" / "history.csv").unlink()
    with pytest.raises(UserError, match=r"is not whole|are damaged"):
        Run.load(data / "run")


def test_no_csv_is_left_when_predicting_breaks(data, monkeypatch):
    run(data / "s.npz", data / "t.npz", data / "run")
    (data / "out.csv").write_text("kept")
    outputs = Model.outputs

    def broken(self, domain, batch_size=1024):
        yield next(outputs(self, domain, 8))
        raise KeyboardInterrupt

    monkeypatch.setattr(Model, "outputs", broken)
    before = sorted(data.iterdir())
    with pytest.raises(KeyboardInterrupt):
        predict(data / "run", data / "t.npz", data / "out.csv")
    assert sorted(data.iterdir()) == before and (data / "out.csv").read_text() == "kept"


def test_features_of_another_backbone_are_refused(data):
    np.savez(data / "a.npz", features=X, labels=Y, backbone="resnet50")
    np.savez(data / "b.npz", features=XT, backbone="vgg16")
    with pytest.raises(UserError, match="are of 'vgg16', the source's of 'resnet50': use one backbone"):
        run(data / "a.npz", data / "b.npz", data / "run")
    run(data / "a.npz", data / "t.npz", data / "run")
    with pytest.raises(UserError, match="use one backbone"):
        predict(data / "run", data / "b.npz", data / "out.csv")


def test_predict_refuses_what_is_no_run_and_what_does_not_fit(data):
    run(data / "s.npz", data / "t.npz", data / "run")
    np.save(data / "wide.npy", np.zeros((3, 7), dtype=np.float32))
    np.save(data / "nan.npy", np.full((3, 6), np.nan, dtype=np.float32))
    for folder, file, out, sentence in [
        ("none", "t.npy", "o.csv", "There is no run in"),
        ("s.npz", "t.npy", "o.csv", "There is no run in"),
        ("run", "none.npy", "o.csv", "There is no file"),
        ("run", "run", "o.csv", "is a folder: turn its images into a feature file with ba3us embed"),
        ("run", "wide.npy", "o.csv", r"has shape \(7,\), but the run's have \(6,\)"),
        ("run", "nan.npy", "o.csv", r"NaN or infinite values \(first in row 0\)"),
        ("run", "t.npy", "run", "is a folder: give a file name"),
        ("run", "t.npy", "t.npy", "is the data itself"),
    ]:
        with pytest.raises(UserError, match=sentence):
            predict(data / folder, data / file, data / out)
    with pytest.raises(UserError, match="`root` is for list files of images"):
        predict(data / "run", data / "t.npy", data / "o.csv", root=data)
    assert not (data / "o.csv").exists()
    (data / "run" / "model.safetensors").unlink()
    with pytest.raises(UserError, match="There is no model file"):
        predict(data / "run", data / "t.npy", data / "o.csv")
