"""What was asked for and how it went: settings, versions, times, how to repeat it, what was left out."""

from __future__ import annotations

import shlex
from typing import Any

from ba3us import methods
from ba3us.engine import folder as files
from ba3us.report.parts import Code, Part, Section, Table, Words
from ba3us.report.told import Told


def about_section(told: Told) -> Section:
    """The run in its own words."""
    run, about, spec = told.run, told.run.about, told.run.spec
    info = methods.get(spec.method).info
    facts: dict[str, Any] = {
        "source": spec.source or "arrays",
        "target": spec.target or "arrays",
        "method": f"{info.title} ({info.reference})",
        "settings": about.get("settings"),
        "selection": about["selected"]["rule"],
        "trained part": about.get("trained"),
        "seed": spec.seed,
        "updates": f"{about['updates']:,}",
        "time": f"{about['seconds']:,.1f} seconds",
        "finished": about.get("finished"),
        "resumed": "yes" if about.get("resumed") else None,
        "processes": about.get("processes"),
        "versions": ", ".join(
            f"{name} {version}"
            for name, version in {"ba3us": about["version"], **about.get("versions", {})}.items()
        ),
    }
    rows = [[name, str(value)] for name, value in facts.items() if value is not None]
    parts: list[Part] = [Table("What was done", ["what", "value"], rows)]
    parts += [Words(note) for note in run.notes]
    again = ["ba3us", "adapt", "--config", str(told.folder / files.SPEC), "--out", f"{told.folder}-again"]
    if spec.source is not None:
        parts += [Words("To do it again:"), Code(shlex.join(again))]
    if "command" in about:
        parts += [Words("It was asked for with:"), Code(str(about["command"]))]
    skipped = [[item.path, domain, item.reason] for domain, items in run.skipped.items() for item in items]
    if skipped:
        parts.append(Table("Files that were left out", ["file", "domain", "reason"], skipped))
    parts.append(Code((told.folder / files.SPEC).read_text(encoding="utf-8"), "The whole spec"))
    return Section("run", "The run itself", parts)
