"""Runs on images: folders and lists, what is skipped, resuming, predicting more, bad input."""

from __future__ import annotations

import csv
import json
import warnings

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from ba3us.adapt import adapt, predict
from ba3us.cli import app
from ba3us.errors import UserError
from ba3us.run.build import Model
from ba3us.run.spec import Spec, is_images
from ba3us.training import Callback
from image_toys import COLOURS

Image = pytest.importorskip("PIL.Image", reason="needs the vision extra")
timm = pytest.importorskip("timm", reason="needs the vision extra")
FILES = [
    "evaluations.npz", "history.csv", "model.safetensors", "predictions.csv", "presence.csv",
    "results.json", "spec.yaml",
]  # fmt: skip
SMALL = {"batch_size": 4, "bottleneck": 5, "discriminator_hidden": 7, "refresh_every": 2}


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_file(timm.create_model("test_resnet").state_dict(), path)
    return path


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BA3US_CACHE", str(tmp_path / "cache"))


def draw(path, colour, number):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(number).normal(0, 30, (20, 24, 3))
    Image.fromarray(np.clip(colour + noise, 0, 255).astype(np.uint8)).save(path)


@pytest.fixture
def photos(tmp_path):
    """Three labelled colours, and a nested pile of two of them under folder names the source does not know."""
    for c, name in enumerate(["blue", "green", "red"]):
        for i in range(4):
            draw(tmp_path / "s" / name / f"{i}.png", COLOURS[c], i)
    for i in range(5):
        draw(tmp_path / "t" / f"heap{i % 2}" / f"{i}.png", COLOURS[i % 2] + 20, 100 + i)
    return tmp_path


def run(
    photos,
    weights,
    out="run",
    source="s",
    target="t",
    method_params=None,
    overwrite=False,
    resume=False,
    callbacks=(),
    **fields,
):
    fields = {
        "method": "ba3us",
        "backbone": "test_resnet",
        "weights": str(weights),
        "size": 32,
        "train": "tail",
        "n_threads": 1,
    } | fields
    fields |= {"views": 2} if "views" not in fields and fields["train"] not in ("all", "head", None) else {}
    spec = Spec(
        source=str(photos / source),
        target=str(photos / target),
        method_params={"steps": 4} | (SMALL if method_params is None else method_params),
        **fields,
    )
    return adapt(spec, photos / out, overwrite=overwrite, resume=resume, callbacks=callbacks)


def table(path):
    with open(path, newline="", encoding="utf-8", errors="surrogateescape") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("train", ["tail", "head", "all"])
def test_a_run_and_predictions_from_it(photos, weights, train):
    summary = run(photos, weights, train=train).summary()
    folder = photos / "run"
    assert sorted(p.name for p in folder.iterdir()) == FILES  # nothing was skipped, no state is left
    assert [p.name for p in photos.iterdir() if p.name.startswith(".")] == []
    assert summary["source_samples"] == 12 and summary["target_samples"] == 5 and summary["skipped"] == 0
    assert [row["class"] for row in summary["classes"]] == ["blue", "green", "red"]
    config = yaml.safe_load((folder / "spec.yaml").read_text())
    assert config["train"] == train and config["size"] == 32
    lines = table(folder / "predictions.csv")
    assert [line["path"] for line in lines] == [f"heap{i % 2}/{i}.png" for i in (0, 2, 4, 1, 3)]

    again = predict(folder, photos / "t", photos / "out.csv")
    assert again["rows"] == 5 and again["skipped"] == 0
    more = table(photos / "out.csv")
    assert [line["class"] for line in more] == [line["class"] for line in lines]
    np.testing.assert_allclose(
        [float(line["probability"]) for line in more],
        [float(line["probability"]) for line in lines],
        atol=2e-2,  # kept activations are rounded
    )


def test_the_model_file_holds_everything(photos, weights):
    run(photos, weights, train="layer4")
    model = Model.load(photos / "run" / "model.safetensors")
    assert model.blueprint.classes == ["blue", "green", "red"] and model.front is not None
    original = timm.create_model("test_resnet")
    original.load_state_dict(load_file(weights))
    assert torch.equal(model.front.state_dict()["0.weight"], original.conv1[0].weight)


