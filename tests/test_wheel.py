"""What is handed on: the wheel holds what the package reads at run time and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

import ba3us
from pages import ROOT

PACKAGE = Path(ba3us.__file__).parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    pytest.importorskip("build", reason="needs the dev extra: build")
    pytest.importorskip("hatchling", reason="needs hatchling; `python -m build` alone would fetch it")
    out = tmp_path_factory.mktemp("dist")
    call = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.glob("*.whl")
    assert path.name.startswith(f"ba3us-{ba3us.__version__}-")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    """Protocols, templates, styles, and scripts included."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    wanted = {f"ba3us/{path.relative_to(PACKAGE).as_posix()}" for path in files}
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == wanted
    kinds = {Path(name).suffix for name in held}
    assert {".py", ".yaml", ".html", ".css", ".js", ".csv", ".md"} <= kinds
    assert not kinds & {".npz", ".npy", ".pt", ".pth", ".safetensors", ".png", ".jpg", ".sqlite"}


def test_the_wheel_says_what_it_is(wheel):
    (about,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    text = wheel.read(about).decode()
    assert re.search(rf"^Version: {re.escape(ba3us.__version__)}$", text, flags=re.MULTILINE)
    (starts,) = (name for name in wheel.namelist() if name.endswith("/entry_points.txt"))
    assert "ba3us = ba3us.cli:main" in wheel.read(starts).decode()


def test_the_citation_has_the_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(cited["version"]) == ba3us.__version__
    assert cited["references"][0]["year"] == 2020 and len(cited["references"][0]["authors"]) == 5
