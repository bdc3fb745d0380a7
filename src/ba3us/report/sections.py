"""The sections of a run's page: each is made from a :class:`RunReport`, or None if there is nothing to show."""

from __future__ import annotations

import base64
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from ba3us import methods
from ba3us.assess.calibration import LEVEL
from ba3us.assess.projection import MAX_POINTS, MIN_POINTS, pca, tsne
from ba3us.assess.scoring import accuracies, scored, steps_before, summary
from ba3us.data.domains import evenly_spaced_indices
from ba3us.data.image_cache import UnreadableError, quiet_pillow, thumbnail
from ba3us.errors import UserError
from ba3us.report.charts import (
    N_COLOURS,
    REST,
    Curve,
    CurveAxes,
    bar,
    colour_class,
    confusion_matrix,
    curves,
    scatter,
)
from ba3us.report.page import Chart, Charts, Code, Part, Picture, Pictures, Section, Table, Words
from ba3us.report.run_report import SPACE, RunReport, counted, listed, percent
from ba3us.run import storage as files
from ba3us.run.images import list_images
from ba3us.run.predict import Both, some_rows

_LEVELS = (0.01, 0.02, LEVEL, 0.1, 0.2)  # error levels in the table


def confidence_section(report: RunReport) -> Section | None:
    """How many samples are above the threshold of each error level and, with labels, how many are wrong."""
    calibration = report.run.calibration
    if calibration is None:
        return None
    words = (
        "Confidence is the probability of the predicted class after calibration. The calibration uses held-out "
        "source samples and how well the target's neighbours agree. Above the threshold of an error level, "
        "likely no more than that proportion of predictions is wrong. This assumes that close samples belong "
        "to the same class; only labels can prove it. The table predictions.csv abstains from the rest, at a "
        f"level of {percent(LEVEL, 0)}."
    )
    columns = ["error level", "least confidence", "samples above it"]
    table, known = report.predictions, None
    if report.labels is not None and table is not None and "confidence" in table:
        confidence = pd.to_numeric(table["confidence"], errors="coerce")
        wrong = report.run.best.predictions != report.labels
        known = pd.DataFrame({"confidence": confidence, "wrong": wrong})
        columns.append("wrong of these, by the labels given")
    rows = []
    for level in _LEVELS:
        threshold = calibration.threshold(level)
        above = percent(calibration.proportion_kept(level))
        row = [percent(level, 0), "–" if threshold > 1 else f"{threshold:.3f}", above]
        if known is not None:  # the table has six digits
            errors = known["wrong"][known["confidence"] >= threshold - 1e-6]
            row.append(percent(float(errors.mean())) if len(errors) else "–")
        rows.append(row)
    title, marked = "Samples above the threshold of each error level", [_LEVELS.index(LEVEL)]
    parts: list[Part] = [Words(words), Table(title, columns, rows, [1, 2, 3], marked)]
    if calibration.cautions:
        cautions = " ".join(calibration.cautions)
        parts.append(Words(f"No error level can be promised here. {cautions}", aside=True))
    return Section("confidence", "Confidence of single predictions", parts)


_SIGNS = {"present": "✓", "absent": "–", "uncertain": "?"}
_MAX_NAMED = 12  # classes in a sentence