@pytest.mark.parametrize("method", ["sspda", "pada", "cdan+transnorm"])
def test_other_methods(photos, weights, method):
    options = {"batch_size": 4, "permutations": 3} if method == "sspda" else {"batch_size": 4, "bottleneck": 5}
    done = run(photos, weights, method=method, method_params=options, ten_crop=True)
    assert done.spec.method == method
    assert predict(photos / "run", photos / "t", photos / "out.csv")["rows"] == 5


def test_list_files(photos, weights):
    lines = [f"s/{name}/{i}.png {c}" for c, name in enumerate(["blue", "green", "red"]) for i in range(4)]
    (photos / "lists").mkdir()
    (photos / "lists" / "s.txt").write_text("\n".join(lines))
    (photos / "lists" / "t.txt").write_text("\n".join(f"t/heap{i % 2}/{i}.png 77" for i in range(5)))
    (photos / "names.txt").write_text("azure\nlime\nscarlet\n")
    summary = run(
        photos,
        weights,
        source="lists/s.txt",
        target="lists/t.txt",
        root=str(photos),
        classes=str(photos / "names.txt"),
    ).summary()
    assert [row["class"] for row in summary["classes"]] == ["azure", "lime", "scarlet"]
    mixed = run(photos, weights, out="mixed", source="lists/s.txt", root=str(photos)).summary()
    assert mixed["target_samples"] == 5 and mixed["classes"][0]["class"] == "blue"


def test_predicting_a_list_file_from_its_root(photos, weights):
    run(photos, weights, train="head")
    (photos / "lists").mkdir()
    (photos / "lists" / "t.txt").write_text("\n".join(f"t/heap{i % 2}/{i}.png" for i in range(5)))
    done = command(
        "predict", photos / "run", photos / "lists" / "t.txt", "--root", photos, "--csv", photos / "out.csv"
    )
    assert done.exit_code == 0 and len(table(photos / "out.csv")) == 5


def test_no_file_is_kept_where_caches_may_hold_nothing(photos, weights):
    run(photos, weights, cache_gb=0.0)
    assert not any(path.is_file() for path in (photos / "cache").rglob("*"))
    run(photos, weights, out="kept")
    assert any(path.is_file() for path in (photos / "cache").rglob("*"))


def test_the_same_run_twice(photos, weights):
    for out in ("a", "b"):
        run(photos, weights, out=out)
    a, b = ((photos / out / "model.safetensors").read_bytes() for out in ("a", "b"))
    assert a == b
    with pytest.raises(UserError, match="There is a run in"):
        run(photos, weights, out="a")
    run(photos, weights, out="a", overwrite=True, seed=1)
    assert (photos / "a" / "model.safetensors").read_bytes() != a


class Stop(Callback):
    """Breaks off after an update."""

    def on_step(self, trainer, step):
        if step.number == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("train", ["head", "tail", "all"])
def test_interrupted_and_resumed(photos, weights, train):
    run(photos, weights, out="whole", train=train)
    with pytest.raises(KeyboardInterrupt):
        run(photos, weights, out="cut", train=train, callbacks=[Stop()])
    assert [p.name for p in (photos / "cut").iterdir()] == ["checkpoints"]
    done = run(photos, weights, out="cut", train=train, resume=True)
    assert done.about["resumed"] and sorted(p.name for p in (photos / "cut").iterdir()) == FILES
    for name in FILES[:-2]:
        assert (photos / "cut" / name).read_bytes() == (photos / "whole" / name).read_bytes()


def test_only_the_very_same_images_and_weights_are_resumed(photos, weights):
    with pytest.raises(KeyboardInterrupt):
        run(photos, weights, callbacks=[Stop()])
    state, before = load_file(weights), weights.read_bytes()

    def refused(**fields):
        with pytest.raises(UserError, match="of another run"):
            run(photos, weights, resume=True, **fields)

    refused(size=40)
    refused(train="layer4")
    save_file({name: x * 1.01 if x.is_floating_point() else x for name, x in state.items()}, weights)
    refused()  # other weights under the same name
    weights.write_bytes(before)
    one, other = photos / "s" / "red" / "0.png", photos / "s" / "blue" / "9.png"
    one.rename(other)
    refused()  # another label
    other.rename(one)
    draw(photos / "t" / "heap0" / "0.png", COLOURS[2], 7)
    refused()  # another image


