"""A study read back from a database of runs, which may hold several protocols and several settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ba3us.bench import Database, read_protocol, shipped
from ba3us.errors import did_you_mean, require

_UNIT = ["label", "task", "variant", "seed"]


@dataclass(frozen=True)
class Stored:
    """Runs of one protocol, and what is known of it."""

    rows: pd.DataFrame
    title: str
    selection: tuple[str, ...]
    paper: str | None
    notes: list[str]
    versions: str


def read_database(path: Path, protocol: str | None = None) -> Stored:
    """The runs of a protocol; it must be named where there are several."""
    require(path.is_file(), f"There is no database {path}: give a file that ba3us bench wrote.")
    with Database(path) as database:
        rows, specs = database.table().sort_values("finished", kind="stable"), database.specs()
    names = sorted(rows["protocol"].unique())
    require(bool(names), f"There is no run in {path}: run ba3us bench with --out {path} first.")
    require(
        protocol in names or (protocol is None and len(names) == 1),
        f"{path} has no runs of {protocol!r}: {did_you_mean(protocol, names)}"
        if protocol is not None
        else f"{path} has runs of several protocols: choose one with --protocol: {', '.join(names)}.",
    )
    name = protocol or names[0]
    rows = rows[rows["protocol"] == name].reset_index(drop=True)
    own = [specs[key] for key in rows["key"]]
    rows, notes = _told_apart(rows, own)
    known = read_protocol(name) if name in shipped() else None
    if known is None or not set(rows["task"]) <= {task.name for task in known.tasks}:  # somebody's own
        return Stored(rows, name, ("entropy",), None, notes, _versions(own))
    return Stored(rows, known.title, known.selection, known.paper, notes, _versions(own))


def _told_apart(rows: pd.DataFrame, specs: list[dict[str, Any]]) -> tuple[pd.DataFrame, list[str]]:
    """Runs of one label, task and seed that differ in settings are other systems: labelled by what differs."""
    flat = pd.DataFrame([_flat(spec) for spec in specs], index=rows.index).map(repr)
    labels = rows["label"].tolist()
    for label in dict.fromkeys(labels):
        part = rows[rows["label"] == label]
        same = flat.loc[part.index].groupby([part[name] for name in _UNIT])
        differ = [str(name) for name, many in (same.nunique() > 1).any().items() if many]
        for row in part.index if differ else ():
            shown = ", ".join(f"{name}={flat.at[row, name]!s}" for name in differ)
            labels[row] = f"{label} ({shown})"
    changed = sorted({before for before, now in zip(rows["label"], labels) if before != now})
    said = f"The database has runs of {', '.join(changed)} with several settings: each is a row of its own."
    return rows.assign(label=labels), [said] if changed else []


def _flat(spec: dict[str, Any], start: str = "") -> dict[str, Any]:
    """What a run depends on as one level of names; the seed is told apart anyway."""
    flat: dict[str, Any] = {}
    for name, value in spec.items():
        if isinstance(value, dict):
            flat |= _flat(value, "" if name == "options" else f"{name} ")
        elif name != "seed":
            flat[f"{start}{name}"] = value
    return flat


def _versions(specs: list[dict[str, Any]]) -> str:
    found = {", ".join(f"{name} {version}" for name, version in spec["versions"].items()) for spec in specs}
    return "; ".join(sorted(found))
