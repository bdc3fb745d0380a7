"""What was asked for and how it went: settings, versions, times, how to repeat it, what was left out."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from ba3us import methods
from ba3us.assess.calibration import LEVEL, Calibration
from ba3us.assess.scoring import accuracies, scored, summary, updates_before
from ba3us.data.domains import evenly_spaced_indices
from ba3us.data.image_cache import UnreadableError, quiet_pillow, thumbnail
from ba3us.errors import UserError
from ba3us.paper.figures import MOST_POINTS, tsne
from ba3us.report.charts import LOOKS, REST, Curve, CurveAxes, bar, cloud, curves, look, matrix
from ba3us.report.page import Cell, Chart, Charts, Code, Part, Picture, Pictures, Section, Table, Words
from ba3us.report.run_report import SPACE, RunReport, counted, listed, percent
from ba3us.run import storage as files
from ba3us.run.opening import Images, list_images
from ba3us.run.predict import Both, some_rows

# --- classes ----------------------------------------------------------------------------------------------
# Which classes the target holds, as far as the run can tell.


_PRESENT = {
    word: f"{sign}{SPACE}{said}"
    for word, sign, said in (
        ("present", "✓", "present"),
        ("absent", "–", "absent"),
        ("uncertain", "?", "uncertain"),
    )
}
_MOST_NAMED = 12  # classes in a sentence


def presence_section(told: RunReport) -> Section:
    """Every class with its share of the target and whether it is present; intervals where there are some."""
    table = _class_numbers(told.presence).sort_values("proportion", ascending=False, kind="stable")
    intervals = {"low", "high"} <= set(table)
    largest = max(table[["proportion", "high"] if intervals else ["proportion"]].max().max(), 1e-9)
    columns = [
        "class",
        "in the target?",
        "",
        "proportion",
        *(["interval"] if intervals else []),
        "mean probability",
    ]
    rows = [_row(row, largest, intervals) for row in table.to_dict("records")]
    marked = np.flatnonzero(table["present"] == "present").tolist()
    words = "share: how many of the target's rows the model takes for the class. Bars are drawn to the largest."
    parts: list[Part] = [
        Words(_held(table)),
        Table(
            "Classes by their share of the target",
            columns,
            rows,
            numeric=range(3, len(columns)),
            marked=marked,
            notes=[words],
        ),
    ]
    return Section("classes", "Classes in the target", parts)


def _class_numbers(presence: pd.DataFrame) -> pd.DataFrame:
    """The texts of the file as numbers, where they are some."""
    known = [name for name in ("proportion", "mean_probability", "low", "high") if name in presence]
    return presence.assign(**{name: pd.to_numeric(presence[name], errors="coerce") for name in known})


def _row(row: dict[Hashable, Any], largest: float, intervals: bool) -> list[Cell]:
    """Name, answer, bar, share, interval and mean probability of one class."""
    share = percent(row["proportion"])
    said = f"{percent(row['low'])} … {percent(row['high'])}" if intervals else ""
    ends = (row["low"] / largest, row["high"] / largest) if intervals else None
    words = f"{row['class']}: {share}" + (f", between {said}" if said else "")
    cells = [
        row["class"],
        _PRESENT.get(row["present"], row["present"]),
        bar(row["proportion"] / largest, ends, words),
    ]
    return [*cells, share, *([said] if intervals else []), percent(row["mean_probability"])]


def _held(table: pd.DataFrame) -> str:
    """The answer in a sentence or two."""
    present = table[table["present"] == "present"]["class"].tolist()
    unsure = table[table["present"] == "uncertain"]["class"].tolist()
    seems = f"The target seems to hold {len(present)} of {counted(len(table), 'class', 'classes')}"
    said = [_named(seems, present)] + ([_named(f"{len(unsure)} can't be told", unsure)] if unsure else [])
    return " ".join([*said, "This is judged from predictions; no label of the target was used."])


def _named(start: str, names: list[str]) -> str:
    """A sentence that names the first of them."""
    if not names:
        return f"{start}."
    more = len(names) - _MOST_NAMED
    shown = names if more <= 0 else [*names[:_MOST_NAMED], f"{more} more"]
    return f"{start}: {listed(shown)}."


# --- confidence -------------------------------------------------------------------------------------------
# How sure single predictions are: what is kept at each error level and, with labels, what of it was wrong.


_SHOWN = (0.01, 0.02, LEVEL, 0.1, 0.2)


def statement(told: RunReport) -> list[Part]:
    """What may be expected at the usual error level, in words."""
    return [] if told.run.calibration is None else [Words(" ".join(told.run.calibration.said()), aside=True)]


def confidence_section(told: RunReport) -> Section | None:
    """Only of runs that were calibrated."""
    made = told.run.calibration
    if made is None:
        return None
    words = (
        "Confidence is the probability of the predicted class after calibration, by source rows that were put "
        "aside and by how well the target's neighbours agree. Keep only what is above the threshold of an "
        "error level, and no more than that share of it should be wrong, as far as rows that lie close share a "
        "class; only labels can prove it. The table predictions.csv abstains from the rest, at a level of "
        f"{percent(LEVEL, 0)}."
    )
    parts: list[Part] = [Words(words), _levels(told, made)]
    parts += (
        [Words(f"No level can be promised here. {' '.join(made.cautions)}", aside=True)]
        if made.cautions
        else []
    )
    return Section("confidence", "How sure single predictions are", parts)


def _levels(told: RunReport, made: Calibration) -> Table:
    columns = ["error level", "keep from confidence", "rows kept"]
    truth = _truth(told)
    columns += [] if truth is None else ["wrong of these, by the labels given"]
    rows = []
    for level in _SHOWN:
        least = made.threshold(level)
        row = [percent(level, 0), "–" if least > 1 else f"{least:.3f}", percent(made.share_kept(level))]
        if truth is not None:
            kept = truth["wrong"][truth["confidence"] >= least - 1e-6]  # of six digits
            row.append(percent(float(kept.mean())) if len(kept) else "–")
        rows.append(row)
    return Table("What is kept at an error level", columns, rows, range(1, len(columns)), [_SHOWN.index(LEVEL)])


def _truth(told: RunReport) -> pd.DataFrame | None:
    """Confidence of every row and whether it is wrong, if labels were given."""
    if told.labels is None or told.predictions is None or "confidence" not in told.predictions:
        return None
    sure = pd.to_numeric(told.predictions["confidence"], errors="coerce")
    return pd.DataFrame({"confidence": sure, "wrong": np.asarray(told.run.best.predictions != told.labels)})


# --- leaderboard ------------------------------------------------------------------------------------------
# The runs behind an automatic choice, as the table of the run directory has them.


_YES = {"yes", "true", "1"}


def leaderboard_section(told: RunReport) -> Section | None:
    """The runs behind an automatic choice, if there was one."""
    table = told.leaderboard
    if table is None or table.empty:
        return None
    chosen = [] if "chosen" not in table else np.flatnonzero(table["chosen"].str.lower().isin(_YES)).tolist()
    texts = table.map(_rounded)
    if "chosen" in table:
        texts["chosen"] = ["✓ chosen" if n in chosen else "" for n in range(len(table))]
    numeric = [n for n, c in enumerate(table) if n and all(map(_is_number, table[c]))]
    columns = [str(c).replace("_", " ") for c in texts]
    parts: list[Part] = [
        Words("Several runs were made and one was chosen, without labels of the target."),
        Table("The runs that were compared", columns, texts.to_numpy().tolist(), numeric, chosen),
    ]
    return Section("leaderboard", "Runs behind the choice", parts)


def _is_number(text: str) -> bool:
    try:
        return not np.isnan(float(text))
    except ValueError:
        return False


def _rounded(text: str) -> str:
    """Long fractions to four digits; everything else as it is."""
    try:
        return f"{float(text):.4g}" if "." in text else text
    except ValueError:
        return text


# --- truth ------------------------------------------------------------------------------------------------
# What labels say that were given afterwards: accuracy, recall of each class, what is taken for what.


_MOST_CLASSES = 40  # in the matrix
_WORDS = {
    "selected": "kept, chosen without labels",
    "last": "the last one",
    "oracle": "the best one, which only labels can tell",
}


def accuracy_section(told: RunReport) -> Section | None:
    """Only where labels were given."""
    if told.labels is None:
        return None
    counts = np.zeros((len(told.classes),) * 2, dtype=np.int64)
    np.add.at(counts, (told.labels, told.run.best.predictions), 1)
    parts: list[Part] = [_evaluations(told), Charts([_confusion(told, counts), _recall(told, counts)])]
    unheld = int(counts[:, counts.sum(axis=1) == 0].sum())
    if unheld:
        share = percent(unheld / counts.sum())
        parts.append(Words(f"{unheld:,} rows ({share}) are taken for classes that the target does not hold."))
    return Section("accuracy", "Accuracy", parts)


def _evaluations(told: RunReport) -> Table:
    assert told.labels is not None
    names, marked = _WORDS, [0]
    found = summary(told.run, told.labels)
    if not told.timed:  # an automatic run: what it compared, and what it serves
        looks = told.run.evaluations
        names, marked = {look.phase: look.phase for look in looks}, [told.run.best_index]
        rows_of = {look.phase: row for row, look in enumerate(looks)}
        found = scored(np.stack([e.predictions for e in looks]), np.ones(len(looks)), rows_of, told.labels)
    rows = [
        [words, percent(found[name].accuracy), percent(found[name].absent), str(found[name].lost)]
        for name, words in names.items()
    ]
    columns = ["evaluation", "accuracy", "given to absent classes", "classes lost"]
    note = "classes lost: present classes that are recognised in less than a tenth of their rows."
    return Table("Accuracy by the labels that were given", columns, rows, [1, 2, 3], marked, notes=[note])


def _confusion(told: RunReport, counts: np.ndarray) -> Chart:
    """True classes that there are, against all that were predicted; of very many, those with most rows."""
    rows = _largest(counts.sum(axis=1))
    columns = _largest(counts.sum(axis=0) + counts.sum(axis=1))
    left = int((counts.sum(axis=1) > 0).sum()) - len(rows)
    wrong = counts - np.diag(np.diag(counts))
    i, j = np.unravel_index(wrong.argmax(), wrong.shape)
    said = (
        f"Most often {told.classes[i]} is taken for {told.classes[j]}: {wrong[i, j]:,} times."
        if wrong.any()
        else "Every row is right."
    )
    more = f" {left} classes with fewer rows are not drawn." if left else ""
    names = [[told.classes[c] for c in axis] for axis in (rows, columns)]
    return matrix("What is taken for what", said + more, counts[np.ix_(rows, columns)], *names)


def _largest(totals: np.ndarray) -> np.ndarray:
    """Classes that have rows at all, at most so many, in their own order."""
    return np.sort(np.argsort(-totals, kind="stable")[: min(_MOST_CLASSES, int((totals > 0).sum()))])


def _recall(told: RunReport, counts: np.ndarray) -> Table:
    rows = []
    totals = counts.sum(axis=1)
    for c in np.argsort(-totals, kind="stable")[: int((totals > 0).sum())]:
        share = counts[c, c] / totals[c]
        others = np.where(np.arange(len(counts)) == c, 0, counts[c])
        mistake = f"{told.classes[others.argmax()]} ({others.max():,})" if others.any() else "–"
        drawn = bar(share, None, f"{told.classes[c]}: {percent(share)}")
        rows.append([told.classes[c], f"{totals[c]:,}", drawn, percent(share), mistake])
    columns = ["class", "rows", "", "recall", "else mostly taken for"]
    return Table("Recall: how much of each class is recognised", columns, rows, [1, 3])


# --- course -----------------------------------------------------------------------------------------------
# The course of a training: class weights, label-free scores and, where labels were given, accuracy.


_MOST_POINTS = 300  # of the loss
# name → (title, what it says)
_SCORES = {
    "entropy": ("Entropy of the predictions", "Lower: the model is surer of each row, rightly or not."),
    "information_maximisation": (
        "Information maximisation",
        "Higher: sure of each row, yet not all of them taken for one class.",
    ),
    "effective_classes": (
        "Effective classes",
        "Over how many classes the predictions spread. A fall to one or two is a collapse.",
    ),
    "nuclear_norm": ("Nuclear norm", "Higher: sure and spread over classes."),
    "density": ("Neighbourhood density", "Higher: rows lie in dense groups."),
}


def training_curves_section(told: RunReport) -> Section:
    """Everything over the updates."""
    run, history = told.run, told.run.history
    updates = updates_before(history)
    looks = history["score"].notna()
    at = updates[looks].to_numpy(float)
    kept = run.best_index if told.timed else _kept(history[looks])
    starts = [
        (float(updates[part.index].min()), str(name)) for name, part in history.groupby("phase", sort=False)
    ]
    course = CurveAxes(float(at[kept]), float(updates.max()), starts)
    charts, scores = [_weights(told, at, course)] if told.timed else [], []
    table = pd.DataFrame({"updates": at.astype(int)})
    if told.labels is not None and told.timed:
        found = accuracies(run.evaluations, told.labels)["accuracy"].to_numpy()
        table["accuracy"] = found
        charts.insert(0, _accuracy(found, at, course))
    for column in [c for c in map(str, history) if c.startswith("target_")]:
        name = column.removeprefix("target_")
        table[name.replace("_", " ")] = history.loc[looks, column].to_numpy(float)
        scores.append(_score(name, at, history.loc[looks, column].to_numpy(float), course))
    if "loss" in history:
        scores.append(_loss(updates, history["loss"], course))
    rule = run.about["selected"]["rule"]
    parts: list[Part] = [
        Words(
            f"The target was looked at {len(at)} times while training. The weights that are kept are those "
            f"after {course.kept:,.0f} updates, which the rule “{rule}” chose without any label of the target."
        ),
        Charts(charts) if told.timed else _members(told),
        Words("Label-free scores: what can be seen of the target without labels. None of them is proof."),
        Charts(scores, small=True),
        _numbers(table, kept),
    ]
    return Section("course", "The course of the training", parts)


def _kept(looks: pd.DataFrame) -> int:
    """Which of the history's evaluations was selected."""
    chosen = np.flatnonzero(looks["selected"].eq(True))
    return int(chosen[0]) if len(chosen) else len(looks) - 1


