"""Exported runs on features: the same answers, for any number of rows, in one file, or nothing at all."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from export_toys import XT, X, classes, feature_run, metadata, session, set_present
from typer.testing import CliRunner

import ba3us
from arrays_toys import NAMES
from ba3us import methods
from ba3us.adapt import predict
from ba3us.cli import app
from ba3us.data.files import read_table
from ba3us.errors import UserError
from ba3us.export import export, exporting
from ba3us.export import exporting as onnx_file
from ba3us.export.exporting import Examples, InferenceModel, description
from ba3us.run.arrays import ArraySamples
from ba3us.run.build import Blueprint, Model
from toys import CLASSES, WIDTH, blobs, fit, options_for


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A run and its exported file."""
    folder = tmp_path_factory.mktemp("export")
    return folder, export(feature_run(folder), folder / "out" / "model.onnx")


@pytest.fixture
def run(done, tmp_path):
    """A copy of the run, to be changed."""
    shutil.copytree(done[0] / "run", tmp_path / "run")
    return tmp_path / "run"


def test_the_file_answers_as_predict_does(done):
    folder, summary = done
    predict(folder / "run", folder / "new.npz", folder / "out.csv")
    lines = read_table(folder / "out.csv")
    file = session(folder / "out" / "model.onnx")
    for rows in (len(XT), 1, 3):
        probabilities, logits = file.run(["probabilities", "logits"], {"features": XT[:rows]})
        assert probabilities.shape == logits.shape == (rows, CLASSES) and probabilities.dtype == np.float32
        for line, p in zip(lines, probabilities):
            assert classes(folder / "out" / "model.onnx")[p.argmax()] == line["class"]
            assert p.max() == pytest.approx(float(line["probability"]), abs=1e-5)
            assert p.sum() == pytest.approx(1, abs=1e-5)
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    np.testing.assert_allclose(probabilities, shifted / shifted.sum(axis=1, keepdims=True), atol=1e-6)
    assert summary["checked_on"] == "8 samples of the target" and 0 <= summary["largest_difference"] < 1e-4


def test_one_file_that_says_what_it_is(done):
    folder, summary = done
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["model.md", "model.onnx"]
    assert summary["bytes"] == (folder / "out" / "model.onnx").stat().st_size
    about = metadata(folder / "out" / "model.onnx")
    assert json.loads(about["classes"]) == summary["classes"] == NAMES.tolist()
    assert about["ba3us_version"] == ba3us.__version__ and about["method"] == "ba3us"
    assert about["model_digest"] == Model.load(folder / "run" / "model.safetensors").digest
    assert about["model_digest"].encode() in (folder / "run" / "model.safetensors").read_bytes()
    assert "image" not in about
    whole = (folder / "out" / "model.onnx").read_bytes()
    assert b".py" not in whole and b"site-packages" not in whole  # nothing of the machine that wrote it
    (given,) = session(folder / "out" / "model.onnx").get_inputs()
    assert (given.name, given.type, given.shape[1:]) == ("features", "tensor(float)", [WIDTH])


def trained(name: str, dtype: torch.dtype = torch.float32, **options: object) -> tuple[Model, np.ndarray]:
    source, target, _ = blobs()
    settings = options_for(name, **options)
    result = fit(name, source, target, options=settings)
    blueprint = Blueprint.of(name, methods.get(name).options(**settings), [*"abcd"], ArraySamples([WIDTH]))
    return Model(blueprint, result.module.to(dtype)), target.batch(slice(None)).numpy()


@pytest.mark.parametrize(
    ("name", "options"),
    [("mcs", {}), ("twins", {}), ("drcn", {"correct": "target"}), ("cdan+transnorm", {}), ("shot", {})],
)
def test_a_methods_own_way_to_predict_is_what_is_exported(name, options, tmp_path):
    model, x = trained(name, **options)
    with torch.no_grad():
        model.module.eval()
        wanted = model.module.method.predict(model.module.network, torch.from_numpy(x))[1]
        plain = model.module.network(torch.from_numpy(x))[1]
    assert name in ("cdan+transnorm", "shot") or not torch.allclose(wanted, plain, atol=1e-2)
    served = InferenceModel(model)
    onnx_file.write(tmp_path / "m.onnx", served, description(model, [*"abcd"]))
    assert onnx_file.difference(tmp_path / "m.onnx", served, x, wanted) < 1e-5


def test_a_model_in_float64_takes_float32_and_gives_it(tmp_path):
    model, x = trained("source-only", torch.float64)
    served = InferenceModel(model)
    onnx_file.write(tmp_path / "m.onnx", served, {})
    assert session(tmp_path / "m.onnx").run(["logits"], {"features": x})[0].dtype == np.float32


def test_arrays_that_are_no_vectors(tmp_path):
    arrays = ArraySamples([1, 8, 8], "small-cnn")
    blueprint = Blueprint.of("source-only", methods.get("source-only").options(bottleneck=5), [0, 1], arrays)
    model = Model(blueprint, blueprint.build().module)
    served, x = InferenceModel(model), torch.randn(3, 1, 8, 8)
    onnx_file.write(tmp_path / "m.onnx", served, {})
    assert onnx_file.difference(tmp_path / "m.onnx", served, x.numpy(), served(x)[1]) < 1e-5


