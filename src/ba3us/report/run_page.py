"""The page of a run: the verdict first, then confidence, classes, course, features, images and the spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ba3us import methods
from ba3us.progress import moment
from ba3us.report.page import Page, Verdict, check_page, write_page
from ba3us.report.run_report import RunReport, counted, percent, read_run
from ba3us.report.sections import (
    about_section,
    accuracy_section,
    confidence_section,
    features_section,
    leaderboard_section,
    pictures_section,
    presence_section,
    statement,
    training_curves_section,
)

_ANSWERS = {
    "helped": ("good", "Adapting helped."),
    "no evidence": ("unknown", "There is no evidence that adapting helped."),
    "harmed": ("bad", "Adapting did harm."),
}
_SERVED = {
    "adapted": "The predictions are the adapted model's.",
    "source-only": "The predictions are source-only's, the model that was not adapted.",
}


def write_run_page(
    run_dir: str | Path,
    labels: str | Path | None = None,
    out: str | Path | None = None,
    show: bool = False,
    quick: bool = False,
) -> Path:
    """Write a page of a run that opens without any other file or network; returns where it is.

    Parameters
    ----------
    run_dir : path
        A folder that ``ba3us adapt`` wrote.
    labels : path, optional
        Labels of the target, for accuracy: see :func:`ba3us.assess.scoring.read_target_labels`.
    out : path, optional
        By default ``report.html`` in the run directory.
    show : bool
        Say on the standard error what takes long.
    quick : bool
        Draw fewer rows of the domains, which is what takes long.
    """
    folder = Path(run_dir)
    page = Path(out) if out is not None else folder / "report.html"
    told = read_run(folder, None if labels is None else Path(labels), quick)
    check_page(page)
    with moment("Drawing the report", show):
        write_page(run_page(told), page)
    return page


def run_page(told: RunReport) -> Page:
    """All that is known of a run."""
    made = [
        confidence_section(told),
        presence_section(told),
        leaderboard_section(told),
        accuracy_section(told),
        training_curves_section(told),
        features_section(told),
        pictures_section(told),
        about_section(told),
    ]
    spec, about = told.run.spec, told.run.about
    ends = [
        Path(path).stem if path else name for path, name in ((spec.source, "arrays"), (spec.target, "arrays"))
    ]
    return Page(
        title=" → ".join(ends),
        subtitle=" · ".join(
            [
                methods.get(spec.method).info.title,
                f"{counted(about['source_samples'], 'labelled row')}, "
                f"{about['target_samples']:,} without labels",
                counted(about["steps"], "update"),
                f"{about['seconds']:,.0f} seconds",
            ]
        ),
        lead=[verdict(told), *statement(told)],
        sections=[section for section in made if section is not None],
        footer=f"Made by ba3us {about['version']} from the run {told.folder.absolute().name}. "
        "Everything is in this one file; it loads nothing.",
    )


def verdict(told: RunReport) -> Verdict:
    """Whether adapting helped, as the run says; and the accuracy, if there are labels."""
    given, figures = told.run.verdict, _accuracy(told)
    if given is None or given.outcome not in _ANSWERS:
        return Verdict(
            "unknown",
            "Whether adapting helped is not known.",
            ["This run was not compared with source-only, the model that is not adapted."],
            figures,
        )
    tone, sentence = _ANSWERS[given.outcome]
    served = _SERVED.get(given.model_used, "")
    figures += [(str(name).replace("_", " "), _figure(value)) for name, value in given.figures.items()]
    return Verdict(tone, f"{sentence} {served}".strip(), [str(reason) for reason in given.reasons], figures)


def _accuracy(told: RunReport) -> list[tuple[str, str]]:
    if told.labels is None:
        return []
    hits = told.run.best.predictions == told.labels
    return [("accuracy, by the labels given", f"{percent(hits.mean())} ({hits.sum():,} of {len(hits):,})")]


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
