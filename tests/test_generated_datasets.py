"""Generated stand-ins: names, counts and label spaces as the protocols have them, and something to learn."""

from __future__ import annotations

import json

import numpy as np
import pytest
from benchmarks import generated_datasets

from ba3us.data import read_images
from ba3us.errors import UserError

image = pytest.importorskip("PIL.Image", reason="the extra `vision` is not installed")
DATASETS = {"office31": "Office31", "office-home": "Office-Home"}


@pytest.fixture
def only(monkeypatch):
    """Restrict what is generated to some domains (and to the first classes of each)."""

    def restrict(*domains: str, classes: int | None = None) -> None:
        full = generated_datasets.counts
        monkeypatch.setattr(
            generated_datasets,
            "counts",
            lambda p: {d: dict(list(of.items())[:classes]) for d, of in full(p).items() if d in domains},
        )

    return restrict


@pytest.mark.parametrize(("protocol", "dataset"), DATASETS.items())
def test_counts_are_the_protocols(shared, protocol, dataset):
    wanted = json.loads((shared / "paper" / "protocols.json").read_text())[dataset]
    for domain in wanted["domains"].values():
        found = generated_datasets.counts(protocol)[domain["list_name"]]
        assert list(found) == wanted["classes"] and list(found.values()) == domain["images_per_class"]
        assert sum(found.values()) == domain["n_images_full"]
        assert sum(found[c] for c in wanted["target_classes"]) == domain["n_images_target_subset"]


def test_whole_domains_are_read_back(tmp_path, only):
    only("dslr", "webcam")
    generated_datasets.generate("office31", tmp_path)
    for domain, number in (("dslr", 498), ("webcam", 795)):
        found = read_images(tmp_path / "office31" / domain)
        assert len(found) == number and found.class_names == sorted(
            generated_datasets.counts("office31")[domain]
        )
        assert np.bincount(found.labels).tolist() == list(
            generated_datasets.counts("office31")[domain].values()
        )
    assert "rehearsals" in (tmp_path / "GENERATED.txt").read_text()


def test_a_fraction_keeps_at_least_two_images_of_a_class(tmp_path, only):
    only("dslr")
    made = generated_datasets.generate("office31", tmp_path, fraction=0.25)["dslr"]
    assert made["mug"] == 2 and made["mobile_phone"] == 8
    assert len(read_images(tmp_path / "office31" / "dslr")) == sum(made.values())


def test_imagenet_and_caltech_are_related_by_84_classes():
    found, shared = generated_datasets.counts("imagenet-caltech"), generated_datasets.shared_classes()
    assert {d: len(of) for d, of in found.items()} == {
        "caltech256": 256,
        "imagenet_train": 1000,
        "imagenet_val": 1000,
    }
    names = list(found["imagenet_train"])
    assert names == sorted(names) and len(set(names)) == 1000
    assert len(shared) == 84 and set(shared.values()) <= set(names) and set(shared) <= set(found["caltech256"])
    assert names.index("n02749479") == 413 and shared["001.ak47"] == "n02749479"
    assert sum(found["caltech256"].values()) == 29780
    assert sum(found["caltech256"][c] for c in shared) == 9257
    assert sum(found["imagenet_val"][w] for w in shared.values()) == 4200


def test_list_files_label_targets_in_the_sources_numbers(tmp_path):
    root = tmp_path / "imagenet-caltech"
    made = generated_datasets.generate("imagenet-caltech", tmp_path, fraction=1e-6, minimum=1)
    caltech = read_images(root / "lists" / "caltech84_imagenet_labels.txt", root=root)
    imagenet = read_images(root / "lists" / "imagenet84_caltech_labels.txt", root=root)
    assert len(caltech) == len(imagenet) == 84
    assert caltech.labels[caltech.paths.index("caltech256/001.ak47/0001.jpg")] == 413
    assert imagenet.labels[imagenet.paths.index("imagenet_val/n02749479/0001.jpg")] == 0
    assert all(caltech.file(i).is_file() and imagenet.file(i).is_file() for i in range(84))
    assert set(made) == {p.name for p in root.iterdir()} - {"lists"}


def test_classes_can_be_told_apart_across_domains(tmp_path, only):
    only("dslr", "webcam", classes=5)
    generated_datasets.generate("office31", tmp_path)

    def pixels(domain):
        listed = read_images(tmp_path / "office31" / domain)
        rows = [np.asarray(image.open(listed.file(i)), dtype=float).ravel() for i in range(len(listed))]
        return np.array(rows), listed.labels

    x, y = pixels("webcam")
    xt, yt = pixels("dslr")
    means = np.array([x[y == c].mean(0) for c in range(5)])
    near = np.linalg.norm(xt[:, None] - means, axis=2).argmin(1)
    assert np.mean(near == yt) > 0.6
    assert np.linalg.norm(x.mean(0) - xt.mean(0)) > 100  # the domains differ


def test_what_a_user_may_get_wrong(tmp_path):
    with pytest.raises(UserError, match="did you mean 'office31'"):
        generated_datasets.generate("office13", tmp_path)
    with pytest.raises(UserError, match="fraction is 0"):
        generated_datasets.generate("office31", tmp_path, fraction=0)
    assert list(tmp_path.iterdir()) == []
