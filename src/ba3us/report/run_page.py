"""The page of a run: the verdict first, then confidence, classes, accuracy, curves, features and the spec."""

from __future__ import annotations

from pathlib import Path

from ba3us import methods
from ba3us.assess.verdict import ADAPTED, HARMED, HELPED, NO_EVIDENCE, SOURCE_ONLY
from ba3us.progress import moment
from ba3us.report import sections
from ba3us.report.page import Page, Part, Verdict, Words, check_page, write_page
from ba3us.report.run_report import RunReport, counted, percent, read_run

_OUTCOMES = {
    HELPED: ("good", "Adapting likely helped."),
    NO_EVIDENCE: ("unknown", "There is no evidence that adapting helped."),
    HARMED: ("bad", "Adapting likely did harm."),
}
_MODELS = {
    ADAPTED: "The predictions are the adapted model's.",
    SOURCE_ONLY: "The predictions are source-only's, the model that was not adapted.",
}
_SECTIONS = (
    sections.confidence_section,
    sections.presence_section,
    sections.leaderboard_section,
    sections.accuracy_section,
    sections.training_curves_section,
    sections.features_section,
    sections.pictures_section,
    sections.about_section,
)


def write_run_page(
    run_dir: str | Path,
    labels: str | Path | None = None,
    out: str | Path | None = None,
    show: bool = False,
    quick: bool = False,
) -> Path:
    """Write a page of a run that opens without any other file or network; return its path.

    Parameters
    ----------
    run_dir : path
        A folder that ``ba3us adapt`` wrote.
    labels : path, optional
        Labels of the target, for accuracy: see :func:`ba3us.assess.scoring.read_target_labels`.
    out : path, optional
        By default ``report.html`` in the run directory.
    show : bool
        Write to the standard error what takes long.
    quick : bool
        Draw fewer samples of the domains, which is what takes long.
    """
    folder = Path(run_dir)
    page = Path(out) if out is not None else folder / "report.html"
    report = read_run(folder, None if labels is None else Path(labels), quick)
    check_page(page)
    with moment("Drawing the report", show):
        write_page(run_page(report), page)
    return page


def run_page(report: RunReport) -> Page:
    """All that is known of a run."""
    run, spec, about = report.run, report.run.spec, report.run.about
    subtitle = [
        methods.get(spec.method).info.title,
        f"{counted(about['source_samples'], 'labelled sample')}, {about['target_samples']:,} without labels",
        counted(about["steps"], "training step"),
        f"{about['seconds']:,.0f} seconds",
    ]
    lead: list[Part] = [_verdict(report)]
    if run.calibration is not None:
        lead.append(Words(" ".join(run.calibration.summary()), aside=True))
    sections = [section(report) for section in _SECTIONS]
    return Page(
        title=" → ".join(Path(path).stem if path else "arrays" for path in (spec.source, spec.target)),
        subtitle=" · ".join(subtitle),
        lead=lead,
        sections=[section for section in sections if section is not None],
        footer=f"Made by ba3us {about['version']} from the run {report.folder.absolute().name}. "
        "Everything is in this one file; it loads nothing.",
    )


def _verdict(report: RunReport) -> Verdict:
    """Whether adapting helped, as the run judges it; and the accuracy, if there are labels."""
    verdict, figures = report.run.verdict, list[tuple[str, str]]()
    if report.labels is not None:
        correct = report.run.best.predictions == report.labels
        value = f"{percent(correct.mean())} ({correct.sum():,} of {len(correct):,})"
        figures.append(("accuracy, by the labels given", value))
    if verdict is None:
        reason = "This run was not compared with source-only, the model that is not adapted."
        return Verdict("unknown", "Whether adapting helped is not known.", [reason], figures)
    tone, sentence = _OUTCOMES[verdict.outcome]
    for name, figure in verdict.figures.items():
        text = f"{figure:.4g}" if isinstance(figure, float) else str(figure)
        figures.append((str(name).replace("_", " "), text))
    reasons = [str(reason) for reason in verdict.reasons]
    return Verdict(tone, f"{sentence} {_MODELS[verdict.model_used]}", reasons, figures)
