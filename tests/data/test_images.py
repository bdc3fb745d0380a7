"""Listing images: folders, list files, and what is left out with its reason."""

from __future__ import annotations

import os

import numpy as np
import pytest

from ba3us.data.images import Skipped, read_class_names, read_images
from ba3us.errors import UserError


def make(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_class_folders(tmp_path):
    make(tmp_path, "mug/b.jpg", "mug/deep/a.PNG", "Mug/a.jpg", "bike/x.jpeg")
    (tmp_path / "bike" / "noext").write_bytes(b"\xff\xd8\xff\xe0")
    images = read_images(tmp_path)
    assert images.class_names == ["Mug", "bike", "mug"]
    assert images.paths == ["Mug/a.jpg", "bike/noext", "bike/x.jpeg", "mug/b.jpg", "mug/deep/a.PNG"]
    assert images.labels.tolist() == [0, 1, 1, 2, 2] and images.labels.dtype == np.int64
    assert images.file(3) == tmp_path / "mug" / "b.jpg"
    assert images.skipped == [] and len(images) == 5


def test_flat_folder_is_unlabelled(tmp_path):
    make(tmp_path, "b.jpg", "a.jpg")
    images = read_images(tmp_path)
    assert images.paths == ["a.jpg", "b.jpg"] and images.labels is None and images.class_names is None
    with pytest.raises(UserError, match="one subfolder per class"):
        read_images(tmp_path, labelled=True)


def test_nested_folder_without_labels(tmp_path):
    make(tmp_path, "x/a.jpg", "y/b.jpg", "c.jpg")
    images = read_images(tmp_path, labelled=False)
    assert images.paths == ["c.jpg", "x/a.jpg", "y/b.jpg"] and images.labels is None


def test_what_is_left_out_is_listed(tmp_path):
    make(tmp_path, "mug/a.jpg", "mug/notes.txt", "stray.jpg", "mug/.DS_Store", ".cache/x.jpg", "mug/Thumbs.db")
    (tmp_path / "empty").mkdir()
    (tmp_path / "mug" / "again").symlink_to(tmp_path)
    images = read_images(tmp_path)
    assert images.paths == ["mug/a.jpg"] and images.class_names == ["mug"]
    assert sorted(images.skipped, key=lambda s: s.path) == [
        Skipped("empty", "a class folder without images"),
        Skipped("mug/again", "a link back to a folder above it"),
        Skipped("mug/notes.txt", "not an image file (.txt)"),
        Skipped("stray.jpg", "lies outside the class folders"),
    ]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"])
def test_the_first_bytes_of_a_file_without_a_suffix_decide(tmp_path, kind):
    image = pytest.importorskip("PIL.Image", reason="needs the vision extra")
    make(tmp_path, "spider/a.jpg", "spider/empty")
    (tmp_path / "spider" / "RENAME2").write_text("mv 198_0001.jpg 198_0002.jpg\n")  # as in Caltech-256
    (tmp_path / "spider" / "gone").symlink_to(tmp_path / "nowhere")
    image.new("RGB", (8, 8)).save(tmp_path / "spider" / "photo", kind)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "spider" / "pipe")
    images = read_images(tmp_path)
    assert images.paths == ["spider/a.jpg", "spider/photo"]
    skipped = {item.path: item.reason for item in images.skipped}
    assert {"spider/RENAME2", "spider/empty", "spider/gone"} <= set(skipped)
    assert skipped["spider/RENAME2"] == "not an image file (no suffix, nor the bytes of one)"


