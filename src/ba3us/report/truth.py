"""What labels say that were given afterwards: accuracy, recall of each class, what is taken for what."""

from __future__ import annotations

import numpy as np

from ba3us.report.charts import bar, matrix
from ba3us.report.parts import Chart, Charts, Part, Section, Table, Words
from ba3us.report.told import Told, percent
from ba3us.selection import scored, summary

_MOST_CLASSES = 40  # in the matrix
_WORDS = {
    "selected": "kept, chosen without labels",
    "last": "the last one",
    "oracle": "the best one, which only labels can tell",
}


def truth_section(told: Told) -> Section | None:
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


def _evaluations(told: Told) -> Table:
    assert told.labels is not None
    names, marked = _WORDS, [0]
    found = summary(told.run, told.labels)
    if not told.timed:  # an automatic run: what it compared, and what it serves
        looks = told.run.evaluations
        names, marked = {look.phase: look.phase for look in looks}, [told.run.selected]
        rows_of = {look.phase: row for row, look in enumerate(looks)}
        found = scored(np.stack([e.predictions for e in looks]), np.ones(len(looks)), rows_of, told.labels)
    rows = [
        [words, percent(found[name].accuracy), percent(found[name].absent), str(found[name].lost)]
        for name, words in names.items()
    ]
    columns = ["evaluation", "accuracy", "given to absent classes", "classes lost"]
    note = "classes lost: present classes that are recognised in less than a tenth of their rows."
    return Table("Accuracy by the labels that were given", columns, rows, [1, 2, 3], marked, notes=[note])


def _confusion(told: Told, counts: np.ndarray) -> Chart:
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


def _recall(told: Told, counts: np.ndarray) -> Table:
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
