"""Disks that are full, only to be read, or gone: the old stays or the new is whole; a sentence says which."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from arrays_toys import NAMES, clouds
from ba3us.bench.database import Database
from ba3us.cli import app
from ba3us.data.files import FeatureSet, write_features
from ba3us.data.image_cache import open_images
from ba3us.data.images import read_images
from ba3us.data.store import Store
from ba3us.data.writing import UnwrittenError, new_file, only_writer
from ba3us.errors import UserError
from ba3us.run.run import Run
from ba3us.training import checkpoints

X, Y, XT, _ = clouds()
SMALL = ["--method", "source-only", "--steps", "20", "--threads", "1", "--set", "bottleneck=8"]
HALF = 600_000  # bytes: once it fits on the disk, twice it does not


class Disk:
    """A disk of one megabyte that can be filled up and made read-only."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, leave: int = 0) -> None:
        free = shutil.disk_usage(self.path).free - leave
        (self.path / "filler").write_bytes(bytes(max(0, free)))

    def read_only(self) -> None:
        subprocess.run(["mount", "-o", "remount,ro", self.path], check=True)


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path]
    try:
        made = subprocess.run(mount, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"there is no mount here ({error})")
    if made.returncode:
        pytest.skip(f"a small disk can't be mounted here ({made.stderr.strip()})")
    yield Disk(path)
    subprocess.run(["umount", "-l", path], check=True)


@pytest.fixture
def data(tmp_path):
    np.savez(tmp_path / "s.npz", features=X, labels=np.searchsorted(NAMES, Y), class_names=NAMES)
    np.savez(tmp_path / "t.npz", features=XT)
    return [str(tmp_path / "s.npz"), str(tmp_path / "t.npz")]


def refused(*arguments: str) -> str:
    """What a command says that must fail with a sentence."""
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert isinstance(done.exception, UserError), done.output  # one sentence and exit code 2: tests/cli
    return str(done.exception)


def test_a_checkpoint_on_a_full_disk(disk):
    path = disk.path / "state.ckpt"
    checkpoints.save(path, {"x": torch.arange(HALF // 8)})
    with pytest.raises(
        UnwrittenError, match=r"\(No space left on device\), what was there stays as it was: make"
    ):
        checkpoints.save(path, {"x": torch.zeros(HALF // 8, dtype=torch.int64)})
    assert torch.equal(checkpoints.load(path)["x"], torch.arange(HALF // 8))
    assert [p.name for p in disk.path.iterdir()] == ["state.ckpt"]


def test_files_on_a_full_disk(disk):
    path = disk.path / "made.npz"
    path.write_bytes(b"old")
    disk.fill(leave=8192)
    large = FeatureSet(np.zeros((1000, 20), np.float32))
    with pytest.raises(UnwrittenError, match="No space left on device"):
        write_features(path, large)
    assert path.read_bytes() == b"old"
    assert sorted(p.name for p in disk.path.iterdir()) == ["filler", "made.npz"]


def test_a_run_on_a_full_disk_goes_on_when_there_is_room(disk, data, tmp_path):
    out = disk.path / "run"
    disk.fill(leave=24_576)
    said = refused("adapt", *data, "--out", out, *SMALL)
    assert "can't be written (No space left on device)" in said
    assert sorted(p.name for p in disk.path.iterdir() if p.name.startswith(".")) == []
    (disk.path / "filler").unlink()
    again = ["--resume"] if out.exists() else []
    assert CliRunner().invoke(app, ["adapt", *data, "--out", str(out), *SMALL, *again]).exit_code == 0
    assert CliRunner().invoke(app, ["adapt", *data, "--out", str(tmp_path / "whole"), *SMALL]).exit_code == 0
    assert Run.load(out).model.digest == Run.load(tmp_path / "whole").model.digest


def test_a_disk_that_may_only_be_read(disk, data, tmp_path):
    out = tmp_path / "run"
    assert CliRunner().invoke(app, ["adapt", *data, "--out", str(out), *SMALL]).exit_code == 0
    shutil.copytree(out, disk.path / "run")
    (disk.path / "old.csv").write_text("old")
    disk.read_only()
    commands = [
        ("adapt", *data, "--out", disk.path / "new", *SMALL),
        ("adapt", *data, "--out", disk.path / "run", "--overwrite", *SMALL),
        ("predict", out, data[1], "--out", disk.path / "old.csv"),
        ("report", out, "--out", disk.path / "page.html"),
    ]
    for command in commands:
        said = refused(*command)
        assert "can't be written" in said and str(disk.path) in said
    assert (disk.path / "old.csv").read_text() == "old"
    assert Run.load(disk.path / "run").model.digest == Run.load(out).model.digest  # reading needs no writing


def overfill(path: Path) -> None:
    rows = [(str(i), "x" * 5000) for i in range(50)]
    with Database(path) as database, database._writing() as connection:
        connection.executemany("INSERT INTO kept (key, spec) VALUES (?, ?)", rows)


def test_a_database_on_a_full_and_on_a_read_only_disk(disk):
    path = disk.path / "runs.sqlite"
    Database(path).close()
    disk.fill()
    with pytest.raises(UnwrittenError, match=r"runs\.sqlite can't be used \(.*\), what it held stays: fix"):
        overfill(path)
    (disk.path / "filler").unlink()
    with Database(path) as database:
        assert database.outcomes() == {} and database.specs() == {}
    disk.read_only()
    with pytest.raises(UnwrittenError, match="can't be used"):
        Database(path)


def test_a_database_that_vanishes_is_a_sentence(tmp_path):
    folder = tmp_path / "runs"
    with Database(folder / "b.sqlite") as database:
        shutil.rmtree(folder)
        with pytest.raises(UnwrittenError, match=r"b\.sqlite can't be used \(the file has vanished\)"):
            database.forget_failed(["a"])


def write_into_nothing(folder: Path) -> None:
    with new_file(folder / "a.csv") as part:
        part.write_text("new")
        shutil.rmtree(folder)


def test_a_folder_that_vanishes_while_a_file_is_written(tmp_path):
    with pytest.raises(UnwrittenError, match=r"\(No such file or directory\), nothing was written"):
        write_into_nothing(tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("state", ["full", "read-only"])
def test_a_cache_that_can_not_be_written_is_done_without(disk, tmp_path, monkeypatch, state):
    pillow = pytest.importorskip("PIL.Image")
    for name in ("a.png", "b.png"):
        (tmp_path / "photos").mkdir(exist_ok=True)
        pillow.fromarray(np.full((9, 9, 3), 80, np.uint8)).save(tmp_path / "photos" / name)
    monkeypatch.setenv("BA3US_CACHE", str(disk.path / "cache"))
    Store(disk.path / "cache" / "pixels", (8, 8, 3), np.uint8, 10**9, [])  # the folders are there
    disk.fill() if state == "full" else disk.read_only()
    opened = open_images(read_images(tmp_path / "photos", labelled=False), 8)
    assert opened.pixels.read(np.array([0, 1])).mean() == 80 and not opened.pixels.complete
    assert not list((disk.path / "cache").rglob("*.part"))


def test_a_second_process_on_the_same_output_is_told_so(data, tmp_path):
    with only_writer(tmp_path / "run"):
        assert "Another process is writing to" in refused("adapt", *data, "--out", tmp_path / "run", *SMALL)
    assert CliRunner().invoke(app, ["adapt", *data, "--out", str(tmp_path / "run"), *SMALL]).exit_code == 0
