"""`ba3us check` on the command line: for people, for machines, and bad input."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from arrays_toys import NAMES, clouds
from ba3us.cli import app, main

X, Y, XT, _ = clouds()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("s.npz", features=X, labels=np.searchsorted(NAMES, Y), class_names=["[bold]ant", *NAMES[1:]])
    np.savez("t.npz", features=np.concatenate([XT, X[:2]]))
    np.save("s.npy", X)
    np.save("y.npy", Y)
    np.save("t.npy", XT)
    np.savez("empty.npz", features=X[:0])
    (tmp_path / "damaged.npz").write_bytes(b"PK\x03\x04 no more")
    (tmp_path / "photos/ant").mkdir(parents=True)
    return tmp_path


def test_for_people(folder):
    done = CliRunner().invoke(app, ["check", "s.npz", "t.npz"], catch_exceptions=False)
    said = " ".join(re.sub(r"[│┃━─]", " ", done.stdout).split())
    assert done.exit_code == 0
    for words in ("2 target rows are in the source", "row 0 = row 40", "Take them out of the target"):
        assert words in said
    for words in ("0 to stop for, 1 warning", "--train head", "about", "4 classes of 20 to 20"):
        assert words in said


def test_for_machines(folder):
    done = CliRunner().invoke(app, ["check", "s.npy", "t.npy", "--labels", "y.npy", "--json", "--no-cost"])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["source"] == "s.npy" and found["counts"]["stop"] == 0 and "cost" not in found["facts"]
    assert found["facts"]["source"]["classes"] == dict.fromkeys(NAMES.tolist(), 20)
    done = CliRunner().invoke(app, ["check", "s.npz", "t.npz", "--json", "--no-cost"])
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["level"] == "warning" and finding["items"] == ["row 0 = row 40", "row 1 = row 41"]
    assert set(finding) == {"level", "topic", "text", "advice", "count", "items"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("gone.npz t.npz", "There is no file gone.npz: check the path"),
        ("s.npz gone", "There is no file|gone is neither"),
        ("t.npz t.npz", "t.npz has no labels: save them in it"),
        ("s.npz empty.npz", "The target is empty: give at least one row"),
        ("s.npz damaged.npz", "damaged.npz can't be read"),
        ("photos t.npz", "photos is a folder: turn its images into a feature file"),
        ("photos photos", "The images of photos lie in no class folders: make one"),
        ("gone gone", "There is no folder or list file gone"),
        ("s.npz t.npz --root photos", "--root is not for features"),
        ("photos photos --labels y.npy", "--labels is not for images"),
    ],
)
def test_bad_input_is_one_sentence(folder, monkeypatch, capsys, arguments, sentence):
    monkeypatch.setattr("sys.argv", ["ba3us", "check", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert ended.value.code == 2 and re.search(sentence, said), said
