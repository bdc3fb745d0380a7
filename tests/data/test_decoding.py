"""Decoding: every odd kind of image is handled or refused with a reason."""

from __future__ import annotations

import os
import time
from contextlib import suppress

import numpy as np
import pytest

from ba3us.data.image_cache import UnreadableError, decode, map_in_order

Image = pytest.importorskip("PIL.Image", reason="needs the vision extra")


@pytest.fixture
def picture():
    """Left half red, right half blue, 60 × 40."""
    pixels = np.zeros((40, 60, 3), dtype=np.uint8)
    pixels[:, :30, 0] = 255
    pixels[:, 30:, 2] = 255
    return Image.fromarray(pixels)


def corners(square):
    """Colours near the top-left and the bottom-right corner."""
    side = len(square)
    return square[side // 8, side // 8].tolist(), square[-side // 8, -side // 8].tolist()


@pytest.mark.parametrize(
    ("name", "mode", "options"),
    [
        ("a.jpg", "RGB", {"quality": 95}),
        ("a.jpg", "CMYK", {"quality": 95}),
        ("a.png", "P", {}),
        ("a.png", "RGBA", {}),
        ("a.gif", "P", {}),
        ("a.webp", "RGB", {"lossless": True}),
        ("a.tif", "CMYK", {}),
        ("a.bmp", "RGB", {}),
    ],
)
def test_modes_and_formats(tmp_path, picture, name, mode, options):
    picture.convert(mode).save(tmp_path / name, **options)
    square = decode(tmp_path / name, 32)
    assert square.shape == (32, 32, 3) and square.dtype == np.uint8
    left, right = corners(square)
    np.testing.assert_allclose(left, [255, 0, 0], atol=12)
    np.testing.assert_allclose(right, [0, 0, 255], atol=12)


def test_resize_is_pillows_and_ignores_aspect(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (70, 50, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.png")
    expected = np.asarray(Image.fromarray(noise).resize((32, 32), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(decode(tmp_path / "a.png", 32), expected)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path, picture, orientation):
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    picture.save(tmp_path / "a.png", exif=exif)
    upright = ImageOps.exif_transpose(Image.open(tmp_path / "a.png")).resize(
        (16, 16), Image.Resampling.BILINEAR
    )
    np.testing.assert_array_equal(decode(tmp_path / "a.png", 16), np.asarray(upright))


@pytest.mark.parametrize(
    ("values", "grey"),
    [
        (np.full((8, 8), 40000, dtype=np.uint16), 156),
        (np.full((8, 8), 200, dtype=np.uint16), 1),
        (np.full((8, 8), 40000, dtype=np.int32), 156),
        (np.full((8, 8), 200, dtype=np.int32), 200),
        (np.full((8, 8), 0.5, dtype=np.float32), 128),
        (np.full((8, 8), 200.0, dtype=np.float32), 200),
    ],
)
def test_deep_grey_images(tmp_path, values, grey):
    Image.fromarray(values).save(tmp_path / "a.tif")
    assert np.unique(decode(tmp_path / "a.tif", 8)).tolist() == [grey]


def test_sixteen_bit_png(tmp_path):
    Image.fromarray(np.full((8, 8), 65535, dtype=np.uint16)).save(tmp_path / "a.png")
    assert decode(tmp_path / "a.png", 8).min() == 255


def test_transparency_is_laid_on_white(tmp_path):
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(tmp_path / "a.png")
    assert decode(tmp_path / "a.png", 8).min() == 255


def test_first_frame_of_an_animation(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    np.testing.assert_allclose(decode(tmp_path / "a.gif", 8)[0, 0], [255, 0, 0], atol=2)


def test_large_jpegs_are_shrunk_while_decoding(tmp_path):
    y, x = np.mgrid[0:1600, 0:1600] / 1600
    smooth = np.stack([x, y, (x + y) / 2], axis=2)
    Image.fromarray((255 * smooth).astype(np.uint8)).save(tmp_path / "a.jpg", quality=95)
    with Image.open(tmp_path / "a.jpg") as whole:
        expected = np.asarray(whole.resize((64, 64), Image.Resampling.BILINEAR)).astype(int)
    assert np.abs(decode(tmp_path / "a.jpg", 64) - expected).max() <= 3


def refused(path):
    with pytest.raises(UnreadableError) as caught:
        decode(path, 16)
    return str(caught.value)


def test_what_is_refused(tmp_path, picture, monkeypatch):
    picture.save(tmp_path / "whole.jpg")
    bytes_ = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "half.jpg").write_bytes(bytes_[:-20])
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    assert "truncated" in refused(tmp_path / "half.jpg")
    assert refused(tmp_path / "empty.jpg") == "the file is empty"
    assert refused(tmp_path / "text.jpg") == "not an image of a supported format, or a damaged one"
    assert refused(tmp_path / "gone.jpg") == "a broken link"
    assert refused(tmp_path / "never.jpg") == "the file is missing"
    assert refused(tmp_path / "folder.jpg") == "not a regular file"
    assert refused(tmp_path / "pipe.jpg") == "not a regular file"
    assert "can't be read" in refused(tmp_path / "a\0b.jpg")
    monkeypatch.setattr("ba3us.data.image_cache.MAX_PIXELS", 1000)
    assert refused(tmp_path / "whole.jpg") == "60×40 pixels are too many: shrink the image"


def test_decompression_bomb(tmp_path):
    Image.new("1", (15000, 15000)).save(tmp_path / "bomb.png")
    assert (tmp_path / "bomb.png").stat().st_size < 100_000
    assert "too many" in refused(tmp_path / "bomb.png")


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_damaged_at_any_byte(tmp_path, picture):
    for kind in ("png", "jpg", "gif", "tif", "webp"):
        path = tmp_path / f"a.{kind}"
        picture.save(path)
        good = path.read_bytes()
        random = np.random.default_rng(0)
        for _ in range(30):
            bad = bytearray(good)
            bad[random.integers(len(bad))] = random.integers(256)
            path.write_bytes(bytes(bad[: random.integers(1, len(bad) + 1)]))
            with suppress(UnreadableError):  # any other error fails
                assert decode(path, 16).shape == (16, 16, 3)


def test_map_in_order_keeps_the_order_and_looks_little_ahead():
    started = []

    def slow(item):
        started.append(item)
        time.sleep(0.001 * (item % 3))
        return item * item

    results = map_in_order(slow, iter(range(50)), workers=3)
    assert next(results) == 0
    assert len(started) <= 7
    assert list(results) == [i * i for i in range(1, 50)]


def test_map_in_order_passes_errors_on():
    def fail(item):
        raise RuntimeError(f"item {item}")

    with pytest.raises(RuntimeError, match="item 0"):
        list(map_in_order(fail, range(10), workers=2))
