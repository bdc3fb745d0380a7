"""What may be replaced: a run's own files, and nothing else that lies in its folder."""

from __future__ import annotations

import numpy as np
import pytest

from arrays_toys import clouds
from ba3us.adapt import adapt
from ba3us.errors import UserError
from ba3us.run.run import Run
from ba3us.run.spec import Spec

X, Y, XT, _ = clouds()


def run(source, target, out, **more):
    spec = Spec(
        source=str(source),
        target=str(target),
        method="source-only",
        method_params={"steps": 2, "bottleneck": 8},
        n_threads=1,
        **more.pop("fields", {}),
    )
    return adapt(spec, out, **more)


@pytest.fixture
def data(tmp_path):
    np.savez(tmp_path / "s.npz", features=X, labels=Y)
    np.savez(tmp_path / "t.npz", features=XT)
    run(tmp_path / "s.npz", tmp_path / "t.npz", tmp_path / "run")
    return tmp_path


def content(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["labels.csv", "notes/a.txt", "checkpoints/mine.ckpt", "predictions.csv/a"])
def test_a_file_that_is_not_of_the_run_is_named_and_stays(data, name):
    path = data / "run" / name
    (data / "run" / "predictions.csv").unlink()
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    before = content(data / "run")
    first = name if "checkpoints" in name else name.split("/")[0]
    with pytest.raises(UserError, match=f"run holds other files, such as {first}: choose another one"):
        run(data / "s.npz", data / "t.npz", data / "run", overwrite=True)
    with pytest.raises(UserError, match="holds other files"):
        Run.load(data / "run").save(data / "run")
    assert content(data / "run") == before


def test_a_model_is_not_saved_over_other_files(data):
    (data / "mine").mkdir()
    (data / "mine" / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match=r"mine holds other files, such as thesis\.tex"):
        Run.load(data / "run").save(data / "mine")
    assert content(data / "mine") == {"thesis.tex": b"mine"}


@pytest.mark.parametrize("field", ["source", "target", "labels", "classes", "weights"])
def test_an_input_in_the_output_is_refused_before_any_work(data, monkeypatch, field):
    inside = data / "run" / "evaluations.npz"  # a name that runs use
    (data / "s.npz").replace(inside)
    np.savez(data / "s.npz", features=X, labels=Y)
    monkeypatch.setattr("ba3us.run.opening.open_spec", lambda *_: pytest.fail("was opened"))
    files = {"source": data / "s.npz", "target": data / "t.npz"} | {field: inside}
    more = {"fields": {field: str(inside)}} if field not in ("source", "target") else {}
    before = content(data / "run")
    with pytest.raises(UserError, match=r"The input .*evaluations\.npz lies in the output .*run"):
        run(files["source"], files["target"], data / "run", overwrite=True, **more)
    assert content(data / "run") == before


def test_through_a_link_the_folder_behind_it_is_replaced(data):
    link = data / "link"
    link.symlink_to(data / "run")
    before = content(data / "run")
    run(data / "s.npz", data / "t.npz", link, overwrite=True, fields={"seed": 1})
    after = content(data / "run")
    assert link.is_symlink() and after.keys() == before.keys() and after != before
    assert after["model.safetensors"] != before["model.safetensors"]


def test_a_link_to_nothing_yet_becomes_one_to_the_run(data):
    (data / "link").symlink_to(data / "later")
    run(data / "s.npz", data / "t.npz", data / "link")
    assert (data / "link").is_symlink() and Run.load(data / "later").spec.method == "source-only"