def presence_section(report: RunReport) -> Section:
    """Every class with its proportion of the target and whether it is present; intervals if there are some."""
    numbers = [n for n in ("proportion", "mean_probability", "low", "high") if n in report.presence]
    table = report.presence.assign(
        **{name: pd.to_numeric(report.presence[name], errors="coerce") for name in numbers}
    ).sort_values("proportion", ascending=False, kind="stable")
    has_intervals = {"low", "high"} <= set(table)
    largest = max(table[["proportion", "high"] if has_intervals else ["proportion"]].max().max(), 1e-9)
    interval = ["interval"] if has_intervals else []
    columns = ["class", "in the target?", "", "proportion", *interval, "mean probability"]
    rows = []
    for row in table.to_dict("records"):
        proportion, ends, between = percent(row["proportion"]), None, []
        words = f"{row['class']}: {proportion}"
        if has_intervals:
            ends = (row["low"] / largest, row["high"] / largest)
            between = [f"{percent(row['low'])} … {percent(row['high'])}"]
            words += f", between {between[0]}"
        drawn = bar(row["proportion"] / largest, ends, words)
        present = f"{_SIGNS.get(row['present'], '')}{SPACE}{row['present']}"
        mean = percent(row["mean_probability"])
        rows.append([row["class"], present, drawn, proportion, *between, mean])
    marked = np.flatnonzero(table["present"] == "present").tolist()
    note = (
        "Proportion: the part of the target's samples predicted as the class. Bars are relative to the largest."
    )
    title = "Classes by their proportion of the target"
    parts: list[Part] = [
        Words(_presence_words(table)),
        Table(title, columns, rows, range(3, len(columns)), marked, notes=[note]),
    ]
    return Section("classes", "Classes in the target", parts)


def _presence_words(table: pd.DataFrame) -> str:
    present, uncertain = (
        table[table["present"] == word]["class"].tolist() for word in ("present", "uncertain")
    )
    classes = counted(len(table), "class", "classes")
    first = f"The target likely has {len(present)} of {classes}" if present else f"None of {classes} is clear"
    words = [_named(first, present)]
    words += [_named(f"{len(uncertain)} are uncertain", uncertain)] if uncertain else []
    return " ".join([*words, "This is estimated from predictions, without labels of the target."])


def _named(start: str, names: list[str]) -> str:
    """A sentence that names the first of them."""
    rest = len(names) - _MAX_NAMED
    first = names if rest <= 0 else [*names[:_MAX_NAMED], f"{rest} more"]
    return f"{start}: {listed(first)}." if names else f"{start}."


def leaderboard_section(report: RunReport) -> Section | None:
    """The candidates behind an automatic choice, as the table of the run directory has them."""
    table = report.leaderboard
    if table is None or table.empty:
        return None
    texts, chosen = table.map(_rounded), np.zeros(len(table), dtype=bool)
    if "chosen" in table:
        chosen = table["chosen"].str.lower().isin({"yes", "true", "1"}).to_numpy()
        texts["chosen"] = np.where(chosen, "✓ chosen", "")
    numeric = [n for n, c in enumerate(table) if n and pd.to_numeric(table[c], errors="coerce").notna().all()]
    columns = [str(c).replace("_", " ") for c in texts]
    marked = np.flatnonzero(chosen).tolist()
    parts: list[Part] = [
        Words("Several candidates were trained and one was chosen, without labels of the target."),
        Table("Candidates", columns, texts.to_numpy().tolist(), numeric, marked),
    ]
    return Section("leaderboard", "Candidates behind the choice", parts)


def _rounded(text: str) -> str:
    """Long fractions with four digits; everything else as it is."""
    try:
        return f"{float(text):.4g}" if "." in text else text
    except ValueError:
        return text


_MAX_CLASSES = 40  # in the confusion matrix
_EVALUATIONS = {
    "selected": "the selected one, chosen without labels",
    "last": "the last one",
    "oracle": "the best one, which only labels can tell",
}


def accuracy_section(report: RunReport) -> Section | None:
    """What labels show that were given afterwards: accuracy, recall of each class, the confusion matrix."""
    if report.labels is None:
        return None
    counts = np.zeros((len(report.classes),) * 2, dtype=np.int64)
    np.add.at(counts, (report.labels, report.run.best.predictions), 1)
    parts: list[Part] = [
        _evaluations(report, report.labels),
        Charts([_confusion(report, counts), _recall(report, counts)]),
    ]
    absent = int(counts[:, counts.sum(axis=1) == 0].sum())
    if absent:
        of_all = percent(absent / counts.sum())
        parts.append(Words(f"{absent:,} samples ({of_all}) are predicted as classes that the target lacks."))
    return Section("accuracy", "Accuracy", parts)


