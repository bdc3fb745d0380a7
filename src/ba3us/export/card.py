"""The model card: what a file is, what it is not for, and how to use it, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import torch
import yaml

from ba3us import __version__, methods
from ba3us.data.writing import check_new_file
from ba3us.errors import require
from ba3us.progress import visible
from ba3us.run.run import Run

_ACTIVE = re.compile(r"(^[-+=]|[\\`*_\[\]<>#|~&@])")
_MARK = "<!-- model card of ba3us -->"


def verbatim(text: object) -> str:
    """Return a name as a code span, in which nothing is markup; pipes are escaped for tables."""
    inside = visible(text).replace("|", "\\|")
    if not inside.strip():
        return "(no name)"
    fence = "`" * (1 + max(map(len, re.findall("`+", inside)), default=0))
    edge = " " if inside[0] in "` " or inside[-1] in "` " else ""
    return f"{fence}{edge}{inside}{edge}{fence}"


def prose(text: object) -> str:
    """Return a sentence in which nothing is markup."""
    return _ACTIVE.sub(r"\\\1", visible(text))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@dataclass(frozen=True)
class Facts:
    """All that a card is rendered from."""

    file: str
    run: Run
    classes: list[Any]
    presence: list[dict[str, str]]
    opset: int
    runtime: str
    difference: float
    checked_on: str


def check_new_card(path: Path) -> None:
    """Fail before the work if `path` can't be written, or is not a model card."""
    check_new_file(path)
    if path.exists():
        with path.open(encoding="utf-8", errors="replace") as file:
            is_card = file.read(len(_MARK)) == _MARK
        require(is_card, f"The file {path} is not a model card: give another file for the `card`.")


def render(facts: Facts) -> str:
    """Render the card as Markdown."""
    run, about = facts.run, facts.run.about
    entry = methods.get(run.spec.method)
    samples = run.model.blueprint.samples
    backbone = getattr(samples, "backbone", None)
    left_out = len(facts.presence) - len(facts.classes)
    return _filled(
        "card.md",
        name=verbatim(facts.file),
        kind="images" if samples.has_pixels else "feature vectors",
        count=len(facts.classes),
        source=_place(run.spec.source),
        target=_place(run.spec.target),
        pruned=f" Taken out, because they are absent in the target: {left_out} of its classes."
        if left_out
        else "",
        source_samples=about.get("source_samples", "?"),
        target_samples=about.get("target_samples", "?"),
        method=prose(f"{entry.info.title} ({run.spec.method}): {entry.info.reference}"),
        network=prose(samples.describe()),
        settings=prose(about.get("settings", "unknown")),
        steps=about.get("steps", "?"),
        selection=_selection(run),
        verdict=_verdict(None if run.verdict is None else run.verdict.to_dict()),
        options=yaml.safe_dump(run.spec.method_params, sort_keys=False).rstrip(),
        interval=", low and high its interval" if "low" in facts.presence[0] else "",
        presence=_presence(facts.presence),
        usage=_usage(samples, facts.file, len(facts.classes)),
        trained_with=prose(about.get("version", "?")),
        version=__version__,
        torch=torch.__version__.split("+")[0],
        opset=facts.opset,
        onnxruntime=facts.runtime,
        checked=facts.checked_on,
        difference=f"{facts.difference:.1e}",
        digest=run.model.digest,
        weights=f"the backbone {verbatim(backbone)}" if backbone else "the features' backbone, if any,",
    )


def _filled(template: str, **values: Any) -> str:
    text = files("ba3us.export").joinpath(template).read_text(encoding="utf-8")
    return Template(text).substitute(values)


def _place(path: str | None) -> str:
    """Return the last name of a path: its folders tell more about a machine than about the data."""
    return "arrays" if path is None else verbatim(Path(path).name)


def _selection(run: Run) -> str:
    chosen = run.about["selected"]
    return (
        f"Training saw no target label. Of {len(run.evaluations)} evaluations, the one after step "
        f"{chosen.get('step')} of the phase {verbatim(chosen.get('phase'))} was selected, by the rule "
        f"{verbatim(chosen.get('rule'))}, which needs no labels either."
    )


def _verdict(verdict: Any) -> str:
    if not isinstance(verdict, dict):
        return "Whether adapting helped was not judged: this run has no verdict."
    used = f" Model used: {prose(verdict['model_used'])}." if verdict.get("model_used") else ""
    reasons = verdict.get("reasons") or []
    listed = "".join(f"\n- {prose(reason)}" for reason in reasons) if isinstance(reasons, list) else ""
    return f"**Verdict: {prose(verdict.get('outcome', 'unknown'))}.**{used}" + (f"\n{listed}" if listed else "")


def _presence(rows: list[dict[str, str]]) -> str:
    """List present and uncertain classes, the largest proportion first, and count the absent ones."""
    listed = sorted(
        (row for row in rows if row["present"] != "absent"), key=lambda row: -_number(row["proportion"])
    )
    figures = [column for column in ("proportion", "low", "high") if column in rows[0]]
    head = ["class", "present", *figures]
    cells = [
        [verbatim(row["class"]), prose(row["present"]), *(f"{_number(row[column]):.1%}" for column in figures)]
        for row in listed
    ]
    return f"{table(head, cells)}\n\n{len(rows) - len(listed)} of {len(rows)} classes are absent."


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _usage(samples: Any, file: str, count: int) -> str:
    shape = ", ".join(map(str, samples.input_shape))
    side, size = (getattr(samples, name, None) for name in ("side", "size"))
    text = _filled(
        f"use_{samples.input_name}.md", file=repr(file), count=count, shape=shape, side=side, size=size
    )
    return text.rstrip()