def _members(told: RunReport) -> Table:
    """Class weights of what an automatic run compared and served; they are no points in time."""
    looks = told.run.evaluations
    weights = np.stack([look.mean_probabilities for look in looks]).astype(float)
    rows = [
        [told.classes[c], *(percent(w) for w in weights[:, c])]
        for c in np.argsort(-weights[told.run.best_index], kind="stable")
    ]
    columns = ["class", *(look.phase for look in looks)]
    return Table("Class weights of what was compared", columns, rows, range(1, len(columns)))


def _weights(told: RunReport, at: np.ndarray, course: CurveAxes) -> Chart:
    """Mean probabilities of the heaviest classes; all others in one curve."""
    weights = np.stack([e.mean_probabilities for e in told.run.evaluations]).astype(float)
    heavy = np.argsort(-weights[told.run.best_index], kind="stable")[
        : LOOKS if weights.shape[1] > LOOKS else None
    ]
    drawn = [Curve(told.classes[c], at, weights[:, c], look(n)) for n, c in enumerate(heavy)]
    rest = weights.shape[1] - len(heavy)
    if rest:
        drawn.append(Curve(f"{rest} others, sum", at, 1 - weights[:, heavy].sum(axis=1), REST))
    first = f"{told.classes[heavy[0]]} has the largest, {percent(weights[told.run.best_index, heavy[0]])}."
    return curves(
        "Class weights",
        f"The mean probability of each class over the target. {first}",
        drawn,
        course,
        also=(0,),
        share=True,
    )