def _evaluations(report: RunReport, labels: np.ndarray) -> Table:
    names, marked = _EVALUATIONS, [0]
    scores = summary(report.run, labels)
    if not report.has_curves:  # an automatic run: its candidates, and what is used
        evaluations = report.run.evaluations
        names, marked = {e.phase: e.phase for e in evaluations}, [report.run.best_index]
        places = {e.phase: place for place, e in enumerate(evaluations)}
        predictions = np.stack([e.predictions for e in evaluations])
        scores = scored(predictions, np.ones(len(evaluations)), places, labels)
    rows = [
        [words, percent(scores[name].accuracy), percent(scores[name].absent), str(scores[name].lost)]
        for name, words in names.items()
    ]
    columns = ["evaluation", "accuracy", "predicted as absent classes", "classes lost"]
    note = "Classes lost: present classes with a recall below a tenth."
    return Table("Accuracy by the labels that were given", columns, rows, [1, 2, 3], marked, notes=[note])


def _confusion(report: RunReport, counts: np.ndarray) -> Chart:
    """Classes with samples against all predicted classes; of very many, those with most samples."""
    rows = _most_frequent(counts.sum(axis=1))
    columns = _most_frequent(counts.sum(axis=0) + counts.sum(axis=1))
    left_out = int((counts.sum(axis=1) > 0).sum()) - len(rows)
    wrong = counts - np.diag(np.diag(counts))
    i, j = np.unravel_index(wrong.argmax(), wrong.shape)
    words = "Every prediction is correct."
    if wrong.any():
        times = counted(wrong[i, j], "time")
        words = f"The most frequent error: {report.classes[i]} is predicted as {report.classes[j]}, {times}."
    if left_out:
        words += f" {left_out} classes with fewer samples are not drawn."
    names = [[report.classes[c] for c in axis] for axis in (rows, columns)]
    return confusion_matrix("Confusion matrix", words, counts[np.ix_(rows, columns)], *names)


def _most_frequent(totals: np.ndarray) -> np.ndarray:
    """Classes that have samples at all, at most so many, in their own order."""
    return np.sort(np.argsort(-totals, kind="stable")[: min(_MAX_CLASSES, int((totals > 0).sum()))])


def _recall(report: RunReport, counts: np.ndarray) -> Table:
    rows = []
    totals = counts.sum(axis=1)
    for c in np.argsort(-totals, kind="stable")[: int((totals > 0).sum())]:
        name, recall = report.classes[c], counts[c, c] / totals[c]
        others = np.where(np.arange(len(counts)) == c, 0, counts[c])
        error = f"{report.classes[others.argmax()]} ({others.max():,})" if others.any() else "–"
        drawn = bar(recall, None, f"{name}: {percent(recall)}")
        rows.append([name, f"{totals[c]:,}", drawn, percent(recall), error])
    columns = ["class", "samples", "", "recall", "most frequent error"]
    return Table("Recall of each class", columns, rows, [1, 3])


_MAX_LOSSES = 300  # points of the loss
_SCORES = {  # title, and how to read it
    "entropy": ("Entropy of the predictions", "Lower: the model is more confident, rightly or not."),
    "information_maximisation": (
        "Information maximisation",
        "Higher: confident predictions that are not all of one class.",
    ),
    "effective_classes": (
        "Effective classes",
        "Over how many classes the predictions spread. A fall to one or two is a collapse.",
    ),
    "nuclear_norm": ("Nuclear norm", "Higher: confident predictions that spread over classes."),
    "density": ("Neighbourhood density", "Higher: samples lie in dense groups."),
}


