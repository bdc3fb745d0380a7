"""Labels of a target: whatever file they are in, they are matched to the run's classes by name."""

from __future__ import annotations

import numpy as np
import pytest

from ba3us.assess.scoring import read_target_labels
from ba3us.errors import UserError

CLASSES = ["ant", "asp", "bee", "big cat"]  # no row is an asp
NAMES = ["bee", "ant", "bee", "big cat"]
WANTED = [2, 0, 2, 3]
PATHS = ["new/a b.jpg", "new/b.jpg", "new/c.jpg", "new/d.jpg"]


def read(path, paths=PATHS, classes=CLASSES, rows=4):
    return read_target_labels(path, classes, rows, paths).tolist()


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_an_array_of_names_is_in_the_order_of_the_rows(tmp_path):
    for kind in ("U", "S"):
        np.save(tmp_path / "y.npy", np.array(NAMES, dtype=kind))
        assert read(tmp_path / "y.npy") == WANTED


def test_numbers_are_names_of_the_file_not_places_in_the_run(tmp_path):
    names = np.array(["big cat", "bee", "ant"])  # another order than the run's
    labels = np.array([names.tolist().index(name) for name in NAMES])
    np.savez(tmp_path / "y.npz", labels=labels, class_names=names)
    assert read(tmp_path / "y.npz") == WANTED
    np.savez(tmp_path / "y.npz", labels=labels, class_names=names, features=np.zeros((4, 2)), paths=PATHS[::-1])
    assert read(tmp_path / "y.npz") == WANTED[::-1]  # matched by path


def test_whole_numbers_match_however_they_are_stored(tmp_path):
    np.save(tmp_path / "y.npy", np.array([7.0, 5.0, 7.0, 9.0]))
    assert read(tmp_path / "y.npy", classes=[5, 6, 7, 9]) == WANTED
    with pytest.raises(UserError, match="label '7' for row 0"):
        read(tmp_path / "y.npy")


@pytest.mark.parametrize("column", ["class", "Label"])
def test_a_table_is_matched_by_path_by_row_or_by_order(tmp_path, column):
    pairs = list(zip(PATHS, NAMES))
    rows = [f"{path},{name}" for path, name in pairs[::-1]] + ["elsewhere.jpg,whatever"]
    assert read(write(tmp_path / "a.csv", "\n".join([f"path,{column}", *rows]))) == WANTED
    numbered = [f"{row},{name}" for row, name in enumerate(NAMES)][::-1]
    assert read(write(tmp_path / "b.csv", "\n".join([f"row,{column}", *numbered])), paths=None) == WANTED
    assert read(write(tmp_path / "c.csv", "\n".join([column, *NAMES])), paths=None) == WANTED


def test_lists_have_paths_or_a_name_per_line(tmp_path):
    assert read(write(tmp_path / "a.txt", "\n".join(NAMES))) == WANTED
    lines = [f"{path} {name}" for path, name in zip(PATHS, NAMES)]  # with blanks in both
    assert read(write(tmp_path / "b.txt", "\n".join(lines[::-1]))) == WANTED
    folders = ["bee/1.jpg", "ant/2.jpg", "bee/3.jpg"]
    numbered = write(tmp_path / "c.txt", "\n".join(f"{p} {n}" for p, n in zip(folders, (4, 2, 4))))
    # as in the field's list files: folders name the numbers
    assert read(numbered, paths=folders, rows=3) == [2, 0, 2]


def test_class_folders_are_labels(tmp_path):
    for path in ("ant/2.jpg", "bee/1.jpg", "bee/3.jpg"):
        (tmp_path / "new" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "new" / path).touch()
    assert read(tmp_path / "new", paths=["bee/3.jpg", "ant/2.jpg"], rows=2) == [2, 0]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "class\nbee\nant\n", "2 labels, but the target has 4 samples"),
        ("a.csv", "path,class\nnew/b.jpg,ant\n", "no label for 'new/a b.jpg'"),
        ("a.csv", "path,class\nnew/b.jpg,ant\nnew/b.jpg,bee\n", "the labels 'ant' and 'bee' for 'new/b.jpg'"),
        ("a.csv", "path,kind\nnew/b.jpg,ant\n", "call that with the labels"),
        ("a.csv", "", "can't be read"),
        ("a.txt", "bee\nant\nbee\nbigcat\n", "did you mean 'big cat'"),
        ("a.txt", "new/b.jpg 99999999999999999999", "number the classes"),
        ("a.npy", "nothing", "can't be read"),
        ("a.npz", "nothing", "can't be read"),
    ],
)
def test_what_does_not_match_is_a_sentence(tmp_path, name, text, words):
    with pytest.raises(UserError, match=words):
        read(write(tmp_path / name, text))


def test_other_arrays_are_a_sentence(tmp_path):
    np.savez(tmp_path / "y.npz", features=np.zeros((4, 2)))
    with pytest.raises(UserError, match="no array 'labels'"):
        read(tmp_path / "y.npz")
    with pytest.raises(UserError, match="no file"):
        read(tmp_path / "gone.npy")


def test_a_file_that_is_there_twice_has_one_label(tmp_path):
    write(tmp_path / "a.csv", "path,class\nb.jpg,bee\na.jpg,ant\na.jpg,ant\n")
    found = read_target_labels(tmp_path / "a.csv", ["ant", "bee"], 3, ["a.jpg", "a.jpg", "b.jpg"])
    assert found.tolist() == [0, 0, 1]