def _accuracy(found: np.ndarray, at: np.ndarray, course: CurveAxes) -> Chart:
    best = int(found.argmax())
    said = f"The best of all evaluations has {percent(found[best])}, after {at[best]:,.0f} updates."
    return curves(
        "Accuracy",
        f"By the labels that were given afterwards; the training did not know them. {said}",
        [Curve("accuracy", at, found)],
        course,
        share=True,
    )


def _score(name: str, at: np.ndarray, values: np.ndarray, course: CurveAxes) -> Chart:
    title, words = _SCORES.get(name, (name.replace("_", " ").capitalize(), "A label-free score."))
    zero = (0,) if name == "effective_classes" else ()
    return curves(title, words, [Curve(title, at, values)], course, also=zero, small=True)


def _loss(updates: pd.Series, loss: pd.Series, course: CurveAxes) -> Chart:
    known = loss.notna()
    few = slice(None, None, max(1, -(-int(known.sum()) // _MOST_POINTS)))
    drawn = Curve("loss", updates[known].to_numpy(float)[few], loss[known].to_numpy(float)[few])
    return curves("Loss", "The sum of the method's losses, of the batch at hand.", [drawn], course, small=True)


def _numbers(table: pd.DataFrame, selected: int) -> Table:
    rows = [
        [f"{row[0]:,}" + (" (kept)" if n == selected else ""), *(f"{v:.4g}" for v in row[1:])]
        for n, row in enumerate(table.itertuples(index=False, name=None))
    ]
    numeric = list(range(1, table.shape[1]))
    return Table("Numbers of every evaluation", list(map(str, table)), rows, numeric, [selected], closed=True)


# --- features ---------------------------------------------------------------------------------------------
# How source and target lie in the adapted features: PCA and t-SNE of some rows of both.


_FEWEST = 4  # rows that t-SNE needs
_QUICK, _QUICK_IMAGES = 300, 60  # rows in t-SNE, and images that are opened, of a quick page


def features_section(told: RunReport) -> Section:
    """Drawn if the samples can be opened again; else why not."""
    try:
        parts = _clouds(told)
    except (UserError, OSError) as error:
        parts = [
            Words(f"This part is left out, because the samples can't be opened again. {error}", aside=True)
        ]
    return Section("features", "Source and target in the adapted features", parts)


def _clouds(told: RunReport) -> list[Part]:
    run = told.run
    sizes = run.about["source_samples"], run.about["target_samples"]
    of_images = isinstance(run.model.blueprint.samples, Images)
    most = _QUICK_IMAGES if told.quick and of_images else MOST_POINTS
    both = some_rows(run.model, run.spec, sizes, most // 2)
    features = np.concatenate([rows.features for rows in both])
    heavy = np.argsort(-np.bincount(both.target.classes, minlength=len(told.classes)), kind="stable")[:LOOKS]
    names = [told.classes[c] for c in heavy]
    points = _points(told, both).assign(look=lambda p: p["class"].map({c: n for n, c in enumerate(heavy)}))
    points["look"] = points["look"].fillna(-1).astype(int)
    drawn = " and ".join(
        f"{len(rows.names):,} {name} rows" if len(rows.names) == rows.total
        else f"{len(rows.names):,} of {rows.total:,} {name} rows"
        for name, rows in zip(("source", "target"), both)
    )  # fmt: skip
    xy, explained = _pca(features)
    charts = [
        cloud(
            "PCA",
            f"{drawn}, along the two directions of most variance ({percent(explained.sum(), 0)} of all of it).",
            points.assign(x=xy[:, 0], y=xy[:, 1]),
            names,
            (f"first direction, {percent(explained[0], 0)}", f"second, {percent(explained[1], 0)}"),
        )
    ]
    if len(features) >= _FEWEST:
        few = evenly_spaced_indices(len(features), _QUICK if told.quick else MOST_POINTS)
        with threadpool_limits(1):  # many threads wait for each other longer than they compute
            xy = tsne(features[few])
        part = drawn if len(few) == len(features) else f"{len(few)} of these rows"
        said = f"{part}. Rows that are alike lie together; distances between groups mean little."
        charts.append(cloud("t-SNE", said, points.iloc[few].assign(x=xy[:, 0], y=xy[:, 1]), names))
    words = (
        "Each mark is a row: squares are the source's, by their labels, round ones the target's, by what the "
        "model takes them for. Where the target's rows lie inside the source's groups, the model sees them "
        "alike; whether it is right is another matter."
    )
    choices = (("classes", "classes"), ("domains", "source and target"))
    more = [Words(f"The command “ba3us report {told.folder}” draws more rows.")] if told.quick else []
    return [Words(words), Charts(charts, choices), *more, _table(told, both)]


def _pca(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.decomposition import PCA

    count = min(2, *features.shape)
    pca = PCA(count, random_state=0)
    xy = np.zeros((len(features), 2))
    xy[:, :count] = pca.fit_transform(features.astype(np.float64))
    explained = np.zeros(2)
    explained[:count] = np.nan_to_num(pca.explained_variance_ratio_)
    return xy, explained


def _points(told: RunReport, both: Both) -> pd.DataFrame:
    """One row per mark: domain, class, and what is said of it."""
    true = _true(told)
    rows: list[dict[str, Any]] = [
        {"domain": "source", "class": c, "text": f"source, {name}\nlabelled {told.classes[c]}"}
        for name, c in zip(both.source.names, both.source.classes)
    ]
    for name, c, p in zip(both.target.names, both.target.classes, both.target.probabilities):
        label = f"\nlabelled {true[name]}" if name in true else ""
        said = f"target, {name}\ntaken for {told.classes[c]} ({percent(p)}){label}"
        rows.append({"domain": "target", "class": c, "text": said})
    return pd.DataFrame(rows)


def _true(told: RunReport) -> dict[str, str]:
    """The label of each row of the target by its name, where labels were given."""
    if told.labels is None:
        return {}
    names = told.paths or [f"row {row}" for row in range(len(told.labels))]
    return {name: told.classes[c] for name, c in zip(names, told.labels)}


def _table(told: RunReport, both: Both) -> Table:
    counts = [np.bincount(rows.classes, minlength=len(told.classes)) for rows in both]
    sums = np.bincount(both.target.classes, both.target.probabilities, minlength=len(told.classes))
    means = np.divide(sums, counts[1], out=np.full(len(sums), np.nan), where=counts[1] > 0)
    rows = [
        [told.classes[c], f"{counts[0][c]:,}", f"{counts[1][c]:,}", percent(means[c])]
        for c in np.argsort(-counts[1], kind="stable")
    ]
    columns = ["class", "source rows", "target rows taken for it", "mean probability"]
    return Table("Rows in the drawings, by class", columns, rows, [1, 2, 3], closed=True)


# --- pictures ---------------------------------------------------------------------------------------------
# The least and the most certain images of the target, small and inside the page.


_EACH = 8  # pictures at either end
_SIDE = 150  # pixels of their longer side


def pictures_section(told: RunReport) -> Section | None:
    """Only of runs on images that predicted them."""
    if not isinstance(told.run.model.blueprint.samples, Images) or told.predictions is None or not told.paths:
        return None
    try:
        root = list_images(str(told.run.spec.target), told.run.spec.root).root
    except UserError as error:
        parts: list[Part] = [
            Words(f"This part is left out, because the images are not there. {error}", aside=True)
        ]
        return Section("images", "Images", parts)
    order = np.argsort(told.predictions[_sure(told)].astype(float).to_numpy(), kind="stable")
    least, most = order[:_EACH], order[::-1][: min(_EACH, max(0, len(order) - _EACH))]
    parts = [
        Words("Look at the least certain ones first: that is where mistakes are most likely."),
        Pictures("Least certain", _pictures(told, root, least)),
        Pictures("Most certain", _pictures(told, root, most)),
    ]
    return Section("images", "Images", [p for p in parts if not isinstance(p, Pictures) or p.pictures])


def _sure(told: RunReport) -> str:
    """The column that says how sure: calibrated confidence, where there is one."""
    return "probability" if told.run.calibration is None else "confidence"


def _pictures(told: RunReport, root: Path, rows: np.ndarray) -> list[Picture]:
    """Those that can still be read."""
    assert told.predictions is not None
    found = []
    for row in rows:
        path, name, probability = told.predictions.loc[row, ["path", "class", _sure(told)]]
        try:
            with quiet_pillow():
                small = thumbnail(root / path, _SIDE)
        except UnreadableError:
            continue
        true = [] if told.labels is None else [f"labelled {told.classes[told.labels[row]]}"]
        lines = [f"taken for {name}, {percent(float(probability))}", *true]
        found.append(Picture(f"data:image/jpeg;base64,{base64.b64encode(small).decode()}", path, lines))
    return found


# --- about ------------------------------------------------------------------------------------------------
# What was asked for and how it went: settings, versions, times, how to repeat it, what was left out.


def about_section(told: RunReport) -> Section:
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
        "updates": f"{about['steps']:,}",
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