def test_linked_class_folders_are_followed(tmp_path):
    make(tmp_path, "real/a.jpg")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "one").symlink_to(tmp_path / "real")
    (tmp_path / "data" / "two").symlink_to(tmp_path / "real")
    assert read_images(tmp_path / "data").paths == ["one/a.jpg", "two/a.jpg"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every folder")
def test_unreadable_folder_is_listed(tmp_path):
    make(tmp_path, "mug/a.jpg", "locked/b.jpg")
    (tmp_path / "locked").chmod(0)
    try:
        images = read_images(tmp_path)
    finally:
        (tmp_path / "locked").chmod(0o755)
    assert images.paths == ["mug/a.jpg"] and "can't be read" in images.skipped[0].reason


def test_unreadable_folder_is_listed_whoever_runs_it(tmp_path, monkeypatch):
    make(tmp_path, "mug/a.jpg", "locked/b.jpg")
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    images = read_images(tmp_path)
    assert Skipped("locked", "the folder can't be read (Permission denied)") in images.skipped
    assert images.paths == ["mug/a.jpg"]


def test_nothing_there(tmp_path):
    with pytest.raises(UserError, match="no folder or list file"):
        read_images(tmp_path / "none")
    with pytest.raises(UserError, match="No image is in"):
        read_images(tmp_path)
    make(tmp_path, "a.txt")
    with pytest.raises(UserError, match=r"first of 1 skipped.*a\.txt.*not an image file"):
        read_images(tmp_path)
    with pytest.raises(UserError, match="`root` is for list files"):
        read_images(tmp_path, root=tmp_path)


def test_a_list_of_names_too_long_for_any_file_is_a_sentence(tmp_path):
    (tmp_path / "list.txt").write_text(300 * "x" + "\n")
    with pytest.raises(UserError, match="None of the 1 images"):
        read_images(tmp_path / "list.txt")


def test_list_file(tmp_path):
    make(tmp_path, "mug/with blank.jpg", "bike/b.jpg", "bike/c.jpg")
    path = tmp_path / "lists" / "all.txt"
    path.parent.mkdir()
    path.write_text("mug/with blank.jpg 3\n\nbike/b.jpg\t1\r\nbike/c.jpg 1\n")
    images = read_images(path, root=tmp_path)
    assert images.paths == ["mug/with blank.jpg", "bike/b.jpg", "bike/c.jpg"]
    assert images.labels.tolist() == [3, 1, 1]
    assert images.class_names == ["0", "bike", "2", "mug"]
    assert read_images(path, root=tmp_path, class_names=list("abcd")).class_names == list("abcd")
    with pytest.raises(UserError, match="labels up to 3 but 2 class names"):
        read_images(path, root=tmp_path, class_names=["a", "b"])
    assert read_images(path, root=tmp_path, labelled=False).labels is None
    with pytest.raises(UserError, match=r"None of the 3 images .*.root."):
        read_images(path)
    with pytest.raises(UserError, match="is not a folder"):
        read_images(path, root=tmp_path / "none")


def test_list_file_beside_its_images_without_folders_names(tmp_path):
    make(tmp_path, "a.jpg", "b.jpg")
    path = tmp_path / "list.txt"
    path.write_text("a.jpg 0\nb.jpg 1\n")
    assert read_images(path).class_names == ["0", "1"]
    path.write_text("a.jpg\nb.jpg\n")
    assert read_images(path).labels is None
    with pytest.raises(UserError, match="no label in row 1"):
        read_images(path, labelled=True)
    path.write_text("a.jpg 0\nb.jpg\n")
    with pytest.raises(UserError, match=r"no label in row 2 \('b.jpg'\)"):
        read_images(path)
    path.write_text("a.jpg -1\n")
    with pytest.raises(UserError, match="has the line 'a"):
        read_images(path)
    path.write_text("a.jpg 0\nb.jpg 123456789012345678901234567890\n")
    with pytest.raises(UserError, match=r"the label 1234567.* in row 2"):
        read_images(path)
    path.write_bytes(b"\x00\x01\x02")
    with pytest.raises(UserError, match="not a text file"):
        read_images(path)


def test_one_folder_for_two_labels_gives_no_names(tmp_path):
    make(tmp_path, "x/a.jpg", "x/b.jpg")
    path = tmp_path / "list.txt"
    path.write_text("x/a.jpg 0\nx/b.jpg 1\n")
    assert read_images(path).class_names == ["0", "1"]


def test_class_names_file(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("back pack\nbike\n")
    assert read_class_names(path) == ["back pack", "bike"]
    path.write_text("\n")
    with pytest.raises(UserError, match="no class names"):
        read_class_names(path)
    with pytest.raises(UserError, match="can't be read"):
        read_class_names(tmp_path / "none.txt")


def test_the_shared_lists(photos):
    images = read_images(photos / "lists" / "caltech107.txt", root=photos)
    names = read_class_names(photos / "lists" / "caltech107_classes.txt")
    assert len(images) == 4033 and images.class_names == names and len(names) == 107


@pytest.mark.parametrize("labelled", [None, False, True])
def test_an_empty_list_is_a_sentence(tmp_path, labelled):
    (tmp_path / "list.txt").write_text("\n \n")
    with pytest.raises(UserError, match="No image is in"):
        read_images(tmp_path / "list.txt", labelled=labelled, class_names=["ant"])


@pytest.mark.parametrize("line", ["a.png,2", '"a.png" 2', "a.png mug", "a.png -2"])
def test_a_list_in_another_form_says_so(tmp_path, line):
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "list.txt").write_text(line + "\n")
    with pytest.raises(UserError, match="write the path as it is, then a blank"):
        read_images(tmp_path / "list.txt")
