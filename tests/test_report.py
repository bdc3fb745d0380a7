"""Pages made from the code stay what the code says."""

from __future__ import annotations

from pathlib import Path

from ba3us import methods
from ba3us.report import methods_page

PAGE = Path(__file__).parents[1] / "docs" / "methods.md"


def test_the_methods_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == methods_page(), "run: ba3us methods --markdown > docs/methods.md"


def test_every_system_is_on_the_page_with_its_fidelity_and_note():
    page = methods_page()
    for entry in methods.entries():
        assert f"`{entry.name}`" in page
        assert entry.info.note in page
        if entry.info.fidelity == "reconstruction":
            assert entry.info.note, f"{entry.name} is a reconstruction and must say what is ours"
