"""CSV files: nothing that a spreadsheet would run, and every text comes back."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ba3us.data.files import escaped, new_table, read_table, unescaped

ODD = st.text(st.sampled_from("=+-@\t\r\n'\",;1e.a "), max_size=6) | st.text(max_size=6)


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd", "-a/b.jpg", "@SUM(A1)", "\t=1", "\r=1", "-", "=", "+1-1", "--1", "'=x"]
)
def test_what_begins_like_a_formula_is_marked(text):
    assert escaped(text) == f"'{text}" and unescaped(escaped(text)) == text


@pytest.mark.parametrize(
    "cell", ["-1", "+2.5", "-.5e-3", "-1.", "a=b", "", "'a", " =1", "1-1", -1.5, 3, None, True, "café"]
)
def test_numbers_and_other_texts_are_left_alone(cell):
    assert escaped(cell) is cell
    assert not isinstance(cell, str) or unescaped(cell) == cell


@pytest.mark.parametrize("text", ["-1_000", "+१", "-1e", "-1e5x", "-1\n"])
def test_what_only_looks_like_a_number_is_marked(text):
    assert escaped(text) == f"'{text}"


@given(ODD)
def test_every_text_comes_back(text):
    cell = escaped(text)
    assert unescaped(cell) == text
    assert not cell.startswith(tuple("=+-@\t\r")) or (cell == text and isinstance(float(text), float))


@given(st.lists(st.tuples(ODD, ODD), max_size=4))
def test_rows_come_back_from_a_file(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("table") / "t.csv"
    with new_table(path, ["one", "two"]) as write:
        for row in rows:
            write(row)
    assert [tuple(row.values()) for row in read_table(path)] == rows
    with path.open(newline="", encoding="utf-8") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert len(cells) == 2 + 2 * len(rows)


def test_lines_are_those_of_csv_writer(tmp_path):
    rows = [["a,b", 'q"u', "x"], [1, 2.5, "línea"]]
    with new_table(tmp_path / "t.csv", ["a", "b", "c"]) as write:
        for row in rows:
            write(row)
    plain = io.StringIO()
    csv.writer(plain, lineterminator="\n").writerows([["a", "b", "c"], *rows])
    assert (tmp_path / "t.csv").read_text(encoding="utf-8") == plain.getvalue()


def test_names_that_are_no_text_keep_their_bytes(tmp_path):
    name = b"=\xff.jpg".decode("utf-8", "surrogateescape")
    with new_table(tmp_path / "t.csv", ["path"]) as write:
        write([name])
    assert b"'=\xff.jpg" in (tmp_path / "t.csv").read_bytes()
    assert read_table(tmp_path / "t.csv") == [{"path": name}]
