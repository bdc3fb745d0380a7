"""The methods page says what the code says."""

from __future__ import annotations

from pathlib import Path

from ba3us import methods
from ba3us.report import methods_page

PAGE = Path(__file__).parents[1] / "docs" / "methods.md"


def test_the_methods_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == methods_page(), "run: ba3us methods --markdown > docs/methods.md"


def test_every_method_is_on_the_page_with_what_is_known_of_it():
    page = methods_page()
    entries = list(methods.entries())
    assert f"\n{len(entries)} methods." in page
    for entry in entries:
        assert f"`{entry.name}`" in page
        assert entry.info.note in page
        assert f" | {entry.info.losses} | {entry.defaults_note()} | " in page
        if entry.info.losses == "reconstruction":
            assert entry.info.note, f"{entry.name} is a reconstruction and must name what is our choice"


def section(title):
    return methods_page().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_page_shows_where_defaults_depart_from_what_was_published():
    ours = section("BA³US")
    assert "| `beta` | `5.0` | as default | `1.0` | as default |" in ours
    assert "| `refresh_every` | `100` | `200` | `500` | `4000` |" in ours  # a tenth of the steps
    assert "| `auxiliary_domain` | `1.0` | `10.0` |" in section("ETN")
    assert "| `gaussian_start` | `False` | `True` |" in section("PADA")
    assert "| `tau` | `1.0` | as default | by task |" in section("PADA")
    assert "office31: tuned per task with target labels." in section("PADA")
    assert "No published settings are on record" in section("MCC")
