"""The documentation page of all methods, written from the registry."""

from __future__ import annotations

from typing import Any

from ba3us import methods

_HEAD = """# Methods

Made by `ba3us methods --markdown`; do not edit by hand.

{count} methods. Each has two notes:

- **losses**: *checked* against numbers recorded from the original program (or the one its note names), the
  plain *textbook* form, a *variant* that differs on purpose, or a *reconstruction* without code to compare,
  whose note names what is our choice;
- **settings** by default, that is without a protocol: *published*, or *ba3us defaults* and how many options
  differ from the nearest protocol. The tables below show what was published in place of each default.

Every method takes the options of `MethodOptions` (steps, warmup_steps, batch_size, learning_rate, …) besides
its own.
"""
_COLUMNS = ("name", "title", "setting", "losses", "settings", "needs")


def methods_page() -> str:
    """Markdown: one table of all methods, then a section for each."""
    entries = [entry.described() for entry in methods.entries()]
    lines = [_HEAD.format(count=len(entries)), *_table(_COLUMNS)]
    for e in entries:
        needs = ", ".join(e["needs"]) or "–"
        link = f"[`{e['name']}`](#{_anchor(e['name'])})"
        lines.append(_row(link, e["title"], e["setting"], e["losses"], e["settings"], needs))
    for e in entries:
        lines += ["", f'<a id="{_anchor(e["name"])}"></a>', "", f"## {e['title']}"]
        lines += ["", f"`{e['name']}` · {e['reference']}"]
        if e["note"]:
            lines += ["", e["note"]]
        if e["own_options"]:
            options = ", ".join(f"`{name}={value!r}`" for name, value in e["own_options"].items())
            lines += ["", f"Its own options: {options}."]
        lines += _published(e)
    return "\n".join(lines) + "\n"


def _published(entry: dict[str, Any]) -> list[str]:
    """Options whose published value differs from the default, by protocol, and notes on the protocols."""
    published = entry["published"]
    if not published:
        return ["", "No published settings are on record; the defaults are ba3us defaults."]
    lines = ["", *_table(("option", "default", *published))]
    for name, default in entry["defaults"].items():
        values = [
            published_settings["departures"].get(name, "as default")
            for published_settings in published.values()
        ]
        lines.append(_row(f"`{name}`", *map(_value, (default, *values))))
    for protocol, published_settings in published.items():
        notes = [published_settings["note"]] if published_settings["note"] else []
        notes += ["tuned per task with target labels"] if published_settings["oracle"] else []
        lines += ["", f"{protocol}: {'; '.join(notes)}."] if notes else []
    return lines


def _value(value: Any) -> str:
    return value if value in ("as default", "by task") else f"`{value!r}`"


def _table(columns: tuple[str, ...]) -> list[str]:
    return [_row(*columns), "|" + "---|" * len(columns)]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _anchor(name: str) -> str:
    """An explicit anchor: sites make different ones from a heading such as BA³US."""
    return f"method-{name.replace('+', '-')}"
