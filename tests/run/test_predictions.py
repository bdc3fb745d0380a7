"""Tables of predictions: CSV and Parquet say the same, batch by batch, and hold nothing that runs."""

from __future__ import annotations

import csv
import sys

import numpy as np
import pytest

from arrays_toys import FAST, NAMES, clouds, edit_results
from ba3us.adapt import adapt, predict
from ba3us.data.files import read_table
from ba3us.data.images import Skipped
from ba3us.errors import UserError
from ba3us.run import predict as predictions
from ba3us.run import storage
from ba3us.run.run import Run
from ba3us.run.spec import Spec

X, Y, XT, _ = clouds()
ODD = ["=cmd()|'x'!A1", "+1", "-dog\r\n=1", "@me"]


@pytest.fixture
def data(tmp_path):
    """A run whose classes and paths a spreadsheet would take for formulas."""
    labels = np.searchsorted(NAMES, Y)
    np.savez(tmp_path / "s.npz", features=X, labels=labels, class_names=ODD)
    np.savez(tmp_path / "t.npz", features=XT, paths=[f"-{i}.jpg" for i in range(len(XT))])
    np.save(tmp_path / "t.npy", XT)
    options = {"steps": 4, **FAST["method_params"]}
    paths = {"source": str(tmp_path / "s.npz"), "target": str(tmp_path / "t.npz")}
    spec = Spec(**paths, method="ba3us", method_params=options, n_threads=1)
    adapt(spec, tmp_path / "run")
    return tmp_path


def cells(path):
    with path.open(newline="", encoding="utf-8") as file:
        return [cell for row in csv.reader(file) for cell in row]


def test_no_cell_of_a_run_is_a_formula_and_ours_come_back(data):
    predict(data / "run", data / "t.npz", data / "more.csv")
    storage.write_skipped(data / "skipped.csv", {"target": [Skipped("=1+1.jpg", "-broken")]})
    tables = [data / "run" / "predictions.csv", data / "run" / "presence.csv", data / "more.csv"]
    for path in (*tables, data / "skipped.csv"):
        found = [cell for cell in cells(path) if cell.startswith(tuple("=+-@\t\r"))]
        assert [cell for cell in found if cell != "+1"] == []  # a number runs nothing
    assert [row["path"] for row in read_table(tables[0])] == [f"-{i}.jpg" for i in range(len(XT))]
    assert {row["class"] for row in read_table(tables[0])} <= set(ODD)
    assert [row["class"] for row in storage.read_presence(tables[1], sorted(ODD))] == sorted(ODD)
    assert read_table(data / "skipped.csv") == [{"domain": "target", "path": "=1+1.jpg", "reason": "-broken"}]


def test_presence_of_other_classes_or_a_damaged_table_is_a_sentence(data):
    path = data / "run" / "presence.csv"
    with pytest.raises(UserError, match="is not of this run: adapt again"):
        storage.read_presence(path, [*sorted(ODD)[:3], "other"])
    path.write_text("class,share\n" + path.read_text())
    with pytest.raises(UserError, match=r"is not of this run|can't be read|make it again"):
        storage.read_presence(path, sorted(ODD))
    path.unlink()
    with pytest.raises(UserError, match=r"presence.csv can.t be read .*No such file"):
        storage.read_presence(path, sorted(ODD))


@pytest.mark.parametrize(("source", "key"), [("t.npz", "path"), ("t.npy", "row")])
def test_parquet_says_what_csv_says(data, source, key, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the parquet extra")
    assert predict(data / "run", data / source, data / "out.csv")["csv"] == str(data / "out.csv")
    monkeypatch.setattr(predictions, "_GROUP", 7)
    said = predict(data / "run", data / source, data / "out.parquet")
    assert said["parquet"] == str(data / "out.parquet") and said["rows"] == len(XT)
    table, lines = parquet.read_table(data / "out.parquet"), read_table(data / "out.csv")
    assert table.column_names == [key, "class", "probability", "confidence", "abstain"]
    assert [str(value) for value in table[key].to_pylist()] == [line[key] for line in lines]
    assert table["class"].to_pylist() == [line["class"] for line in lines]
    for name in ("probability", "confidence"):
        np.testing.assert_allclose(table[name], [float(line[name]) for line in lines], atol=6e-7)
    assert [{True: "yes", False: "no"}[each] for each in table["abstain"].to_pylist()] == [
        line["abstain"] for line in lines
    ]


def test_rows_are_written_while_others_are_still_to_come(data, monkeypatch):
    """Neither kind of table waits for the last batch."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the parquet extra")
    monkeypatch.setattr(predictions, "_GROUP", 4)
    waiting = iter(
        [[predictions.Row(row, 0, 0.5) for row in range(start, start + 3)] for start in range(0, 12, 3)]
    )
    written = []
    real = parquet.ParquetWriter.write_table
    monkeypatch.setattr(
        parquet.ParquetWriter, "write_table", lambda self, t: (written.append(len(t)), real(self, t))
    )
    predictions._write_parquet(data / "p.parquet", "row", waiting, ["a", "b"])
    assert written == [6, 6]


def test_class_numbers_stay_numbers_and_odd_names_become_text(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the parquet extra")
    name = b"\xff.jpg".decode("utf-8", "surrogateescape")
    rows = [[predictions.Row(name, 1, 0.5)]]
    for classes, wanted in (
        ([3, 7], 7),
        ([3, 2**70], str(2**70)),
        ([True, False], "False"),
        (["a", 1.5], "1.5"),
    ):
        predictions._write_parquet(tmp_path / "p.parquet", "path", iter(rows), classes)
        (row,) = parquet.read_table(tmp_path / "p.parquet").to_pylist()
        assert row == {
            "path": "\\xff.jpg",
            "class": wanted,
            "probability": 0.5,
            "confidence": None,
            "abstain": None,
        }


def test_a_table_abstains_below_the_threshold_of_the_level(data):
    kept = Run.load(data / "run").calibration
    counts = []
    for level in (0.01, 0.3):
        said = predict(data / "run", data / "t.npz", data / "out.csv", max_error=level)
        lines = read_table(data / "out.csv")
        abstained = [float(line["confidence"]) < kept.threshold(level) - 1e-6 for line in lines]
        assert [line["abstain"] == "yes" for line in lines] == abstained
        assert (said["max_error"], said["abstained"]) == (level, sum(abstained))
        assert said["cautions"] == kept.cautions
        counts.append(sum(abstained))
    assert counts[0] >= counts[1]
    with pytest.raises(UserError, match=r"error level is 2: give a proportion from 0.001 to below 1"):
        predict(data / "run", data / "t.npz", data / "out.csv", max_error=2)


def test_a_run_without_calibration_says_so(data):
    edit_results(data / "run", calibration=None)
    assert predict(data / "run", data / "t.npz", data / "out.csv")["abstained"] is None
    assert {(line["confidence"], line["abstain"]) for line in read_table(data / "out.csv")} == {("", "")}
    with pytest.raises(UserError, match="has no calibration"):
        predict(data / "run", data / "t.npz", data / "more.csv", max_error=0.05)
    assert not (data / "more.csv").exists()


def test_parquet_without_its_package_is_a_sentence(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UserError, match=r"pip install 'ba3us\[parquet\]'"):
        predict(data / "run", data / "t.npz", data / "out.parquet")
    assert not list(data.glob("*out.parquet*"))
