"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ba3us.data.writing import (
    UnwrittenError,
    check_new_file,
    check_new_folder,
    new_file,
    new_files,
    new_folder,
    only_writer,
)
from ba3us.errors import UserError


def foreign(path):
    """Of a folder with a mark everything is ours but theses."""
    if not (path / "mark").exists():
        return min(path.iterdir())
    return next(path.glob("*.tex"), None)


def write_file(path, error=None):
    with new_file(path) as part:
        part.write_text("new")
        if error:
            raise error


def write_folder(path, error=None):
    with new_folder(path) as folder:
        (folder / "mark").write_text("new")
        if error:
            raise error


def write_files(path, error=None):
    with new_files(path) as part:
        part.write_text("new")
        part.with_name("beside").write_text("new")
        if error:
            raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_nothing_is_left_when_the_block_fails(tmp_path, error):
    for write in (write_file, write_files, write_folder):
        with pytest.raises(error):
            write(tmp_path / "made", error)
    assert list(tmp_path.iterdir()) == []


def test_files_that_belong_together_come_one_after_the_other(tmp_path, monkeypatch):
    moved, real = [], os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: (moved.append(new.name), real(old, new)))
    for _ in range(2):
        write_files(tmp_path / "deep" / "a.onnx")
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["a.onnx", "beside"]
    assert moved == ["beside", "a.onnx"] * 2


def test_what_was_there_stays_when_the_block_fails(tmp_path):
    (tmp_path / "a.csv").write_text("old")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mark").write_text("old")
    with pytest.raises(RuntimeError):
        write_file(tmp_path / "a.csv", RuntimeError)
    with pytest.raises(RuntimeError):
        write_folder(tmp_path / "run", RuntimeError)
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "run" / "mark").read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "run"]


def test_the_new_takes_the_place_of_the_old_as_a_whole(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "stale").write_text("old")
    with new_folder(tmp_path / "run") as folder:
        (folder / "mark").write_text("new")
        assert (tmp_path / "run" / "stale").exists()
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["mark"]
    with new_file(tmp_path / "deep" / "er" / "a.csv") as part:
        part.write_text("new")
    assert (tmp_path / "deep" / "er" / "a.csv").read_text() == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deep", "run"]


