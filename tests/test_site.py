"""The site of the documentation: it builds without a broken link, and its pages fetch nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ba3us
from pages import ROOT

pytest.importorskip("material", reason="needs the docs extra: mkdocs-material")
pytest.importorskip("mkdocstrings_handlers.python", reason="needs the docs extra: mkdocstrings")
pytest.importorskip("matplotlib", reason="needs the docs extra: matplotlib draws the formulas")

FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^>]*>"
    r"|<link\b(?=[^>]*rel=[\"']?(?:stylesheet|preconnect|preload|icon))[^>]*href=[\"']?(?:https?:)?//[^>]*>"
    r"|(?:@import\s*|url\()[\"']?(?:https?:)?//[^)\s]*"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site")
    call = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    env = os.environ | {"PYTHONPATH": str(Path(ba3us.__file__).parents[1]), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(call, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_every_page_is_there_and_in_the_menu(site):
    home = (site / "index.html").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix().replace("README", "index")
        assert (site / name).is_file() and f'href="{name}"' in home, name


def test_pages_fetch_nothing_from_elsewhere(site):
    files = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(files) > 30
    found = {path.name: FETCHED.findall(path.read_text(encoding="utf-8")) for path in files}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert FETCHED.search('<link rel="stylesheet" href="https://x.org/y.css">')
    assert FETCHED.search('<script src="//x.org/y.js"></script>') and FETCHED.search("url(https://x.org/y)")


def test_commands_formulas_and_docstrings_are_in_it(site):
    commands = (site / "cli.html").read_text(encoding="utf-8")
    assert all(word in commands for word in ("ba3us adapt", "--time-limit", "ba3us predict", "needed"))
    method = (site / "method.html").read_text(encoding="utf-8")
    assert method.count("<svg role=") == method.count('class="formula"') > 10
    identifiers = re.findall(r'id="(f[\da-f]+-[^"]+)"', method)
    assert len(identifiers) == len(set(identifiers))
    assert "A classifier for an unlabelled target" in (site / "api.html").read_text(encoding="utf-8")
    assert "Photos from folders: adapt" in (site / "gallery.html").read_text(encoding="utf-8")