def training_curves_section(report: RunReport) -> Section:
    """Class proportions, label-free scores, loss and, with labels, accuracy over the training steps."""
    run, history = report.run, report.run.history
    steps, evaluated = steps_before(history), history["score"].notna()
    at, evaluations = steps[evaluated].to_numpy(float), history[evaluated]
    selected = run.best_index
    if not report.has_curves:  # an automatic run: its evaluations are not those of the history
        places = np.flatnonzero(evaluations["selected"].eq(True))
        selected = int(places[0]) if len(places) else len(evaluations) - 1
    phases = [
        (float(steps[part.index].min()), str(name)) for name, part in history.groupby("phase", sort=False)
    ]
    axes = CurveAxes(float(at[selected]), float(steps.max()), phases)
    table = pd.DataFrame({"training steps": at.astype(int)})
    charts, scores = [_proportions(report, at, axes)] if report.has_curves else [], []
    if report.labels is not None and report.has_curves:
        table["accuracy"] = accuracies(run.evaluations, report.labels)["accuracy"].to_numpy()
        accuracy = table["accuracy"].to_numpy()
        words = (
            "By the labels that were given afterwards; the training did not know them. The best of all "
            f"evaluations has {percent(accuracy.max())}, after {at[accuracy.argmax()]:,.0f} steps."
        )
        charts.insert(0, curves("Accuracy", words, [Curve("accuracy", at, accuracy)], axes, percent=True))
    for column in [c for c in map(str, history) if c.startswith("target_")]:
        name, values = column.removeprefix("target_"), evaluations[column].to_numpy(float)
        table[name.replace("_", " ")] = values
        title, words = _SCORES.get(name, (name.replace("_", " ").capitalize(), "A label-free score."))
        bounds = (0,) if name == "effective_classes" else ()
        scores.append(curves(title, words, [Curve(title, at, values)], axes, bounds=bounds, small=True))
    if "loss" in history:
        loss = history["loss"].dropna()
        loss = loss.iloc[:: max(1, -(-len(loss) // _MAX_LOSSES))]
        drawn = Curve("loss", steps[loss.index].to_numpy(float), loss.to_numpy(float))
        words = "The sum of the method's losses of one batch."
        scores.append(curves("Loss", words, [drawn], axes, small=True))
    numbers = [
        [f"{row[0]:,}" + (" (selected)" if n == selected else ""), *(f"{v:.4g}" for v in row[1:])]
        for n, row in enumerate(table.itertuples(index=False, name=None))
    ]
    columns, numeric = list(map(str, table)), range(1, table.shape[1])
    words = (
        f"The target was evaluated {counted(len(at), 'time')} during training. The selected weights are those "
        f"after {axes.selected:,.0f} steps. The rule “{run.about['selected']['rule']}” chose them without "
        "labels of the target."
    )
    parts: list[Part] = [
        Words(words),
        Charts(charts) if report.has_curves else _candidate_proportions(report),
        Words("Label-free scores need no labels of the target. None of them is proof."),
        Charts(scores, small=True),
        Table("Numbers of every evaluation", columns, numbers, numeric, [selected], closed=True),
    ]
    return Section("training", "Training curves", parts)


def _candidate_proportions(report: RunReport) -> Table:
    """Class proportions of the candidates of an automatic run; they are no points in time."""
    evaluations = report.run.evaluations
    proportions = np.stack([e.mean_probabilities for e in evaluations]).astype(float)
    order = np.argsort(-proportions[report.run.best_index], kind="stable")
    rows = [[report.classes[c], *(percent(p) for p in proportions[:, c])] for c in order]
    columns = ["class", *(e.phase for e in evaluations)]
    return Table("Class proportions of the candidates", columns, rows, range(1, len(columns)))


def _proportions(report: RunReport, at: np.ndarray, axes: CurveAxes) -> Chart:
    """Mean probabilities of the largest classes; all others in one curve."""
    means = np.stack([e.mean_probabilities for e in report.run.evaluations]).astype(float)
    largest = np.argsort(-means[report.run.best_index], kind="stable")[:N_COLOURS]
    drawn = [Curve(report.classes[c], at, means[:, c], colour_class(n)) for n, c in enumerate(largest)]
    rest = means.shape[1] - len(largest)
    if rest:
        drawn.append(Curve(f"{rest} others, sum", at, 1 - means[:, largest].sum(axis=1), REST))
    first = (
        f"{report.classes[largest[0]]} has the largest, {percent(means[report.run.best_index, largest[0]])}."
    )
    words = f"The mean probability of each class over the target. {first}"
    return curves("Class proportions", words, drawn, axes, bounds=(0,), percent=True)


_QUICK, _QUICK_IMAGES = 300, 60  # samples in t-SNE, and images that are opened, of a quick page


def features_section(report: RunReport) -> Section:
    """PCA and t-SNE of some samples of both domains, if they can be opened again; else the reason."""
    try:
        parts = _projections(report)
    except (UserError, OSError) as error:
        parts = [
            Words(f"This part is left out, because the samples can't be opened again. {error}", aside=True)
        ]
    return Section("features", "Source and target in the adapted features", parts)


def _projections(report: RunReport) -> list[Part]:
    run = report.run
    max_rows = _QUICK_IMAGES if report.quick and run.model.blueprint.samples.has_pixels else MAX_POINTS
    sizes = run.about["source_samples"], run.about["target_samples"]
    both = some_rows(run.model, run.spec, sizes, max_rows // 2)
    features = np.concatenate([domain.features for domain in both])
    n_of_class = np.bincount(both.target.classes, minlength=len(report.classes))
    colours = {c: n for n, c in enumerate(np.argsort(-n_of_class, kind="stable")[:N_COLOURS])}
    names = [report.classes[c] for c in colours]
    points = _points(report, both)
    points["colour"] = points["class"].map(colours).fillna(-1).astype(int)
    drawn = " and ".join(
        f"{len(domain.names):,}"
        + (f" of {domain.total:,}" if len(domain.names) < domain.total else "")
        + f" {name} samples"
        for name, domain in zip(("source", "target"), both)
    )
    xy, explained = pca(features)
    words = f"{drawn}, along the two directions of most variance ({percent(explained.sum(), 0)} of all of it)."
    axes = f"first direction, {percent(explained[0], 0)}", f"second direction, {percent(explained[1], 0)}"
    charts = [scatter("PCA", words, points.assign(x=xy[:, 0], y=xy[:, 1]), names, axes)]
    if len(features) >= MIN_POINTS:
        some = evenly_spaced_indices(len(features), _QUICK if report.quick else MAX_POINTS)
        with threadpool_limits(1):  # many threads wait for each other longer than they compute
            xy = tsne(features[some])
        part = drawn if len(some) == len(features) else f"{len(some)} of these samples"
        words = f"{part}. Similar samples lie together; distances between groups mean little."
        charts.append(scatter("t-SNE", words, points.iloc[some].assign(x=xy[:, 0], y=xy[:, 1]), names))
    words = (
        "Each mark is a sample. Squares are the source's, coloured by their labels. Circles are the target's, "
        "coloured by their predictions. Where the target's samples lie inside the source's groups, the model "
        "finds them alike; that does not make its predictions correct."
    )
    choices = (("classes", "classes"), ("domains", "source and target"))
    command = f"The command “ba3us report {report.folder}” draws more samples."
    more = [Words(command)] if report.quick else []
    return [Words(words), Charts(charts, choices), *more, _points_table(report, both)]


def _points(report: RunReport, both: Both) -> pd.DataFrame:
    """One row per mark: domain, class, and its tooltip."""
    classes, labels = report.classes, {}
    if report.labels is not None:
        names = report.paths or [f"row {row}" for row in range(len(report.labels))]
        labels = {name: f"\nlabelled {classes[c]}" for name, c in zip(names, report.labels)}
    rows: list[dict[str, Any]] = [
        {"domain": "source", "class": c, "text": f"source, {name}\nlabelled {classes[c]}"}
        for name, c in zip(both.source.names, both.source.classes)
    ]
    for name, c, p in zip(both.target.names, both.target.classes, both.target.probabilities):
        words = f"target, {name}\npredicted as {classes[c]} ({percent(p)}){labels.get(name, '')}"
        rows.append({"domain": "target", "class": c, "text": words})
    return pd.DataFrame(rows, dtype=object)  # Arrow's strings refuse names that are no text


def _points_table(report: RunReport, both: Both) -> Table:
    n_classes = len(report.classes)
    n_source, n_target = (np.bincount(domain.classes, minlength=n_classes) for domain in both)
    sums = np.bincount(both.target.classes, both.target.probabilities, minlength=n_classes)
    means = np.divide(sums, n_target, out=np.full(n_classes, np.nan), where=n_target > 0)
    rows = [
        [report.classes[c], f"{n_source[c]:,}", f"{n_target[c]:,}", percent(means[c])]
        for c in np.argsort(-n_target, kind="stable")
    ]
    columns = ["class", "source samples", "target samples predicted as it", "mean probability"]
    return Table("Samples in the drawings, by class", columns, rows, [1, 2, 3], closed=True)


_N_PICTURES = 8  # at either end
_SIDE = 150  # pixels of their longer side


def pictures_section(report: RunReport) -> Section | None:
    """The least and the most confident images of the target, small and inside the page."""
    run, table = report.run, report.predictions
    if not run.model.blueprint.samples.has_pixels or table is None or not report.paths:
        return None
    try:
        root = list_images(str(run.spec.target), run.spec.root).root
    except UserError as error:
        words = Words(f"This part is left out, because the images are not there. {error}", aside=True)
        return Section("images", "Images", [words])
    column = "probability" if run.calibration is None else "confidence"
    order = np.argsort(table[column].astype(float).to_numpy(), kind="stable")
    most = order[::-1][: min(_N_PICTURES, max(0, len(order) - _N_PICTURES))]
    rows = {
        title: _pictures(report, table.loc[places, ["path", "class", column]], root)
        for title, places in (("Least confident", order[:_N_PICTURES]), ("Most confident", most))
    }
    parts: list[Part] = [Words("Check the least confident ones first: errors are most likely there.")]
    parts += [Pictures(title, pictures) for title, pictures in rows.items() if pictures]
    return Section("images", "Images", parts)


def _pictures(report: RunReport, table: pd.DataFrame, root: Path) -> list[Picture]:
    """Those that can still be read."""
    pictures = []
    for row, path, name, confidence in table.itertuples(name=None):
        try:
            with quiet_pillow():
                data = thumbnail(root / path, _SIDE)
        except UnreadableError:
            continue
        lines = [f"predicted as {name}, {percent(float(confidence))}"]
        lines += [] if report.labels is None else [f"labelled {report.classes[report.labels[row]]}"]
        pictures.append(Picture(f"data:image/jpeg;base64,{base64.b64encode(data).decode()}", path, lines))
    return pictures


def about_section(report: RunReport) -> Section:
    """What was asked for and how it went: settings, versions, times, how to repeat it, what was left out."""
    run, about, spec = report.run, report.run.about, report.run.spec
    info = methods.get(spec.method).info
    versions = {"ba3us": about["version"], **about.get("versions", {})}
    facts: dict[str, Any] = {
        "source": spec.source or "arrays",
        "target": spec.target or "arrays",
        "method": f"{info.title} ({info.reference})",
        "settings": about.get("settings"),
        "selection": about["selected"]["rule"],
        "trained part": about.get("trained"),
        "seed": spec.seed,
        "training steps": f"{about['steps']:,}",
        "time": f"{about['seconds']:,.1f} seconds",
        "finished": about.get("finished"),
        "resumed": "yes" if about.get("resumed") else None,
        "processes": about.get("processes"),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    rows = [[name, str(value)] for name, value in facts.items() if value is not None]
    parts: list[Part] = [Table("Settings and times", ["name", "value"], rows)]
    parts += [Words(note) for note in run.notes]
    spec_file = report.folder / files.SPEC
    if spec.source is not None:
        again = ["ba3us", "adapt", "--config", str(spec_file), "--out", f"{report.folder}-again"]
        parts += [Words("To repeat it:"), Code(shlex.join(again))]
    if "command" in about:
        parts += [Words("The command was:"), Code(str(about["command"]))]
    skipped = [[item.path, domain, item.reason] for domain, items in run.skipped.items() for item in items]
    if skipped:
        parts.append(Table("Files that were left out", ["file", "domain", "reason"], skipped))
    parts.append(Code(spec_file.read_text(encoding="utf-8"), "The whole spec"))
    return Section("run", "The run itself", parts)
