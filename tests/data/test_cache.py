"""The decoded-image cache: decoded once, anew when a file changes, within a budget, with what is left out."""

from __future__ import annotations

import os

import numpy as np
import pytest

from ba3us.data import image_cache, store
from ba3us.data.image_cache import decode, map_in_order, open_images
from ba3us.data.images import Skipped, read_images
from ba3us.errors import UserError

Image = pytest.importorskip("PIL.Image", reason="needs the vision extra")
SIDE = 8
ROW = SIDE * SIDE * 3


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BA3US_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "_SHARD_BYTES", 3 * ROW)
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    for name in ("bike", "mug"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(4):
            pixels = random.integers(0, 256, (12, 10, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


@pytest.fixture
def decoded(monkeypatch):
    """Names of the files that are decoded."""
    names = []

    def noted(path, side):
        names.append(f"{path.parent.name}/{path.name}")
        return decode(path, side)

    monkeypatch.setattr(image_cache, "decode", noted)
    return names


def squares(images):
    return np.stack([decode(images.file(row), SIDE) for row in range(len(images))])


def test_decoded_once(folder, decoded, own_cache):
    images = read_images(folder)
    first = open_images(images, SIDE, workers=2)
    assert len(decoded) == 8 and first.skipped == [] and first.pixels.complete
    second = open_images(images, SIDE)
    pixels = second.pixels.read(np.array([5, 0, 7, 5]))
    assert len(decoded) == 8
    np.testing.assert_array_equal(pixels, squares(images)[[5, 0, 7, 5]])
    assert second.images.labels.tolist() == images.labels.tolist()
    assert len(list(own_cache.glob("pixels/*/*.rows"))) == 3 and not list(folder.rglob("*.rows"))
    open_images(images, SIDE + 1)
    assert len(decoded) == 16  # another side is another image


def test_changed_file_is_decoded_anew(folder, decoded):
    images = read_images(folder)
    open_images(images, SIDE)
    decoded.clear()
    path = folder / "mug" / "2.png"
    Image.new("RGB", (5, 5), (9, 8, 7)).save(path)
    os.utime(path, ns=(1, 1))
    again = open_images(images, SIDE)
    assert decoded == ["mug/2.png"]
    assert again.pixels.read(np.array([6]))[0, 0, 0].tolist() == [9, 8, 7]


def test_beyond_the_budget(folder, decoded, own_cache):
    images = read_images(folder)
    opened = open_images(images, SIDE, cache_gb=4.5 * ROW / 1e9)
    assert len(decoded) == 8 and not opened.pixels.complete
    assert sum(p.stat().st_size for p in own_cache.glob("pixels/*/*.rows")) == 4 * ROW
    decoded.clear()
    again = open_images(images, SIDE, cache_gb=4.5 * ROW / 1e9)
    assert decoded == []  # it is remembered that the rest can be read
    rows = np.array([0, 7, 6, 7])
    np.testing.assert_array_equal(again.pixels.read(rows), squares(images)[rows])
    assert sorted(set(decoded)) == ["mug/2.png", "mug/3.png"]
    decoded.clear()
    assert open_images(images, SIDE, cache_gb=1).pixels.complete  # a larger budget takes them up
    assert len(decoded) == 4


def test_no_cache_at_all(folder, own_cache, decoded):
    images = read_images(folder)
    opened = open_images(images, SIDE, cache_gb=0)
    np.testing.assert_array_equal(opened.pixels.read(np.arange(8)), squares(images))
    assert not own_cache.exists() and len(decoded) == 16


def test_without_a_cache_an_older_one_is_left_alone(folder, own_cache, monkeypatch):
    monkeypatch.setattr(store, "_IDLE_SECONDS", -1)
    images = read_images(folder)
    open_images(images, SIDE)
    before = {p: p.stat().st_mtime_ns for p in own_cache.rglob("*")}
    pixels = open_images(images, SIDE, cache_gb=0).pixels
    np.testing.assert_array_equal(pixels.read(np.arange(8)), squares(images))
    assert {p: p.stat().st_mtime_ns for p in own_cache.rglob("*")} == before


def test_many_threads_may_read(folder, monkeypatch):
    monkeypatch.setattr(store, "_OPEN_SHARDS", 1)
    images = read_images(folder)
    whole = squares(images)
    for cache_gb in (0, 4.5 * ROW / 1e9, 1):
        pixels = open_images(images, SIDE, cache_gb=cache_gb, workers=3).pixels
        draws = np.random.default_rng(0).integers(0, 8, (60, 3))
        for drawn, got in zip(draws, map_in_order(pixels.read, draws, 6)):
            np.testing.assert_array_equal(got, whole[drawn])


def test_expected_rows_are_decoded_before_they_are_read(folder, decoded, monkeypatch):
    images = read_images(folder)
    pixels = open_images(images, SIDE, cache_gb=0, workers=1).pixels
    decoded.clear()
    pixels.expect(np.array([1, 2, 1]))
    pixels._pool.shutdown(wait=True)
    assert decoded == ["bike/1.png", "bike/2.png"]
    np.testing.assert_array_equal(pixels.read(np.array([2, 1])), squares(images)[[2, 1]])
    assert len(decoded) == 2 and not pixels._waiting


def test_expecting_is_bounded(folder, monkeypatch):
    monkeypatch.setattr(image_cache, "_MAX_WAITING", 3)
    pixels = open_images(read_images(folder), SIDE, cache_gb=0, workers=1).pixels
    pixels.expect(np.arange(2))
    pixels.expect(np.arange(2, 5))
    assert list(pixels._waiting) == [2, 3, 4]
    pixels.expect(np.arange(8))
    assert len(pixels._waiting) <= 3


def test_what_cannot_be_read_is_left_out(folder):
    (folder / "bike" / "1.png").write_bytes(b"")
    (folder / "mug" / "0.png").write_text("no image")
    (folder / "mug" / "4.png").symlink_to(folder / "gone.png")
    (folder / "mug" / "notes.txt").touch()
    images = read_images(folder)
    for _ in range(2):  # the reasons are there the second time too
        opened = open_images(images, SIDE)
        assert opened.skipped == [
            Skipped("mug/notes.txt", "not an image file (.txt)"),
            Skipped("bike/1.png", "the file is empty"),
            Skipped("mug/0.png", "not an image of a supported format, or a damaged one"),
            Skipped("mug/4.png", "a broken link"),
        ]
        assert len(opened.images) == len(opened.pixels) == 6
        assert opened.images.labels.tolist() == [0, 0, 0, 1, 1, 1]
        np.testing.assert_array_equal(opened.pixels.read(np.arange(6)), squares(opened.images))


def test_nothing_left(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.jpg").touch()
    with pytest.raises(UserError, match=r"None of the 1 images .*'a.jpg': the file is empty"):
        open_images(read_images(tmp_path / "x"), SIDE)


def test_file_that_vanishes_during_a_run(folder):
    pixels = open_images(read_images(folder), SIDE, cache_gb=0).pixels
    (folder / "bike" / "1.png").unlink()
    with pytest.raises(UserError, match=r"1\.png can no longer be read \(the file is missing\)"):
        pixels.read(np.array([1]))


def test_cache_that_vanishes_during_a_run(folder, own_cache):
    images = read_images(folder)
    pixels = open_images(images, SIDE).pixels
    for path in own_cache.glob("pixels/*/*.rows"):
        path.unlink()
    np.testing.assert_array_equal(pixels.read(np.arange(8)), squares(images))


@pytest.mark.parametrize("options", [{"cache_gb": -1}, {"workers": 0}])
def test_impossible_options(folder, options):
    with pytest.raises(UserError, match=f"{next(iter(options))} is"):
        open_images(read_images(folder), SIDE, **options)
