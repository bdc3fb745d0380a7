"""The documentation page of all methods, made from the registry."""

from __future__ import annotations

import dataclasses

from ba3us import methods
from ba3us.methods.base import MethodConfig

_HEAD = """# Methods

Made by `ba3us methods --markdown`; do not edit by hand.

Fidelity: **faithful** is checked against numbers recorded from the original implementation, or is the plain
textbook form; a **variant** departs from it knowingly; a **reconstruction** had no original code to read, and
its note says what is ours. Every method takes the options of `MethodConfig` (steps, warmup_steps, batch_size,
learning_rate, …) besides its own.
"""


def methods_page() -> str:
    """Markdown: one table of all systems, then a section for each."""
    entries = list(methods.entries())
    lines = [_HEAD, "| name | title | setting | fidelity | needs |", "|---|---|---|---|---|"]
    for e in entries:
        needs = ", ".join(e.info.needs) or "–"
        link = f"[`{e.name}`](#{_anchor(e)})"
        lines.append(f"| {link} | {e.info.title} | {e.info.setting} | {e.info.fidelity} | {needs} |")
    for e in entries:
        lines += ["", f"## {e.info.title}", "", f"`{e.name}` · {e.info.reference}"]
        if e.info.note:
            lines += ["", e.info.note]
        own = _own_options(e)
        if own:
            options = ", ".join(f"`{name}={value!r}`" for name, value in own.items())
            lines += ["", f"Options of its own: {options}."]
        if e.protocols:
            lines += ["", f"Published settings for: {', '.join(e.protocols)}."]
    return "\n".join(lines) + "\n"


def _anchor(entry: methods.Entry) -> str:
    kept = "".join(c for c in entry.info.title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def _own_options(entry: methods.Entry) -> dict[str, object]:
    """What the method's config adds to, or changes in, the common one, with this system's values."""
    common = {f.name: f.default for f in dataclasses.fields(MethodConfig)}
    config = entry.config()
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    return {name: value for name, value in values.items() if name not in common or value != common[name]}