def test_other_labels_in_the_same_list_are_another_run(photos, weights):
    lines = [f"s/{name}/{i}.png {c}" for c, name in enumerate(["blue", "green", "red"]) for i in range(4)]
    (photos / "names.txt").write_text("azure\nlime\nscarlet\n")
    fields = {"source": "s.txt", "root": str(photos), "classes": str(photos / "names.txt"), "train": "head"}
    (photos / "s.txt").write_text("\n".join(lines))
    with pytest.raises(KeyboardInterrupt):
        run(photos, weights, **fields, callbacks=[Stop()])
    (photos / "s.txt").write_text("\n".join([*lines[:-1], "s/red/3.png 0"]))
    with pytest.raises(UserError, match="of another run"):
        run(photos, weights, **fields, resume=True)


def test_precision_and_compile(photos, weights, monkeypatch):
    compiled = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: compiled.append(self))
    run(photos, weights, out="a", precision="bfloat16", compile=True)
    assert len(compiled) == 1
    run(photos, weights, out="b")
    assert table(photos / "a" / "history.csv") != table(photos / "b" / "history.csv")


def test_the_default_on_a_cpu_is_the_head_on_vectors_that_embed_makes(photos, weights):
    done = run(photos, weights, train=None)
    assert done.about["trained"] == "head"
    assert done.notes == []
    shown = ("--backbone", "test_resnet", "--weights", weights, "--out")
    assert command("embed", photos / "s", *shown, photos / "s.npz").exit_code == 0
    assert command("embed", photos / "t", *shown, photos / "t.npz", "--unlabelled").exit_code == 0
    whole = run(photos, weights, out="own", train=None, size=None)  # embed takes the backbone's own size
    spec = Spec(
        source=str(photos / "s.npz"),
        target=str(photos / "t.npz"),
        method="ba3us",
        method_params={"steps": 4} | SMALL,
        n_threads=1,
    )
    features = adapt(spec, photos / "features")
    assert torch.equal(
        features.model.module.network.classifier.weight, whole.model.module.network.classifier.weight
    )
    assert features.history.equals(whole.history)


# --- bad input ----------------------------------------------------------------------------------------------