def test_an_old_folder_comes_back_when_the_new_one_can_not_take_its_place(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mark").write_text("old")
    rename = os.rename

    def failing(a, b):
        if a.parent.suffix == ".part" and a.name == "run":
            raise OSError(28, "No space left on device")
        rename(a, b)

    monkeypatch.setattr("ba3us.data.writing.os.rename", failing)
    with pytest.raises(UserError, match=r"can't be written \(No space left on device\), what was there stays"):
        write_folder(tmp_path / "run")
    assert (tmp_path / "run" / "mark").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_folder_is_replaced_again(tmp_path):
    for _ in range(2):
        write_folder(tmp_path / "run")
    assert (tmp_path / "run" / "mark").read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_disk_that_refuses_is_a_sentence(tmp_path):
    full = OSError(28, "No space left on device")
    with pytest.raises(
        UnwrittenError, match=r"a\.csv can't be written \(No space .*\), nothing was written: make"
    ):
        write_file(tmp_path / "a.csv", full)
    (tmp_path / "a.csv").write_text("old")
    with pytest.raises(UnwrittenError, match=r"a\.csv can't be written \(No space .*\), what was there stays"):
        write_file(tmp_path / "a.csv", full)


WRITE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from ba3us.data import writing
def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
path, moment = Path(sys.argv[1]), sys.argv[2]
with writing.new_folder(path) as folder:
    (folder / "mark").write_text("new")
    if moment == "writing":
        die()
    if moment == "between":
        real = os.rename
        writing.os.rename = lambda a, b: die() if b == path else real(a, b)
    if moment == "after":
        writing.shutil.rmtree = die
"""


@pytest.mark.parametrize(("moment", "found"), [("writing", "old"), ("between", "old"), ("after", "new")])
def test_a_process_killed_while_it_writes_leaves_one_of_both(tmp_path, moment, found):
    run = tmp_path / "run"
    run.mkdir()
    (run / "mark").write_text("old")
    killed = subprocess.run([sys.executable, "-c", WRITE_AND_DIE, run, moment], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert run.exists() == (moment != "between") and len([*tmp_path.glob(".run.*")]) == 2  # and its lock
    with only_writer(run):
        assert (run / "mark").read_text() == found
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_what_others_are_writing_stays(tmp_path):
    with new_file(tmp_path / "a.csv") as mine:
        mine.write_text("mine")
        with new_file(tmp_path / "a.csv") as other:
            other.write_text("other")
        assert (tmp_path / "a.csv").read_text() == "other"
        assert mine.read_text() == "mine"
    assert (tmp_path / "a.csv").read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]


def test_one_process_at_a_time(tmp_path):
    out = tmp_path / "deep" / "run"
    other = r"Another process is writing to .*run: wait until it has ended, or choose another .out"
    with only_writer(out):
        with pytest.raises(UserError, match=other), only_writer(out):
            pass
        with only_writer(tmp_path / "deep" / "other"):
            pass
    with only_writer(out):
        pass
    assert list(tmp_path.iterdir()) == []  # not even the folders that were made for it


def test_what_may_be_overwritten(tmp_path):
    check_new_folder(tmp_path / "new" / "er", False, foreign)
    (tmp_path / "empty").mkdir()
    check_new_folder(tmp_path / "empty", False, foreign)
    run = tmp_path / "run"
    run.mkdir()
    (run / "mark").write_text("")
    check_new_folder(run, True, foreign)
    with pytest.raises(UserError, match=r"There is a run in .*run already: choose another .out., or add .over"):
        check_new_folder(run, False, foreign)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(UserError, match=r"mine holds other files, such as thesis\.tex: choose another"):
        check_new_folder(tmp_path / "mine", True, foreign)
    (run / "thesis.tex").write_text("")
    with pytest.raises(UserError, match=r"run holds other files, such as thesis\.tex"):
        check_new_folder(run, True, foreign)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file is a file"):
        check_new_folder(tmp_path / "file", True, foreign)
    with pytest.raises(UserError, match="which is a file"):
        check_new_folder(tmp_path / "file" / "run", False, foreign)
    with pytest.raises(UserError, match="which is a file"):
        check_new_file(tmp_path / "file" / "a.csv")
    with pytest.raises(UserError, match="is a folder: give a file name"):
        check_new_file(tmp_path)
    assert list((tmp_path / "new").parent.glob("new")) == []  # checking makes nothing


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "real" / "file.csv")
    with new_file(tmp_path / "link.csv") as part:
        part.write_text("new")
    assert (tmp_path / "link.csv").is_symlink() and (tmp_path / "real" / "file.csv").read_text() == "new"


@pytest.mark.parametrize("there", [True, False])
def test_a_link_to_a_folder_stays_and_the_folder_is_written(tmp_path, there):
    real, link = tmp_path / "real", tmp_path / "link"
    if there:
        write_folder(real)
        (real / "stale").touch()
    link.symlink_to(real)
    check_new_folder(link, True, foreign)
    with only_writer(link):
        with pytest.raises(UserError, match="Another process"), only_writer(real):
            pass
        write_folder(link)
    assert link.is_symlink() and [path.name for path in real.iterdir()] == ["mark"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="this system has no /dev/null")
def test_a_device_is_no_file():
    with pytest.raises(UserError, match="is a device, not a file"):
        check_new_file(Path("/dev/null"))


def test_the_folder_one_is_in_is_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for out in (".", "..", "/"):
        with pytest.raises(UserError, match=r"the folder you are in|holds other files"):
            check_new_folder(Path(out), True, foreign)
