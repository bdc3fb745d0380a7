"""The documentation page of all methods, made from the registry."""

from __future__ import annotations

from typing import Any

from ba3us import methods

_HEAD = """# Methods

Made by `ba3us methods --markdown`; do not edit by hand.

{count} systems. Two things are said of each:

- **losses**: *checked* against numbers recorded from the original program (or the one its note names), the
  plain *textbook* form, a *variant* that departs knowingly, or a *reconstruction* without code to read, whose
  note says what is ours;
- **settings** by default, that is without a protocol: *published*, or *ours* and how many options differ from
  the protocol that comes nearest. The tables below show what was published in place of each default.

Every method takes the options of `MethodOptions` (steps, warmup_steps, batch_size, learning_rate, …) besides
its own.
"""
_COLUMNS = ("name", "title", "setting", "losses", "settings", "needs")


def methods_page() -> str:
    """Markdown: one table of all systems, then a section for each."""
    entries = [entry.described() for entry in methods.entries()]
    lines = [_HEAD.format(count=len(entries)), *_table(_COLUMNS)]
    for e in entries:
        needs = ", ".join(e["needs"]) or "–"
        link = f"[`{e['name']}`](#{_anchor(e['name'])})"
        lines.append(_row(link, e["title"], e["setting"], e["losses"], e["settings"], needs))
    for e in entries:
        lines += [
            "",
            f'<a id="{_anchor(e["name"])}"></a>',
            "",
            f"## {e['title']}",
            "",
            f"`{e['name']}` · {e['reference']}",
        ]
        if e["note"]:
            lines += ["", e["note"]]
        if e["own_options"]:
            options = ", ".join(f"`{name}={value!r}`" for name, value in e["own_options"].items())
            lines += ["", f"Options of its own: {options}."]
        lines += _published(e)
    return "\n".join(lines) + "\n"


def _published(entry: dict[str, Any]) -> list[str]:
    """The published value of every option whose default is another one, and where they come from."""
    published = entry["published"]
    if not published:
        return ["", "No published settings are on record here: the defaults are ours."]
    lines = ["", *_table(("option", "default", *published))]
    for name, default in entry["defaults"].items():
        values = [found["departures"].get(name, "as default") for found in published.values()]
        lines.append(_row(f"`{name}`", *map(_shown, (default, *values))))
    for protocol, found in published.items():
        notes = [found["note"]] if found["note"] else []
        notes += ["tuned per task with target labels"] if found["oracle"] else []
        lines += ["", f"{protocol}: {'; '.join(notes)}."] if notes else []
    return lines


def _shown(value: Any) -> str:
    return value if value in ("as default", "by task") else f"`{value!r}`"


def _table(columns: tuple[str, ...]) -> list[str]:
    return [_row(*columns), "|" + "---|" * len(columns)]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _anchor(name: str) -> str:
    """One of our own: what is made of a heading such as BA³US differs from site to site."""
    return f"system-{name.replace('+', '-')}"