def spoil(folder):
    """Every kind of difficult file, with whether it is left out and why."""
    pixels = np.random.default_rng(0).integers(0, 256, (24, 20, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    image.save(folder / "whole.jpg")
    (folder / "truncated.jpg").write_bytes((folder / "whole.jpg").read_bytes()[:300])
    (folder / "zero.jpg").touch()
    image.convert("CMYK").save(folder / "cmyk.jpg")
    Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 256).save(folder / "sixteen.png")
    image.convert("P").save(folder / "palette.png")
    image.save(folder / "animated.gif", save_all=True, append_images=[image.rotate(90)])
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(folder / "turned.jpg", exif=exif)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Image.new("1", (16000, 12000)).save(folder / "bomb.png")
    (folder / "text.jpg").write_text("not an image")
    (folder / "notes.txt").write_text("notes")
    (folder / "broken.jpg").symlink_to(folder / "nowhere.jpg")
    (folder / "nothing").mkdir()
    return {"truncated.jpg", "zero.jpg", "bomb.png", "text.jpg", "notes.txt", "broken.jpg"}


def test_bad_files_are_listed_and_the_run_goes_on(photos, weights):
    left_out = spoil(photos / "s" / "red")
    spoil(photos / "t" / "heap0")
    summary = run(photos, weights, train="head").summary()
    listed = table(photos / "run" / "skipped.csv")
    assert summary["skipped"] == len(listed) == 2 * len(left_out)
    assert {row["path"] for row in listed if row["domain"] == "source"} == {f"red/{n}" for n in left_out}
    assert {row["path"] for row in listed if row["domain"] == "target"} == {f"heap0/{n}" for n in left_out}
    assert all(row["reason"] for row in listed)
    assert summary["source_samples"] == 12 + 6 and summary["target_samples"] == 5 + 6
    again = predict(photos / "run", photos / "t", photos / "out.csv")
    assert again["rows"] == 11 and len(table(photos / "out.skipped.csv")) == again["skipped"] == 6


def test_a_class_without_a_readable_image_is_left_out(photos, weights):
    for path in (photos / "s" / "green").iterdir():
        path.write_text("no image")
    (photos / "s" / "empty").mkdir()
    summary = run(photos, weights, train="head").summary()
    assert [row["class"] for row in summary["classes"]] == ["blue", "red"]
    reasons = {row["path"]: row["reason"] for row in table(photos / "run" / "skipped.csv")}
    assert reasons["green"] == "a class none of whose images can be read"
    assert reasons["empty"] == "a class folder without images"
    for path in (photos / "s" / "red").iterdir():
        path.write_text("no image")
    with pytest.raises(UserError, match="has 1 class with images: give at least two"):
        run(photos, weights, out="other", train="head")


def test_classes_that_differ_in_case_are_two(photos, weights):
    (photos / "s" / "Red").mkdir()
    if len(list((photos / "s").iterdir())) < 4:
        pytest.skip("this file system takes Red for red")
    draw(photos / "s" / "Red" / "x.png", COLOURS[0], 50)
    summary = run(photos, weights, train="head").summary()
    assert [row["class"] for row in summary["classes"]] == ["Red", "blue", "green", "red"]
    assert "The classes 'Red' and 'red' differ only in case: they are 2 classes." in summary["notes"]


def test_sources_without_labels_or_images(photos, weights):
    with pytest.raises(UserError, match="one subfolder per class"):
        run(photos, weights, source="t/heap0")
    draw(photos / "one" / "x" / "a.png", COLOURS[0], 0)
    with pytest.raises(UserError, match="has 1 class with images"):
        run(photos, weights, source="one")
    (photos / "none").mkdir()
    with pytest.raises(UserError, match="No image is in"):
        run(photos, weights, target="none")
    (photos / "none" / "a.jpg").touch()
    with pytest.raises(UserError, match="None of the 1 images"):
        run(photos, weights, target="none")
    with pytest.raises(UserError, match="no stage called 'layer9'"):
        run(photos, weights, train="layer9")
    assert not (photos / "run").exists()


def test_wrong_runs(photos, weights):
    with pytest.raises(UserError, match="There is no run in"):
        predict(photos, photos / "t", photos / "out.csv")
    run(photos, weights, train="head")
    with pytest.raises(UserError, match="holds features"):
        predict(photos / "run", photos / "t.npz", photos / "out.csv")
    path = photos / "run" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="it is damaged"):
        predict(photos / "run", photos / "t", photos / "out.csv")
    assert not (photos / "out.csv").exists()


def test_what_counts_as_images(tmp_path):
    (tmp_path / "odd.npz").mkdir()
    assert is_images(tmp_path) and is_images("list.txt") and is_images(tmp_path / "odd.npz")
    assert not is_images("x.npz") and not is_images("x.npy")


# --- the command line ---------------------------------------------------------------------------------------


def command(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def test_from_the_command_line(photos, weights):
    base = (
        "adapt",
        photos / "s",
        photos / "t",
        "--backbone",
        "test_resnet",
        "--weights",
        weights,
        "--size",
        32,
        "--method",
        "ba3us",
    )
    sets = [part for k, v in SMALL.items() for part in ("--set", f"{k}={v}")]
    done = command(*base, "--out", photos / "run", "--steps", 4, *sets, "--train", "head", "--json")
    assert done.exit_code == 0
    summary = json.loads(done.stdout)
    assert summary["trained"] == "head" and summary["target_samples"] == 5
    done = command("predict", photos / "run", photos / "t", "--csv", photos / "out.csv", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["rows"] == 5
    (photos / "t" / "zero.jpg").touch()
    done = command(*base, "--out", photos / "people", "--steps", 4, *sets, "--train", "head", "--cache-gb", 0.1)
    assert done.exit_code == 0 and "1 file was left out" in " ".join(done.stdout.split())
    assert "skipped.csv" in "".join(done.stdout.split())


def test_options_that_do_not_fit_together(photos):
    np.savez(photos / "t.npz", features=np.zeros((3, 2)))
    for arguments, sentence in (
        ((photos / "s", photos / "t.npz"), "is a folder: turn its images into a feature file"),
        ((photos / "t.npz", photos / "t.npz", "--train", "head"), ".train. is not for features"),
        ((photos / "s", photos / "t", "--labels", photos / "y.npy"), ".labels. is not for images"),
    ):
        with pytest.raises(UserError, match=sentence):
            command("adapt", *arguments, "--out", photos / "run")
