"""The course of a training: class weights, label-free scores and, where labels were given, accuracy."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ba3us.report.charts import LOOKS, REST, Course, Curve, curves, look
from ba3us.report.parts import Chart, Charts, Part, Section, Table, Words
from ba3us.report.told import Told, percent
from ba3us.selection import accuracies, updates_before

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


def course_section(told: Told) -> Section:
    """Everything over the updates."""
    run, history = told.run, told.run.history
    updates = updates_before(history)
    looks = history["score"].notna()
    at = updates[looks].to_numpy(float)
    kept = run.selected if told.timed else _kept(history[looks])
    starts = [
        (float(updates[part.index].min()), str(name)) for name, part in history.groupby("phase", sort=False)
    ]
    course = Course(float(at[kept]), float(updates.max()), starts)
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


def _members(told: Told) -> Table:
    """Class weights of what an automatic run compared and served; they are no points in time."""
    looks = told.run.evaluations
    weights = np.stack([look.mean_probabilities for look in looks]).astype(float)
    rows = [
        [told.classes[c], *(percent(w) for w in weights[:, c])]
        for c in np.argsort(-weights[told.run.selected], kind="stable")
    ]
    columns = ["class", *(look.phase for look in looks)]
    return Table("Class weights of what was compared", columns, rows, range(1, len(columns)))


def _weights(told: Told, at: np.ndarray, course: Course) -> Chart:
    """Mean probabilities of the heaviest classes; all others in one curve."""
    weights = np.stack([e.mean_probabilities for e in told.run.evaluations]).astype(float)
    heavy = np.argsort(-weights[told.run.selected], kind="stable")[
        : LOOKS if weights.shape[1] > LOOKS else None
    ]
    drawn = [Curve(told.classes[c], at, weights[:, c], look(n)) for n, c in enumerate(heavy)]
    rest = weights.shape[1] - len(heavy)
    if rest:
        drawn.append(Curve(f"{rest} others, sum", at, 1 - weights[:, heavy].sum(axis=1), REST))
    first = f"{told.classes[heavy[0]]} has the largest, {percent(weights[told.run.selected, heavy[0]])}."
    return curves(
        "Class weights",
        f"The mean probability of each class over the target. {first}",
        drawn,
        course,
        also=(0,),
        share=True,
    )


def _accuracy(found: np.ndarray, at: np.ndarray, course: Course) -> Chart:
    best = int(found.argmax())
    said = f"The best of all evaluations has {percent(found[best])}, after {at[best]:,.0f} updates."
    return curves(
        "Accuracy",
        f"By the labels that were given afterwards; the training did not know them. {said}",
        [Curve("accuracy", at, found)],
        course,
        share=True,
    )


def _score(name: str, at: np.ndarray, values: np.ndarray, course: Course) -> Chart:
    title, words = _SCORES.get(name, (name.replace("_", " ").capitalize(), "A label-free score."))
    zero = (0,) if name == "effective_classes" else ()
    return curves(title, words, [Curve(title, at, values)], course, also=zero, small=True)


def _loss(updates: pd.Series, loss: pd.Series, course: Course) -> Chart:
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
