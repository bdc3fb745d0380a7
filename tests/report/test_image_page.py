"""The page of a run on images: thumbnails inside it, features of both domains, and images that are gone."""

from __future__ import annotations

import base64
import io
import shutil

import numpy as np
import pytest
import torch
from report_toys import taken
from safetensors.torch import save_file

from ba3us.adapt import adapt
from ba3us.data.image_cache import thumbnail
from ba3us.report import write_run_page
from ba3us.run.spec import Spec
from image_toys import COLOURS

Image = pytest.importorskip("PIL.Image", reason="needs the vision extra")
timm = pytest.importorskip("timm", reason="needs the vision extra")
OPTIONS = {"steps": 4, "batch_size": 4, "bottleneck": 5, "discriminator_hidden": 7, "refresh_every": 2}
ODD = "🦊 <b>.png"


def draw(path, colour, number):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(number).normal(0, 30, (20, 48, 3))
    Image.fromarray(np.clip(colour + noise, 0, 255).astype(np.uint8)).save(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three labelled colours, and a pile of ten of two of them in class folders; one file is no image."""
    folder = tmp_path_factory.mktemp("photos")
    for c, name in enumerate(["blue", "green", "red"]):
        for i in range(4):
            draw(folder / "s" / name / f"{i}.png", COLOURS[c], i)
    for i in range(20):
        name = ODD if i == 0 else f"{i}.png"
        draw(folder / "t" / ("blue", "green")[i % 2] / name, COLOURS[i % 2] + 20, 100 + i)
    (folder / "t" / "blue" / "broken.jpg").write_bytes(b"nothing")
    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet").state_dict(), folder / "w.safetensors")
    spec = Spec(
        source=str(folder / "s"),
        target=str(folder / "t"),
        method="ba3us",
        method_params=OPTIONS,
        backbone="test_resnet",
        weights=str(folder / "w.safetensors"),
        size=32,
        train="head",
        n_threads=1,
    )
    adapt(spec, folder / "run")
    return folder


def test_the_least_and_the_most_certain_images_are_in_the_page(folder):
    page = taken(write_run_page(folder / "run", labels=folder / "t"))
    pictures = page.all("img")
    assert len(pictures) == 16 and len({a["alt"] for a, _ in pictures}) == 16
    for attributes, _ in pictures:
        start, _, data = attributes["src"].partition(",")
        image = Image.open(io.BytesIO(base64.b64decode(data)))
        assert start == "data:image/jpeg;base64" and image.size == (48, 20)  # the aspect is kept
    lines = [
        line.split(",") for line in (folder / "run" / "predictions.csv").read_text("utf-8").splitlines()[1:]
    ]
    least = min(lines, key=lambda line: float(line[3]))  # path, class, probability, confidence
    assert pictures[0][0]["alt"] == least[0]
    shown = "".join(page.texts("ul", "pictures")[0].split())
    assert f"predictedas{least[1]},{100 * float(least[3]):.1f}%labelled{least[0].split('/')[0]}" in shown
    assert "broken.jpg" in page.section("run")
    assert "Accuracy" in page.texts("h2")


def test_images_of_both_domains_are_drawn_by_their_paths(folder):
    page = taken(write_run_page(folder / "run", out=folder / "plain.html"))
    texts = next(chart for chart in page.tips() if any(tip.startswith("source, ") for tip in chart))
    assert "source, red/3.png\nlabelled red" in texts
    assert any(text.startswith(f"target, blue/{ODD}\npredicted as ") for text in texts)
    assert len(texts) == 12 + 20 and not any("broken" in text for text in texts)


def test_images_that_are_gone_are_said_to_be(folder, tmp_path):
    shutil.copytree(folder / "run", tmp_path / "run")
    spec = (tmp_path / "run" / "spec.yaml").read_text(encoding="utf-8")
    moved = spec.replace(str(folder / "t"), str(tmp_path / "gone"))
    (tmp_path / "run" / "spec.yaml").write_text(moved, encoding="utf-8")
    page = taken(write_run_page(tmp_path / "run"))
    assert page.all("img") == []
    assert "not there" in page.section("images") and "can't be opened again" in page.section("features")


def test_a_thumbnail_is_small_upright_and_says_nothing_else(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    image = Image.new("RGB", (400, 100), "white")
    image.save(tmp_path / "a.jpg", exif=exif, comment=b"where I live")
    small = thumbnail(tmp_path / "a.jpg", 80)
    seen = Image.open(io.BytesIO(small))
    assert seen.size == (20, 80) and not seen.getexif() and b"where I live" not in small
