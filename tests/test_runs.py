"""Run directories: what adapt writes, what predict reads, and nothing half-written."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest
import yaml

from arrays_toys import FAST, NAMES, clouds
from ba3us import PartialAdapter, methods, runs
from ba3us.errors import UserError

X, Y, XT, YT = clouds()
FILES = ["config.yaml", "history.csv", "model.safetensors", "predictions.csv", "presence.csv"]


@pytest.fixture
def data(tmp_path):
    """A source with names and paths, a target with paths and (unused) labels, and bare arrays."""
    code = np.searchsorted(NAMES, Y)
    np.savez(tmp_path / "s.npz", features=X, labels=code, class_names=NAMES, paths=[f"s{i}" for i in code])
    np.savez(tmp_path / "t.npz", features=XT, labels=np.zeros(len(XT), int), paths=[f"t, {i}" for i in YT])
    for name, array in {"s": X, "t": XT, "names": Y, "codes": code, "bytes": Y.astype("S")}.items():
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def table(path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_run_holds_what_it_should(data):
    summary = runs.adapt(data / "s.npz", data / "t.npz", data / "runs" / "new", seed=3, **FAST)
    run = data / "runs" / "new"
    assert sorted(p.name for p in run.iterdir()) == FILES
    assert [p.name for p in run.parent.iterdir()] == ["new"]
    model = PartialAdapter(random_state=3, **FAST).fit(X, Y, XT)

    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["method"] == "ba3us" and config["seed"] == 3 and config["threads"] == 1
    assert config["source"] == {"file": str(data / "s.npz"), "rows": 80, "classes": 4}
    assert config["options"] == vars(methods.get("ba3us").config(steps=30, **FAST["options"]))
    assert config["selected"]["step"] == model.evaluations_[model.selected_].step

    lines = table(run / "predictions.csv")
    assert [line["path"] for line in lines] == [f"t, {i}" for i in YT]
    assert [line["class"] for line in lines] == model.predict(XT).tolist()
    found = [float(line["probability"]) for line in lines]
    assert np.allclose(found, model.predict_proba(XT).max(axis=1), atol=1e-6)

    presence = pd.read_csv(run / "presence.csv")
    assert presence["class"].tolist() == NAMES.tolist()
    shares = [np.mean(model.predict(XT) == name) for name in NAMES]
    assert np.allclose(presence["share"], shares, atol=1e-6)
    assert np.allclose(presence["mean_probability"], model.class_weights_, atol=1e-6)
    assert presence["class"][presence["present"] == "yes"].tolist() == model.classes_present_.tolist()
    history = pd.read_csv(run / "history.csv")
    assert history[history["loss"].notna()]["step"].tolist() == [0, 10, 20]
    assert history[history["selected"] == True]["step"].tolist() == [config["selected"]["step"]]  # noqa: E712

    assert json.loads(json.dumps(summary))["classes_present"] == model.classes_present_.tolist()
    assert summary["source_rows"] == 80 and summary["target_rows"] == 40
    assert [row["class"] for row in summary["classes"]] == NAMES.tolist()


@pytest.mark.parametrize("target", ["t.npz", "t.npy"])
def test_predicting_again_gives_the_same(data, target):
    runs.adapt(data / "s.npz", data / "t.npz", data / "run", **FAST)
    summary = runs.predict(data / "run", data / target, data / "deep" / "out.csv")
    first, second = table(data / "run" / "predictions.csv"), table(data / "deep" / "out.csv")
    for key in ("class", "probability"):
        assert [line[key] for line in first] == [line[key] for line in second]
    if target == "t.npy":
        assert [line["row"] for line in second] == [str(i) for i in range(40)]
    counts = {row["class"]: row["rows"] for row in summary["predicted"]}
    assert counts == pd.Series([line["class"] for line in second]).value_counts().to_dict()


@pytest.mark.parametrize(("labels", "kind"), [("names", str), ("codes", int), ("bytes", str)])
def test_bare_arrays_with_labels(data, labels, kind):
    summary = runs.adapt(data / "s.npy", data / "t.npy", data / "run", labels=data / f"{labels}.npy", **FAST)
    assert [type(row["class"]) for row in summary["classes"]] == [kind] * 4
    predicted = runs.predict(data / "run", data / "t.npy", data / "out.csv")["predicted"]
    assert {type(row["class"]) for row in predicted} == {kind}


def test_the_targets_labels_change_nothing(data):
    np.savez(data / "u.npz", features=XT)
    for target in ("t", "u"):
        runs.adapt(data / "s.npz", data / f"{target}.npz", data / target, **FAST)
    one, other = ((data / name / "model.safetensors").read_bytes() for name in "tu")
    assert one == other


def test_a_run_is_replaced_only_when_told_to(data):
    runs.adapt(data / "s.npz", data / "t.npz", data / "run", **FAST)
    before = (data / "run" / "model.safetensors").read_bytes()
    with pytest.raises(
        UserError, match=r"There is a run in .* already: choose another --out, or add --overwrite"
    ):
        runs.adapt(data / "s.npz", data / "t.npz", data / "run", seed=1, **FAST)
    assert (data / "run" / "model.safetensors").read_bytes() == before
    runs.adapt(data / "s.npz", data / "t.npz", data / "run", seed=1, overwrite=True, **FAST)
    assert (data / "run" / "model.safetensors").read_bytes() != before
    assert sorted(p.name for p in (data / "run").iterdir()) == FILES


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("where", ["ba3us.runs.PartialAdapter.fit", "ba3us.training.Model.save"])
def test_nothing_is_left_after_an_interruption(data, monkeypatch, where, error):
    before = sorted(data.iterdir())

    def broken(*args, **kwargs):
        raise error

    monkeypatch.setattr(where, broken)
    with pytest.raises((KeyboardInterrupt, UserError, OSError)):
        runs.adapt(data / "s.npz", data / "t.npz", data / "run", **FAST)
    assert sorted(data.iterdir()) == before


def test_no_csv_is_left_when_predicting_breaks(data, monkeypatch):
    runs.adapt(data / "s.npz", data / "t.npz", data / "run", **FAST)
    (data / "out.csv").write_text("kept")
    outputs = runs.Model.outputs

    def broken(self, domain, batch_size=1024):
        yield next(outputs(self, domain, 8))
        raise KeyboardInterrupt

    monkeypatch.setattr(runs.Model, "outputs", broken)
    before = sorted(data.iterdir())
    with pytest.raises(KeyboardInterrupt):
        runs.predict(data / "run", data / "t.npz", data / "out.csv")
    assert sorted(data.iterdir()) == before and (data / "out.csv").read_text() == "kept"


def test_features_of_another_backbone_are_refused(data):
    np.savez(data / "a.npz", features=X, labels=Y, backbone="resnet50")
    np.savez(data / "b.npz", features=XT, backbone="vgg16")
    with pytest.raises(UserError, match="are of 'vgg16', the source's of 'resnet50': use one backbone"):
        runs.adapt(data / "a.npz", data / "b.npz", data / "run", **FAST)
    runs.adapt(data / "a.npz", data / "t.npz", data / "run", **FAST)
    with pytest.raises(UserError, match="use one backbone"):
        runs.predict(data / "run", data / "b.npz", data / "out.csv")


def test_predict_refuses_what_is_no_run_and_what_does_not_fit(data):
    runs.adapt(data / "s.npz", data / "t.npz", data / "run", **FAST)
    np.save(data / "wide.npy", np.zeros((3, 7), dtype=np.float32))
    np.save(data / "nan.npy", np.full((3, 6), np.nan, dtype=np.float32))
    for run, file, out, sentence in [
        ("none", "t.npy", "o.csv", "There is no run in"),
        ("s.npz", "t.npy", "o.csv", "There is no run in"),
        ("run", "none.npy", "o.csv", "There is no file"),
        ("run", "run", "o.csv", "is a folder: turn its images into a feature file with ba3us embed"),
        ("run", "wide.npy", "o.csv", r"has shape \(7,\), of the run \(6,\)"),
        ("run", "nan.npy", "o.csv", r"NaN or infinite values \(first in row 0\)"),
        ("run", "t.npy", "run", "is a folder: give a file name"),
        ("run", "t.npy", "t.npy", "is the data itself"),
    ]:
        with pytest.raises(UserError, match=sentence):
            runs.predict(data / run, data / file, data / out)
    assert not (data / "o.csv").exists()
    (data / "run" / "model.safetensors").unlink()
    with pytest.raises(UserError, match="There is no model file"):
        runs.predict(data / "run", data / "t.npy", data / "o.csv")
