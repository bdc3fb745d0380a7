"""Files made to do harm: none runs code, leads out of its folder, fills the memory, or calls the network."""

from __future__ import annotations

import importlib.util
import io
import os
import pickle
import socket
import subprocess
import time
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from arrays_toys import clouds
from ba3us import PartialAdapter
from ba3us.cli import main
from ba3us.data import files
from ba3us.data.files import read_features, read_labels
from ba3us.data.images import read_images
from ba3us.errors import UserError
from ba3us.run.build import Model
from ba3us.training import checkpoints

X, Y, XT, _ = clouds()


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def bomb(tmp_path):
    """The pickle of a bomb; afterwards it must not have gone off."""
    mark = tmp_path / "gone off"
    yield Bomb(mark)
    assert not mark.exists()


def test_the_bomb_is_a_real_one(tmp_path):
    pickle.loads(pickle.dumps(Bomb(tmp_path / "mark")))
    assert (tmp_path / "mark").exists()


# --- code ---------------------------------------------------------------------------------------------------


def refused(read, path: Path) -> None:
    with pytest.raises(UserError) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_arrays_run_no_code(tmp_path, bomb):
    objects = np.array([bomb, bomb], dtype=object)
    np.save(tmp_path / "x.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "x.npz", features=X, labels=objects)
    np.savez(tmp_path / "names.npz", features=X, labels=np.zeros(80, int), class_names=objects)
    (tmp_path / "bare.npy").write_bytes(pickle.dumps(bomb))
    (tmp_path / "bare.npz").write_bytes(pickle.dumps(bomb))
    for name in ("x.npy", "x.npz", "names.npz", "bare.npy", "bare.npz"):
        refused(read_features, tmp_path / name)
    refused(read_labels, tmp_path / "x.npy")


def test_checkpoints_models_and_weights_run_no_code(tmp_path, bomb):
    from ba3us.nn.backbones import create_backbone

    for name in ("x.ckpt", "x.safetensors", "x.pth"):
        torch.save({"format": "ba3us run 3", "module": bomb}, tmp_path / name)
        (tmp_path / f"bare {name}").write_bytes(pickle.dumps(bomb))
    for prefix in ("", "bare "):
        refused(checkpoints.load, tmp_path / f"{prefix}x.ckpt")
        refused(Model.load, tmp_path / f"{prefix}x.safetensors")
        pytest.importorskip("timm", reason="the extra vision is not installed")
        refused(lambda path: create_backbone("test_resnet", path), tmp_path / f"{prefix}x.pth")


# --- pictures that are programs -----------------------------------------------------------------------------

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\n%%EndComments\n0 0 100 100 rectfill\n%%EOF\n"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Folders of pictures of which one each is an EPS file called x.jpg; no other program may be started."""
    pytest.importorskip("PIL.Image", reason="the extra vision is not installed")
    from PIL import EpsImagePlugin, Image

    def started(*_, **__):
        raise AssertionError("a program was started")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", started)
    monkeypatch.setattr(subprocess, "Popen", started)
    monkeypatch.setenv("BA3US_CACHE", str(tmp_path / "cache"))
    Image.init()  # so that Pillow knows all its formats
    for folder in ("s/a", "s/b", "t"):
        (tmp_path / folder).mkdir(parents=True)
        for number in range(4):
            noise = np.random.default_rng([len(folder), ord(folder[-1]), number]).integers(0, 256, (40, 40, 3))
            Image.fromarray(noise.astype(np.uint8)).save(tmp_path / folder / f"{number}.jpg")
        (tmp_path / folder / "x.jpg").write_bytes(EPS)
    return tmp_path


def test_a_program_called_jpg_is_unreadable(program):
    from ba3us.data.image_cache import UnreadableError, decode, thumbnail

    for read in (decode, thumbnail):
        with pytest.raises(UnreadableError, match="not an image of a supported format"):
            read(program / "t" / "x.jpg", 16)


def test_no_command_starts_a_program_called_jpg(program, monkeypatch, capsys):
    pytest.importorskip("timm", reason="the extra vision is not installed")
    import timm
    from safetensors.torch import save_file

    from ba3us.check.images import headers
    from ba3us.data.image_cache import CachedPixels
    from ba3us.data.store import Store

    save_file(timm.create_model("test_resnet").state_dict(), program / "w.safetensors")
    monkeypatch.chdir(program)
    network = "--backbone test_resnet --weights w.safetensors"
    asked = [
        f"embed t {network} --out t.npz",
        f"check s t {network} --no-cost",
        f"adapt s t {network} --method source-only --steps 2 --out run",
        "predict run t --out out.csv",
        "report run",
    ]
    if _installed("onnx", "onnxscript", "onnxruntime"):
        asked.append("export run --onnx model.onnx")
    for words in asked:
        monkeypatch.setattr("sys.argv", ["ba3us", *words.split(), "--json"])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        shown = capsys.readouterr()
        assert not code, (words, shown.err)
    pixels = CachedPixels(
        read_images(program / "t"), [b""] * 5, 8, Store(program / "c", (8, 8, 3), "u1", 0, []), 1
    )
    assert [header.name for header in headers(pixels, 1)] == ["0.jpg", "1.jpg", "2.jpg", "3.jpg"]


def _installed(*names: str) -> bool:
    return all(importlib.util.find_spec(name) for name in names)


# --- places -------------------------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path):
    for name in ("in/a/0.png", "in/b/1.png", "secret.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return tmp_path / "in"


@pytest.mark.parametrize("name", ["../secret.png", "a/../../secret.png", "{}/secret.png", "../in-beside/x.png"])
def test_a_list_does_not_lead_out_of_its_root(photos, name):
    named = name.format(photos.parent)
    (photos / "list.txt").write_text(f"a/0.png 0\n{named} 1\n")
    for labelled in (None, False):
        with pytest.raises(UserError, match=r"which lies outside .*: give a folder that holds all of them"):
            read_images(photos / "list.txt", labelled=labelled)


def test_absolute_paths_below_the_root_and_links_are_the_users(photos):
    (photos / "b" / "link.png").symlink_to(photos.parent / "secret.png")
    (photos / "list.txt").write_text(f"{photos}/a/0.png 0\nb/../b/link.png 1\n")
    assert len(read_images(photos / "list.txt")) == 2
    (photos / "list.txt").write_text(f"{photos.parent}/secret.png 0\n{photos}/a/0.png 1\n")
    assert len(read_images(photos / "list.txt", root="/")) == 2


def test_links_to_links_do_not_multiply(tmp_path):
    """Each folder holds two links to the next: 2²⁰ ways lead to the last."""
    for depth in range(20):
        (tmp_path / "all" / str(depth)).mkdir(parents=True)
    for depth in range(19):
        for name in ("x", "y"):
            (tmp_path / "all" / str(depth) / name).symlink_to(tmp_path / "all" / str(depth + 1))
    (tmp_path / "all" / "19" / "0.png").write_bytes(b"x")
    start = time.process_time()
    images = read_images(tmp_path / "all" / "0", labelled=False)
    assert 1 <= len(images) <= 100 and time.process_time() - start < 20
    assert any("links lead to it" in skipped.reason for skipped in images.skipped)


def test_deep_folders_end(tmp_path):
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("a", dir_fd=here)
        deeper = os.open("a", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(os.open("0.png", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    assert len(read_images(tmp_path, labelled=False)) == 1


# --- sizes --------------------------------------------------------------------------------------------------


def test_an_archive_that_inflates_beyond_the_memory_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("features.npy", "w") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (5 * 10**5, 5)}
        )
        for _ in range(10):
            file.write(bytes(10**6))
    assert path.stat().st_size < 10**5
    monkeypatch.setattr(files, "total_memory", lambda: 10**6)
    with pytest.raises(
        UserError, match=r"holds 0.0 GB of arrays, but there are 0.0 GB of memory: save .* as .npy"
    ):
        read_features(path)


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_header_that_promises_terabytes_is_refused(tmp_path, suffix):
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (10**12, 5)})
    path = tmp_path / f"x{suffix}"
    if suffix == ".npy":
        path.write_bytes(head.getvalue())
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("features.npy", head.getvalue())
    refused(read_features, path)


def test_a_picture_that_declares_too_many_pixels_is_left_out(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="the extra vision is not installed")
    from ba3us.data.image_cache import UnreadableError, decode

    image.new("RGB", (4, 4)).save(tmp_path / "x.png")
    content = bytearray((tmp_path / "x.png").read_bytes())
    content[16:24] = (60_000).to_bytes(4, "big") * 2
    content[29:33] = zlib.crc32(bytes(content[12:29])).to_bytes(4, "big")
    (tmp_path / "x.png").write_bytes(content)
    with pytest.raises(UnreadableError, match="too many"):
        decode(tmp_path / "x.png", 8)


def test_a_method_that_can_not_fit_says_so(monkeypatch):
    from ba3us.run import build

    monkeypatch.setattr(build, "total_memory", lambda: 10**9)
    y = np.arange(1000)
    x = np.random.default_rng(0).normal(size=(1000, 8))
    with pytest.raises(
        UserError, match=r"'cdan' would need .* GB of memory for 1000 classes, but there are 1.0 GB"
    ):
        PartialAdapter("cdan", method_params={"product": "plain"}, steps=2).fit(x, y, x[:5])


# --- damage, and the network --------------------------------------------------------------------------------


def test_of_80_models_with_random_damage_none_is_served(tmp_path):
    path, g = tmp_path / "m.safetensors", np.random.default_rng(0)
    PartialAdapter("source-only", steps=2, n_threads=1, method_params={"bottleneck": 4}).fit(
        X, Y
    ).run_.model.save(path)
    whole = path.read_bytes()
    for at in g.choice(len(whole), 80, replace=False):
        changed = bytearray(whole)
        changed[at] ^= 1 << int(g.integers(8))
        path.write_bytes(changed)
        refused(Model.load, path)


def test_tensors_of_another_type_are_noticed(tmp_path):
    """The same bytes under another name of their type."""
    path = tmp_path / "m.safetensors"
    PartialAdapter("source-only", steps=2, n_threads=1, method_params={"bottleneck": 4}).fit(
        X, Y
    ).run_.model.save(path)
    whole = path.read_bytes()
    for kind in (b"I32", b"U32"):
        path.write_bytes(whole.replace(b'"F32"', b'"' + kind + b'"', 1))
        refused(Model.load, path)


def test_no_network_unless_asked(tmp_path, monkeypatch, capsys):
    """adapt, predict, report and embed with every way to the network shut."""

    def shut(*_, **__):
        raise AssertionError("reached for the network")

    for name in ("connect", "connect_ex", "sendto", "bind"):
        monkeypatch.setattr(socket.socket, name, shut)
    monkeypatch.setattr(socket, "getaddrinfo", shut)
    monkeypatch.chdir(tmp_path)
    np.savez("s.npz", features=X, labels=Y)
    np.savez("t.npz", features=XT)
    asked = ["adapt s.npz t.npz --steps 2 --out run", "predict run t.npz --out out.csv", "report run"]
    if _pictures(tmp_path / "photos"):
        asked += ["embed photos --out photos.npz"]
    for words in asked:
        monkeypatch.setattr("sys.argv", ["ba3us", *words.split(), "--json"])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        assert not code, (words, capsys.readouterr().err)
    assert (tmp_path / "run" / "report.html").is_file() and (tmp_path / "out.csv").is_file()


def _pictures(folder: Path) -> bool:
    try:
        from PIL import Image
    except ImportError:
        return False
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        Image.new("RGB", (8, 8), (len(name), 9, 9)).save(folder / name / "0.png")
    return True
