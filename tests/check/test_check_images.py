"""Folders of pictures from end to end: every planted fault is found, and clean folders give no warning."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from check_toys import photo
from PIL import Image

from ba3us.check import check
from ba3us.check import images as pictures
from ba3us.check.images import ImageDomains
from ba3us.data.files import FeatureSet
from ba3us.data.image_cache import open_images
from ba3us.data.images import Skipped, read_images
from ba3us.embed import Embedding
from ba3us.run.spec import Spec

pytest.importorskip("timm", reason="needs the extra vision")
imagehash = pytest.importorskip("imagehash", reason="needs the extra check")


def checked(folder, **options):
    report = check(Spec(source=str(folder / "source"), target=str(folder / "target"), **options), cost=False)
    return {finding.topic: finding for finding in report.findings}, report


@pytest.fixture
def folder(tmp_path):
    """Two classes of six pictures, a target of 30 others."""
    for seed in range(12):
        photo(tmp_path / "source" / ("ant" if seed < 6 else "bee") / f"{seed}.jpg", seed)
    for seed in range(30):
        photo(tmp_path / "target" / f"{seed}.jpg", 100 + seed)
    return tmp_path


def test_faults_of_files_are_found(folder):
    source, target = folder / "source", folder / "target"
    shutil.copy(source / "ant/0.jpg", target / "copy.jpg")
    with Image.open(source / "bee/7.jpg") as image:
        image.resize((48, 40)).save(target / "smaller.jpg", quality=60)
    shutil.copy(source / "ant/1.jpg", source / "bee/again.jpg")
    (source / "ant/2.jpg").write_bytes((source / "ant/2.jpg").read_bytes()[:300])
    (target / "notes.txt").write_text("x")
    (source / "cow").mkdir()
    photo(target / "long.jpg", 500, (500, 90))
    found, report = checked(folder)
    assert set(found["duplicates across"].items) == {"ant/0.jpg = copy.jpg", "bee/7.jpg = smaller.jpg"}
    assert found["duplicates of two classes"].items == ("ant/1.jpg = bee/again.jpg",)
    assert found["unreadable in source"].count == 1 and "ant/2.jpg" in found["unreadable in source"].items[0]
    assert found["empty classes"].items == ("cow",)
    assert found["left out of target"].items == ("notes.txt (not an image file (.txt))",)
    assert found["long images in target"].items == ("long.jpg (500×90)",)
    assert found["small images in target"].items == ("smaller.jpg (48×40)",)
    assert report.facts["source"]["classes"] == {"ant": 5, "bee": 7} and report.facts["target"]["images"] == 33


@pytest.fixture
def quick(monkeypatch):
    """No network is asked; what an image looks like is chance."""

    def embed(images, backbone, **options):
        rows = np.random.default_rng(len(images)).standard_normal((len(images), 8)).astype(np.float32)
        return Embedding(FeatureSet(rows), [])

    monkeypatch.setattr("ba3us.check.images.embed", embed)


def test_sound_files_give_no_finding_of_files(folder, quick):
    found, report = checked(folder)
    assert not [
        t for t in found if "duplicates" in t or "unreadable" in t or "images in" in t or "folders" in t
    ]
    assert report.facts["source"]["median"] == [96, 80] and report.facts["source"]["modes"] == {"RGB": 12}


def test_one_class_stops_before_anything_is_embedded(folder, monkeypatch):
    shutil.rmtree(folder / "source" / "bee")
    monkeypatch.setattr("ba3us.check.images.embed", None)
    found, report = checked(folder)
    assert found["one class"].level == "stop" and report.passed_over


def test_without_the_package_only_equal_images_are_found(folder, monkeypatch, quick):
    monkeypatch.setattr(pictures, "perceptual", lambda: None)
    shutil.copy(folder / "source/ant/0.jpg", folder / "target/copy.jpg")
    with Image.open(folder / "source/bee/7.jpg") as image:
        image.save(folder / "target/encoded.jpg", quality=60)
    found, report = checked(folder)
    assert found["duplicates across"].items == ("ant/0.jpg = copy.jpg",)
    assert "ba3us[check]" in report.passed_over[0]


@pytest.mark.parametrize("how", [{"quality": 40}, {"size": (60, 50)}, {"size": (300, 250)}])
def test_pictures_encoded_or_sized_otherwise_are_near(tmp_path, how):
    for seed in range(20):
        photo(tmp_path / f"{seed}.jpg", seed)
        photo(tmp_path / f"{seed}_again.jpg", seed, **how)
    opened = open_images(read_images(tmp_path), 256)
    domains = SimpleNamespace(readable={"source": opened}, workers=1, show=False)
    _, bits = ImageDomains.fingerprints(domains)
    assert bits is not None and bits.shape == (40, 256)
    differ = (bits[:, None] != bits[None]).sum(axis=2)
    seeds = np.array([int(path.split(".")[0].split("_")[0]) for path in opened.images.paths])
    same = seeds[:, None] == seeds
    assert differ[same].max() <= 30 < differ[~same].min()


def test_grey_and_colour():
    colour, grey = pictures.Header("a", 90, 90, "RGB"), pictures.Header("b", 90, 90, "I;16")
    for target, expected in (([grey] * 4, ["grey and colour"]), ([colour, colour, colour, grey], [])):
        domains = SimpleNamespace(headers={"source": [colour] * 4, "target": target})
        assert [finding.topic for finding in pictures.channels(domains)] == expected


def test_reasons_decide_between_warning_and_note():
    skipped = [Skipped("a.jpg", "damaged (x)"), Skipped("b.txt", "not an image file (.txt)")]
    skipped += [Skipped("c", "a class folder without images")]
    readable = SimpleNamespace(skipped=skipped, images=range(5))
    domains = SimpleNamespace(readable={"source": readable}, headers={"source": []})
    assert [(f.level, f.count) for f in pictures.files(domains)] == [("warning", 1), ("note", 1)]
