"""Feature files: what is written comes back, what is damaged is named."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from ba3us.data.files import (
    FeatureSet,
    Origin,
    check_same_backbone,
    check_writable,
    read_features,
    read_labels,
    write_features,
)
from ba3us.errors import UserError


@pytest.fixture
def content():
    features = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    names = ["mug", "fahrrad ü"]
    return FeatureSet(
        features, np.array([0, 1, 1, 0, 1]), names, [f"a b/{i}.jpg" for i in range(5)], "resnet50", "0123"
    )


def test_round_trip(tmp_path, content):
    write_features(tmp_path / "f.npz", content)
    back = read_features(tmp_path / "f.npz")
    np.testing.assert_array_equal(back.features, content.features)
    np.testing.assert_array_equal(back.labels, content.labels)
    assert (back.class_names, back.paths) == (content.class_names, content.paths)
    assert back.origin == ("resnet50", "0123")
    assert [p.name for p in tmp_path.iterdir()] == ["f.npz"]


def test_features_alone(tmp_path):
    write_features(tmp_path / "f.npz", FeatureSet(np.ones((2, 3))))
    back = read_features(tmp_path / "f.npz")
    assert back.labels is None and back.class_names is None and back.paths is None and back.backbone is None


def test_npy_is_memory_mapped(tmp_path):
    np.save(tmp_path / "f.npy", np.ones((4, 2), dtype=np.float16))
    assert isinstance(read_features(tmp_path / "f.npy").features, np.memmap)


def test_text_labels_stay_as_they_are(tmp_path):
    np.savez(tmp_path / "f.npz", features=np.ones((2, 3)), labels=np.array(["mug", "bike"]))
    assert read_features(tmp_path / "f.npz").labels.tolist() == ["mug", "bike"]


def test_failed_write_leaves_the_old_file(tmp_path, content, monkeypatch):
    write_features(tmp_path / "f.npz", content)
    before = (tmp_path / "f.npz").read_bytes()

    def full(*args, **kwargs):
        args[0].write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(UserError, match="No space left"):
        write_features(tmp_path / "f.npz", content)
    assert (tmp_path / "f.npz").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["f.npz"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.ones((2, 3))}, "no array 'features' .it has: X."),
        ({"features": np.ones(3)}, r"shape \(3,\)"),
        ({"features": np.ones((2, 3)), "labels": np.zeros(3, dtype=int)}, r"2 rows .* labels of shape \(3,\)"),
        ({"features": np.ones((2, 3)), "paths": np.array(["a"])}, "paths of shape"),
        (
            {"features": np.ones((2, 3)), "labels": np.array([0, 2]), "class_names": np.array(["a", "b"])},
            "labels 0 … 2 but 2 class names",
        ),
        (
            {"features": np.ones((1, 3)), "labels": np.array([-1]), "class_names": np.array(["a", "b"])},
            "labels -1",
        ),
    ],
)
def test_wrong_content(tmp_path, arrays, message):
    np.savez(tmp_path / "f.npz", **arrays)
    with pytest.raises(UserError, match=message):
        read_features(tmp_path / "f.npz")


@pytest.mark.parametrize("dtype", [np.float64, np.float16, bool, np.uint8])
def test_labels_stored_otherwise_keep_their_names(tmp_path, dtype):
    labels = np.array([0, 1, 1]).astype(dtype)
    np.savez(
        tmp_path / "f.npz", features=np.ones((3, 2)), labels=labels, class_names=np.array([b"mug", b"bike"])
    )
    found = read_features(tmp_path / "f.npz")
    assert found.labels.dtype.kind in "iu" and found.class_names == ["mug", "bike"]
    assert found.named_labels("f.npz").tolist() == ["mug", "bike", "bike"]


@pytest.mark.parametrize("bad", [0.5, np.nan, np.inf, 1e30])
def test_labels_that_name_no_class(tmp_path, bad):
    np.savez(tmp_path / "f.npz", features=np.ones((2, 2)), labels=[0, bad], class_names=["mug", "bike"])
    with pytest.raises(UserError, match=r"class names but a label .*give the number of a class"):
        read_features(tmp_path / "f.npz")
    np.savez(tmp_path / "f.npz", features=np.ones((2, 2)), labels=[0.0, 2.0], class_names=["mug", "bike"])
    with pytest.raises(UserError, match="labels 0 … 2 but 2 class names"):
        read_features(tmp_path / "f.npz")


def test_named_labels():
    x = np.ones((2, 3))
    assert FeatureSet(x, np.array([3, 1])).named_labels("f").tolist() == [3, 1]
    assert FeatureSet(x, np.array(["a", "b"]), ["c", "d"]).named_labels("f").tolist() == ["a", "b"]
    assert FeatureSet(x, np.array(["ü".encode(), b"b"])).named_labels("f").tolist() == ["ü", "b"]
    for content, message in (
        (FeatureSet(x), "f has no labels"),
        (FeatureSet(x, np.array([b"\xff", b"b"])), "bytes that are not text"),
        (FeatureSet(x, np.array([0, 1]), ["mug", "mug"]), "two classes called 'mug'"),
        (FeatureSet(x, np.array([0, -1]), ["mug", "bike"]), "labels -1 … 0 but 2 class names"),
    ):
        with pytest.raises(UserError, match=message):
            content.named_labels("f")


def test_weights_of_samples_are_no_digest(tmp_path):
    np.savez(tmp_path / "f.npz", features=np.ones((2, 3)), weights=np.array([0.5, 1.0]))
    assert read_features(tmp_path / "f.npz").origin == (None, None)


def test_features_of_other_backbones_or_weights_are_not_mixed():
    ours = Origin("resnet50", "aa")
    for other in (ours, Origin(), Origin("resnet50"), Origin(None, "aa")):
        check_same_backbone(ours, other, "f.npz")
        check_same_backbone(other, ours, "f.npz")
    with pytest.raises(UserError, match=r"f\.npz are of 'vgg16', the source's of 'resnet50' with weights aa"):
        check_same_backbone(ours, Origin("vgg16"), "f.npz")
    with pytest.raises(UserError, match=r"are of 'resnet50' with weights bb, the source's of .* weights aa"):
        check_same_backbone(ours, Origin("resnet50", "bb"), "f.npz")


def test_damaged_files_give_one_sentence(tmp_path, content):
    with pytest.raises(UserError, match="no file"):
        read_features(tmp_path / "none.npz")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(UserError, match=r"neither \.npz nor \.npy"):
        read_features(tmp_path / "a.txt")
    write_features(tmp_path / "f.npz", content)
    np.save(tmp_path / "f.npy", content.features)
    for name in ("f.npz", "f.npy"):
        whole = (tmp_path / name).read_bytes()
        for length in (0, 1, 10, 100, len(whole) // 2, len(whole) - 1):
            cut = tmp_path / f"cut{name[1:]}"
            cut.write_bytes(whole[:length])
            with pytest.raises(UserError, match="can't be read"):
                read_features(cut)


def test_changed_bytes_never_give_another_error(tmp_path, content):
    write_features(tmp_path / "f.npz", content)
    whole = (tmp_path / "f.npz").read_bytes()
    random = np.random.default_rng(0)
    for _ in range(150):
        bad = bytearray(whole)
        bad[random.integers(len(bad))] ^= int(random.integers(1, 256))
        (tmp_path / "bad.npz").write_bytes(bytes(bad))
        with suppress(UserError):  # any other error fails
            read_features(tmp_path / "bad.npz")


def test_pickles_are_refused(tmp_path):
    np.savez(tmp_path / "f.npz", features=np.array([[object()]], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match="Python objects"):
        read_features(tmp_path / "f.npz")


def test_the_folder_of_the_output_is_made(tmp_path):
    check_writable(tmp_path / "new" / "f.npz")
    assert not (tmp_path / "new").exists()
    write_features(tmp_path / "new" / "f.npz", FeatureSet(np.ones((2, 3))))
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["f.npz"]


def test_output_is_checked_before_the_work(tmp_path):
    check_writable(tmp_path / "f.npz")
    with pytest.raises(UserError, match=r"must end in \.npz"):
        check_writable(tmp_path / "f.npy")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="which is a file"):
        check_writable(tmp_path / "file" / "f.npz")
    (tmp_path / "d.npz").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        check_writable(tmp_path / "d.npz")


def test_a_damaged_name_in_an_archive_is_not_an_array_less(tmp_path):
    """The index of the archive, at its end, calls the class names something else."""
    path = tmp_path / "x.npz"
    np.savez(path, features=np.zeros((2, 3)), labels=np.arange(2), class_names=np.array(["ant", "bee"]))
    start, _, end = path.read_bytes().rpartition(b"class_names")
    path.write_bytes(start + b"clash_names" + end)
    with pytest.raises(UserError, match="it is damaged"):
        read_features(path)


def test_an_archive_that_is_called_npy_is_a_sentence(tmp_path):
    with (tmp_path / "y.npy").open("wb") as file:
        np.savez(file, labels=np.arange(3))
    with pytest.raises(UserError, match="holds several arrays"):
        read_labels(tmp_path / "y.npy")
