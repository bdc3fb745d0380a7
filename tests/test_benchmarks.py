"""The benchmarks: every script still finds what it imports."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))
SCRIPTS = [path for path in FILES if "__main__" in path.read_text(encoding="utf-8")]  # the rest serve these


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_answers_help(script, monkeypatch, capsys):
    monkeypatch.syspath_prepend(script.parent)
    monkeypatch.setattr(sys, "argv", [script.name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 0
    assert script.name in capsys.readouterr().out
