"""Names that quote, run, colour, turn round or break lines: text on every face that shows them."""

from __future__ import annotations

import html
import re

import pytest
from report_toys import taken, write_data
from typer.testing import CliRunner

from ba3us.cli import app
from ba3us.data.files import read_table
from ba3us.progress import visible

NAMES = [
    "</script><script>alert(1)</script>",
    "=cmd|' /C calc'!A0\nsecond [red]line[/red] \x1b[31m",
    "\u202eفیل\u202c 🦊",
    '"quo\'ted" | `code`, & <b>bold</b>',
]
WIDE = {"COLUMNS": "400", "TERM": "dumb"}


def cli(*arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments], catch_exceptions=False, env=WIDE)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The data, an automatic run on it, and what the terminal said."""
    folder = tmp_path_factory.mktemp("names")
    write_data(folder, NAMES)
    paths = [str(folder / name) for name in ("s.npz", "t.npz", "run")]
    return folder, cli("adapt", *paths[:2], "--out", paths[2], "--steps", "20", "--threads", "1")


def shown_as_text(said: str) -> None:
    """Classes are there on one line each, and nothing in them acts."""
    assert not {"\x1b", "\u202e", "\u202c"} & set(said)
    there = [name for name in NAMES if visible(name) in said]
    assert len(there) >= 2 and "[red]line[/red]" in visible(NAMES[1])


def test_the_terminal(made):
    folder, said = made
    shown_as_text(said)
    assert said.rstrip().endswith(str(folder / "run" / "report.html"))
    shown_as_text(cli("predict", str(folder / "run"), str(folder / "t.npz"), "--out", str(folder / "p.csv")))


def test_a_mistake_in_the_terminal(tmp_path, capsys, monkeypatch):
    from ba3us.cli import main

    monkeypatch.setattr("sys.argv", ["ba3us", "predict", str(tmp_path / "\x1b[31m\nrun"), "x", "--out", "y"])
    with pytest.raises(SystemExit, match="2"):
        main()
    said = capsys.readouterr().err
    assert "\\x1b[31m\\nrun" in said and "\x1b" not in said


def test_tables(made):
    folder, _ = made
    assert [row["class"] for row in read_table(folder / "run" / "presence.csv")] == sorted(NAMES)
    found = {row["class"] for row in read_table(folder / "run" / "predictions.csv")}
    assert found <= set(NAMES) and "</script><script>" in "".join(found)
    raw = (folder / "run" / "presence.csv").read_text(encoding="utf-8")
    assert "\"'=cmd" in raw  # marked: a spreadsheet shows it and runs nothing


def test_parquet(made):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the parquet extra")
    folder, _ = made
    cli("predict", str(folder / "run"), str(folder / "t.npz"), "--out", str(folder / "p.parquet"))
    rows, lines = parquet.read_table(folder / "p.parquet"), read_table(folder / "run" / "predictions.csv")
    assert rows["class"].to_pylist() == [line["class"] for line in lines]
    assert rows["path"].to_pylist() == [line["path"] for line in lines]


def test_the_page(made):
    page = taken(made[0] / "run" / "report.html")
    assert {row[0] for row in page.table("Classes by their proportion of the target")[1:]} == set(NAMES)
    assert page.all("b") == [] and len([a for a, _ in page.all("script") if "type" not in a]) == 1
    assert "source-only" in page.section("leaderboard")
    assert "error level" in page.section("confidence")


def test_the_model_card(made):
    pytest.importorskip("onnxscript", reason="needs the export extra")
    pytest.importorskip("onnxruntime", reason="needs the export extra")
    folder, _ = made
    cli("export", str(folder / "run"), "--onnx", str(folder / "m.onnx"))
    card = (folder / "m.md").read_text(encoding="utf-8")
    assert not {"\x1b", "\u202e"} & set(card)
    outside = re.sub(r"(`+).+?\1", "", card)  # code spans are shown as they are
    assert "<script" not in html.unescape(outside).replace("<!--", "") and "[red]" not in outside
    assert NAMES[0] in card