# --- present classes only ------------------------------------------------------------------------------------


def test_only_present_and_unsure_classes_are_kept(done, run):
    set_present(run, ant="present", bee="absent", cat="uncertain", dog="absent")
    out = run.parent / "few.onnx"
    assert export(run, out, present_only=True)["classes"] == classes(out) == ["ant", "cat"]
    few = session(out).run(["probabilities"], {"features": XT})[0]
    whole = session(done[0] / "out" / "model.onnx").run(["probabilities"], {"features": XT})[0][:, [0, 2]]
    np.testing.assert_allclose(few, whole / whole.sum(axis=1, keepdims=True), atol=1e-5)
    assert "they are absent in the target: 2 of its classes." in out.with_suffix(".md").read_text("utf-8")


def test_no_present_class_is_a_sentence(run):
    set_present(run, **dict.fromkeys(NAMES.tolist(), "absent"))
    with pytest.raises(UserError, match=r"has no present or uncertain class: leave .present_only. out"):
        export(run, run.parent / "m.onnx", present_only=True)


# --- checked, or nothing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["gone", "another shape", "damaged"])
def test_without_the_target_random_rows_are_asked_about(run, how, done):
    text = (run / "spec.yaml").read_text(encoding="utf-8")
    (run / "spec.yaml").write_text(text.replace("new.npz", "other.npz"), encoding="utf-8")
    if how == "another shape":
        np.savez(done[0] / "other.npz", features=X[:, :3])
    elif how == "damaged":
        (done[0] / "other.npz").write_bytes(b"no file of NumPy's")
    summary = export(run, run.parent / "m.onnx")
    assert summary["checked_on"] == "8 random samples, because the target can't be read"
    (done[0] / "other.npz").unlink(missing_ok=True)


@pytest.mark.parametrize("wrong", [0.01, float("nan")])
def test_a_file_that_answers_otherwise_is_not_written(run, monkeypatch, wrong):
    real = exporting.examples

    def changed(done) -> Examples:
        rows = real(done)
        rows.logits[0, 0] += wrong
        return rows

    monkeypatch.setattr(exporting, "examples", changed)
    with pytest.raises(UserError, match=r"differ by .* from the run's, more than 1e-04: nothing is written"):
        export(run, run.parent / "m.onnx")
    assert [path.name for path in run.parent.iterdir()] == ["run"]


def test_a_network_without_a_translation_is_a_sentence(run, monkeypatch, capfd):
    def odd(self, x):
        return (x, x) if x.sum() > 0 else (-x, -x)

    monkeypatch.setattr(InferenceModel, "forward", odd)
    with pytest.raises(
        UserError, match=r"The network can't be exported .*: choose another backbone or method\.$"
    ):
        export(run, run.parent / "m.onnx")
    assert [path.name for path in run.parent.iterdir()] == ["run"]
    assert capfd.readouterr().err == ""


def test_weights_that_are_too_many_for_one_file_lie_beside_it(run, monkeypatch):
    monkeypatch.setattr(onnx_file, "_LARGEST", 100)
    out = run.parent / "deep" / "m.onnx"
    export(run, out)
    assert sorted(path.name for path in out.parent.iterdir()) == ["m.md", "m.onnx", "m.onnx.data"]
    assert session(out).run(["logits"], {"features": XT})[0].shape == (len(XT), CLASSES)


# --- bad input -----------------------------------------------------------------------------------------------


def test_outputs_that_can_not_be(run):
    folder = run.parent
    (folder / "model.md").write_text("# Notes of mine\n")
    (folder / "file").write_text("")
    for out, card, sentence in (
        ("model.safetensors", None, r"must end in \.onnx"),
        ("model.onnx", None, r"model\.md is not a model card: give another file for the .card."),
        ("a.onnx", "a.onnx", "is the model file itself"),
        ("a.onnx", "run", "is a folder"),
        ("file/a.onnx", None, "which is a file"),
        ("a.onnx", "run/spec.yaml", "is not a model card"),
    ):
        with pytest.raises(UserError, match=sentence):
            export(run, folder / out, card=None if card is None else folder / card)
    with pytest.raises(UserError, match="There is no run in"):
        export(folder, folder / "a.onnx")
    assert sorted(path.name for path in folder.iterdir()) == ["file", "model.md", "run"]


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_is_a_sentence(run, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"needs the package {package}: pip install 'ba3us\[export\]'"):
        export(run, run.parent / "m.onnx")
    assert [path.name for path in run.parent.iterdir()] == ["run"]


def test_from_the_command_line(run):
    out, card = run.parent / "m.onnx", run.parent / "card.md"

    def command(*more):
        words = ["export", str(run), "--onnx", str(out), "--card", str(card), *more]
        return CliRunner().invoke(app, words, catch_exceptions=False)

    said = command()
    assert (
        said.exit_code == 0 and "largest difference" in said.stdout and "8 samples of the target" in said.stdout
    )
    again = command("--json", "--present-only")  # a card of ours is replaced
    assert again.exit_code == 0 and json.loads(again.stdout)["card"] == str(card)
    assert sorted(path.name for path in run.parent.iterdir()) == ["card.md", "m.onnx", "run"]
