"""``ba3us report`` on a run: for people, for machines, and with mistakes."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from ba3us.cli import app
from ba3us.errors import UserError


def cli(*arguments: str):
    return CliRunner().invoke(app, [*arguments])


def test_a_run_gets_its_page(folder, tmp_path):
    done = cli("report", str(folder / "run"), "--out", str(tmp_path / "p.html"), "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said == {"page": str(tmp_path / "p.html"), "bytes": (tmp_path / "p.html").stat().st_size}
    done = cli(
        "report", str(folder / "run"), "--labels", str(folder / "t.npz"), "--out", str(tmp_path / "q.html")
    )
    assert done.stdout.strip() == str(tmp_path / "q.html")
    assert "by the labels given" in (tmp_path / "q.html").read_text(encoding="utf-8")


def test_mistakes_are_sentences(folder, tmp_path):
    for arguments in (
        [str(tmp_path / "gone")],
        [str(folder / "run"), "--protocol", "digits"],
        [str(folder / "run"), "--labels", str(tmp_path / "gone.npy")],
        [str(folder / "run"), "--out", str(tmp_path / "p.txt")],
    ):
        assert isinstance(cli("report", *arguments).exception, UserError), arguments
    assert list(tmp_path.iterdir()) == []
