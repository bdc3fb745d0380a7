"""Benchmarks on images: what a run depends on, what is shared, whose classifier, what can't be read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import generated_datasets
from safetensors.torch import load_file, save_file
from test_bench_study import call

from ba3us import bench
from ba3us.bench import domains
from ba3us.bench import jobs as images
from ba3us.bench.database import Database
from ba3us.bench.jobs import execute
from ba3us.data.activations import FrozenTarget
from ba3us.errors import UserError
from image_toys import COLOURS

Image = pytest.importorskip("PIL.Image", reason="needs the vision extra")
timm = pytest.importorskip("timm", reason="needs the vision extra")
NAMES = ["n01", "n02", "n03"]
FAST = {"steps": 3, "batch_size": 4, "bottleneck": 5, "refresh_every": 2}
PROTOCOL = "domains: {P: one, Q: two.txt}\ntasks: [P->Q]\ntarget: {classes: [n01, n03]}\n"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BA3US_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def weights(tmp_path) -> Path:
    """A network whose own classifier has three classes."""
    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet", num_classes=3).state_dict(), tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


@pytest.fixture
def photos(tmp_path) -> Path:
    """A folder of three colours, and a list of two of them that counts its classes from the last."""
    lines = []
    for domain, rows in (("one", 4), ("heap", 3)):
        for c, name in enumerate(NAMES):
            folder = tmp_path / domain / name
            folder.mkdir(parents=True)
            for i in range(rows):
                noise = np.random.default_rng([c, i, rows]).normal(0, 30, (20, 24, 3))
                Image.fromarray(np.clip(COLOURS[c] + noise, 0, 255).astype(np.uint8)).save(folder / f"{i}.png")
                lines += [f"heap/{name}/{i}.png {2 - c}"] if domain == "heap" else []
    (tmp_path / "two.txt").write_text("\n".join(lines))
    (tmp_path / "toy.yaml").write_text(PROTOCOL)
    return tmp_path


def prepared(photos: Path, weights: Path, text: str = PROTOCOL, methods: str = "source-only", **more: object):
    (photos / "toy.yaml").write_text(text)
    seen = {"backbone": "test_resnet", "weights": str(weights), "size": 32, **more.pop("images", {})}
    given = {"methods": methods, "seeds": 1, "options": FAST, "images": seen, **more}
    return bench.prepare(photos / "toy.yaml", **given)


def test_of_features_and_images_in_one_folder_the_ones_that_are_meant_are_taken(photos, weights):
    both = PROTOCOL.replace("P: one,", "P: [one.npz, one],").replace("Q: two.txt", "Q: [two.npz, two.txt]")
    for name in ("one.npz", "two.npz"):
        rows = np.eye(3, dtype=np.float32)
        np.savez(photos / name, features=rows, labels=np.arange(3), class_names=np.array(NAMES))
    assert prepared(photos, weights, both).jobs[0].images is not None
    assert bench.prepare(photos / "toy.yaml", methods="source-only", options=FAST).jobs[0].images is None


@pytest.mark.parametrize("train", ["head", "tail", "all"])
def test_images_are_trained_on_at_every_depth(photos, weights, train):
    seen = {"train": train, "views": None if train == "all" else 1, "device": "cpu"}
    study = prepared(photos, weights, methods="ba3us,sspda,cdan+transnorm", images=seen)
    outcomes = [execute(job) for job in study.jobs]
    assert f"Images: test_resnet, trained: {train}, " in study.notes[0]
    with Database(photos / "b.sqlite") as database:
        database.add_datasets("toy", study.datasets)
        database.record(study.jobs[0], outcomes[0], study.datasets[0].labels)
        stored = database.run(study.jobs[0].key)
    assert stored.spec["images"]["train"] == train and stored.predictions.shape[1] == 6
    assert stored.probabilities.shape == (len(stored.evaluations), 3)
    assert np.allclose(stored.probabilities.sum(axis=1), 1, atol=1e-5)


def test_the_key_changes_with_all_that_matters_and_with_nothing_else(photos, weights):
    def key(**fields):
        return prepared(photos, weights, images={"device": "cpu", **fields}).jobs[0].key

    first = key()
    assert first == key(train="head") == key(views=0) == key(cache_gb=0.0)
    others = [
        {"train": "tail"},
        {"views": 2},
        {"size": 40},
        {"backbone": "test_vit"},
        {"precision": "bfloat16"},
    ]
    assert len({first, *(key(**fields) for fields in others)}) == 6
    copy = photos / "copy.safetensors"
    copy.write_bytes(weights.read_bytes())
    assert key(weights=str(copy)) == first
    state = timm.create_model("test_resnet", num_classes=3).state_dict()
    save_file(state, copy)
    assert key(weights=str(copy)) != first


def test_other_pictures_of_the_same_size_and_time_are_other_runs(photos, weights):
    study = prepared(photos, weights)
    before = bench.run(study, photos / "b.sqlite", workers=1)
    for number, path in enumerate(sorted((photos / "heap").rglob("*.png"))):
        status = path.stat()
        noise = np.random.default_rng(number).integers(0, 256, (20, 24, 3), dtype=np.uint8)
        Image.fromarray(noise).save(path)
        content = path.read_bytes()[: status.st_size].ljust(status.st_size, b"\0")
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert path.stat().st_size == status.st_size and path.stat().st_mtime_ns == status.st_mtime_ns
    other = prepared(photos, weights)
    assert not {job.key for job in study.jobs} & {job.key for job in other.jobs}
    after = bench.run(other, photos / "b.sqlite", workers=1)
    fresh = bench.run(other, photos / "fresh.sqlite", workers=1)
    assert before["outcome"].tolist() == ["ok"]
    columns = ["outcome", "reason", "accuracy:last"]
    assert after[columns].equals(fresh[columns])


def test_the_digest_of_large_images_is_sampled_at_both_ends(tmp_path, monkeypatch):
    path, digests = tmp_path / "large.png", set()
    content = bytearray(10 * domains._SAMPLED)
    for place in (None, 0, 2 * domains._SAMPLED - 1, -1):
        if place is not None:
            content[place] += 1
        path.write_bytes(content)
        os.utime(path, ns=(10, 10))
        digests.add(domains._file_digest(path))
    path.write_bytes(bytes(content[:5]) + bytes(content[6:]))
    os.utime(path, ns=(10, 10))
    digests.add(domains._file_digest(path))
    assert len(digests) == 5
    os.mkfifo(tmp_path / "pipe.png")
    assert domains._file_digest(tmp_path / "pipe.png") == domains._file_digest(tmp_path / "none.png")


def test_frozen_vectors_are_made_once_before_the_workers_start(photos, weights, monkeypatch):
    study = prepared(photos, weights, methods="source-only,dann", seeds=2)
    seen, made = [], FrozenTarget._computed

    def counted(self, rows, views):
        seen.extend(rows)
        return made(self, rows, views)

    monkeypatch.setattr(FrozenTarget, "_computed", counted)
    images.fill_caches([(study.jobs[0].images, study.jobs[0].pair)])
    assert len(seen) == 12 + 6
    for job in study.jobs:
        execute(job)
    assert len(seen) == 12 + 6


def test_a_kept_classifier_numbers_the_classes_as_the_source_is_sorted(photos, weights):
    options = {"keep_classifier": True, "steps": 0, "warmup_steps": 0}
    study = prepared(photos, weights, options=options)
    model = timm.create_model("test_resnet", num_classes=3).eval()
    model.load_state_dict(load_file(weights))
    opened = images.open_pair(study.jobs[0].images, study.jobs[0].pair)
    target = opened.domains(None, study.jobs[0].images.spec, False).target
    with torch.no_grad():
        own = model(target.batch(slice(None))).argmax(dim=1).numpy()
    assert np.array_equal(execute(study.jobs[0]).predictions[-1], own)
    assert study.datasets[0].classes == tuple(NAMES)
    assert study.datasets[0].labels.tolist() == [0, 0, 0, 2, 2, 2]  # the list counts them the other way round
    with pytest.raises(UserError, match="keeps the backbone's classifier, but its classes are not in alph"):
        prepared(photos, weights, PROTOCOL + "classes: [n02, n01, n03]\n", options=options)


def test_ten_crops_are_for_published_refreshes_from_views(photos, weights):
    def crops(text):
        return {j.method: j.images.spec.ten_crop for j in prepared(photos, weights, text, "pada,san,dann").jobs}

    assert crops(PROTOCOL) == {"pada": False, "san": False, "dann": False}
    text = PROTOCOL.replace("P", "A").replace("Q", "D") + "published: office31\n"
    assert crops(text) == {"pada": True, "san": True, "dann": False}
    execute(prepared(photos, weights, text, "pada").jobs[0])


def test_an_unreadable_image_is_the_reason_of_a_failed_row(photos, weights):
    (photos / "heap" / "n01" / "1.png").write_text("no image")
    words = ("--methods", "source-only", "--seeds", 1, "--backbone", "test_resnet", "--weights", weights)
    said = call(photos / "toy.yaml", *words, "--size", 32, "--out", photos / "b.sqlite", "--json")
    (row,) = json.loads(said.stdout)
    assert said.exit_code == 1 and "1 of 1 runs failed: add --retry-failed to run them again" in said.stderr
    assert row["outcome"] == "failed"
    assert "1 of 6 images of" in row["reason"] and "heap/n01/1.png" in row["reason"]


def test_what_changes_under_a_benchmark_is_refused(photos, weights):
    job = prepared(photos, weights).jobs[0]
    (photos / "one" / "n01" / "more.png").write_bytes(b"x")
    with pytest.raises(UserError, match="one is not what it was"):
        execute(job)
    save_file(timm.create_model("test_resnet", num_classes=3).state_dict(), weights)
    images._backbone.cache_clear()
    with pytest.raises(UserError, match=r"w\.safetensors is not what it was"):
        execute(job)


def test_wrong_choices_are_sentences(photos, weights):
    with pytest.raises(UserError, match="There is no weights file nowhere"):
        prepared(photos, weights, images={"weights": "nowhere"})
    weights.write_bytes(b"damaged")
    study = prepared(photos, weights)
    with pytest.raises(UserError, match="can't be read"):  # at once, not in every row
        bench.run(study, photos / "b.sqlite", workers=1)


def test_what_is_trained_computes_in_the_precision_asked_for(photos, weights, monkeypatch):
    asked = {"device": "cpu", "train": "tail", "views": 1, "precision": "bfloat16"}
    study = prepared(photos, weights, images=asked)
    assert "Images: test_resnet, trained: tail, views: 1, bfloat16." in study.notes
    seen, forward = [], torch.nn.Conv2d.forward
    monkeypatch.setattr(torch.nn.Conv2d, "forward", lambda *given: seen.append(forward(*given)) or seen[-1])
    execute(study.jobs[0])
    assert torch.bfloat16 in {made.dtype for made in seen}
    with pytest.raises(UserError, match="float8"):
        prepared(photos, weights, images={"precision": "float8"})
    with pytest.raises(UserError, match="can't train in float16"):  # at once, not in every row
        prepared(photos, weights, images={"precision": "float16", "device": "cpu"})


def test_the_command_runs_on_images(photos, weights):
    words = ("--methods", "source-only", "--seeds", 1, "--steps", 3, "--set", "batch_size=4", "--workers", 1)
    seen = ("--backbone", "test_resnet", "--weights", weights, "--size", 32, "--train", "head", "--views", 0)
    out = ("--precision", "float32", "--out", photos / "b.sqlite", "--json")
    said = call(photos / "toy.yaml", *words, *seen, "--device", "cpu", "--cache-gb", 1, *out)
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)[0]["outcome"] == "ok"


def test_generated_office31_is_what_the_protocol_expects(tmp_path, monkeypatch):
    full = generated_datasets.counts
    monkeypatch.setattr(
        generated_datasets, "counts", lambda p: {d: of for d, of in full(p).items() if d != "amazon"}
    )
    generated_datasets.generate("office31", tmp_path)
    for root in (tmp_path, tmp_path / "office31"):
        said = call("office31", "--root", root, "--check", "--tasks", "D->W")
        assert said.exit_code == 0 and "795 samples of 31 classes" in said.output
    next((tmp_path / "office31" / "dslr" / "mug").iterdir()).unlink()
    assert "'mug' has 7 samples" in call("office31", "--root", tmp_path, "--check", "--tasks", "D->W").output
    with pytest.raises(UserError, match="'mug' has 7 samples"):
        bench.prepare("office31", tmp_path, tasks="D->W", methods="dann")
    study = bench.prepare("office31", tmp_path, tasks="D->W", methods="dann", skip_count_check=True)
    assert "Samples were not counted." in study.notes
    assert study.notes[-1].startswith("Pictures made up by ba3us") and study.notes[-1].endswith(".")
    inside = bench.prepare(
        "office31", tmp_path / "office31", tasks="D->W", methods="dann", skip_count_check=True
    )
    assert inside.notes == study.notes
