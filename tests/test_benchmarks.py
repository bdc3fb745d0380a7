"""The benchmarks: every script still finds what it imports, and those that are quick still run."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from ba3us.bench.database import Database

FILES = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))
SCRIPTS = [path for path in FILES if "__main__" in path.read_text(encoding="utf-8")]  # the rest serve these


def test_the_one_of_the_database_runs(tmp_path, monkeypatch, capsys):
    script = FILES[0].parent / "database.py"
    monkeypatch.setattr(sys, "argv", [script.name, "--runs", "40", "--file", str(tmp_path / "runs.sqlite")])
    runpy.run_path(str(script), run_name="__main__")
    said = capsys.readouterr().out
    assert "filled 40 runs" in said and said.count("in all") == 3
    with Database(tmp_path / "runs.sqlite") as database:
        assert len(database.table()) == 40


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_answers_help(script, monkeypatch, capsys):
    monkeypatch.syspath_prepend(script.parent)
    monkeypatch.setattr(sys, "argv", [script.name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 0
    assert script.name in capsys.readouterr().out
