"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os

import pytest

from ba3us.data.writing import check_new_file, check_new_folder, new_file, new_files, new_folder
from ba3us.errors import UserError


def ours(path):
    return (path / "mark").exists()


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
        if str(a).endswith(".part"):
            raise OSError(28, "No space left on device")
        rename(a, b)

    monkeypatch.setattr("ba3us.data.writing.os.rename", failing)
    with pytest.raises(UserError, match=r"can't be written \(No space left on device\)"):
        write_folder(tmp_path / "run")
    assert (tmp_path / "run" / "mark").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_disk_that_refuses_is_a_sentence(tmp_path):
    with pytest.raises(UserError, match=r"a\.csv can't be written \(No space left on device\): choose another"):
        write_file(tmp_path / "a.csv", OSError(28, "No space left on device"))


def test_what_may_be_overwritten(tmp_path):
    check_new_folder(tmp_path / "new" / "er", False, ours)
    (tmp_path / "empty").mkdir()
    check_new_folder(tmp_path / "empty", False, ours)
    run = tmp_path / "run"
    run.mkdir()
    (run / "mark").write_text("")
    check_new_folder(run, True, ours)
    with pytest.raises(
        UserError, match=r"There is a run in .*run already: choose another --out, or add --over"
    ):
        check_new_folder(run, False, ours)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(UserError, match="mine holds other files"):
        check_new_folder(tmp_path / "mine", True, ours)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file is a file"):
        check_new_folder(tmp_path / "file", True, ours)
    with pytest.raises(UserError, match="which is a file"):
        check_new_folder(tmp_path / "file" / "run", False, ours)
    with pytest.raises(UserError, match="which is a file"):
        check_new_file(tmp_path / "file" / "a.csv")
    with pytest.raises(UserError, match="is a folder: give a file name"):
        check_new_file(tmp_path)
    assert list((tmp_path / "new").parent.glob("new")) == []  # checking makes nothing
