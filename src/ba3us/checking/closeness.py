"""How close samples are to the source's classes: mislabelled folders, unknown classes, hard shifts.

Everything is read off one table: the mean cosine of a row to its five nearest rows of each class. Nothing is
trained, so that nothing has to be tuned; docs/results/check.md says how the thresholds below were chosen, and
what they miss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch

from ba3us.checking.findings import NOTE, WARNING, Finding, many, some
from ba3us.neighbours import Neighbours
from ba3us.nn.scale import Scale, far_from_unit

NEAREST = 5  # rows of a class that speak for it
SAME = 0.8  # of two classes' rows together that look like the other one: they hold the same things
MIXED = 0.15  # of a class that looks like one other
UNDECIDED = 0.25  # of the usual margin between the nearest class and the next
UNKNOWN = 0.05  # of the target that is undecided
LEAST = 10  # rows that are worth a word
HOLDS = 0.7  # κ of neighbours from which the source's classes are visible in the target at all
_FEW = 3  # rows that could be chance
_CHUNK = 1024


def directions(source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of both as unit vectors seen from the source's mean, columns scaled where they have to be."""
    x, xt = (torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32)) for rows in (source, target))
    if far_from_unit(x):
        scale = Scale(x.shape[1]).fit(x)
        x, xt = scale(x), scale(xt)
    centre = x.mean(dim=0)
    first, second = (torch.nn.functional.normalize(rows - centre, dim=1).numpy() for rows in (x, xt))
    return first, second


def to_classes(
    rows: np.ndarray, source: np.ndarray, labels: np.ndarray, classes: int, own: bool = False
) -> np.ndarray:
    """Mean cosine to the nearest rows of each class, [n, classes]; of a class without rows, -1.

    `own`: `rows` are the source's unit vectors, and no row is its own neighbour. A small class is asked for as
    many rows by others as by its own.
    """
    order = np.argsort(labels, kind="stable")
    places = np.searchsorted(labels[order], np.arange(classes + 1))
    spread, close = source[order].T, np.full((len(rows), classes), -1.0, dtype=np.float32)
    back = np.empty(len(order), dtype=int)
    back[order] = np.arange(len(order))
    for start in range(0, len(rows), _CHUNK):
        cosine = rows[start : start + _CHUNK] @ spread
        if own:
            inside = np.arange(len(cosine))
            cosine[inside, back[start : start + _CHUNK]] = -2.0  # sorted away below
        for label, (low, high) in enumerate(pairwise(places)):
            count = high - low - (1 if own else 0)
            if count > 0:
                close[start : start + _CHUNK, label] = _top(cosine[:, low:high], min(NEAREST, count))
    return close


def _top(values: np.ndarray, count: int) -> np.ndarray:
    return np.partition(values, values.shape[1] - count, axis=1)[:, -count:].mean(axis=1)


# --- the source's labels ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Confusion:
    """What each source row looks like, itself left out."""

    labels: np.ndarray
    seen: np.ndarray  # the class it is nearest to
    classes: int

    @classmethod
    def of(cls, source: np.ndarray, labels: np.ndarray, classes: int) -> Confusion:
        """From unit vectors."""
        close = to_classes(source, source, labels, classes, own=True)
        return cls(labels, close.argmax(axis=1), classes)

    @cached_property
    def shares(self) -> np.ndarray:
        """[a, b]: how much of class a looks like class b; classes of a single row say nothing."""
        table = np.zeros((self.classes, self.classes))
        np.add.at(table, (self.labels, self.seen), 1.0)
        counts = table.sum(axis=1, keepdims=True)
        return np.divide(table, counts, out=np.zeros_like(table), where=counts > 1)

    @property
    def accuracy(self) -> float:
        """How often a row looks like its own class."""
        return float(np.mean(self.labels == self.seen))

    def rows(self, one: int, other: int) -> np.ndarray:
        """Rows of a class that look like another."""
        return np.flatnonzero((self.labels == one) & (self.seen == other))

    def same(self) -> list[tuple[int, int]]:
        """Pairs of classes that hold the same things."""
        other = self.shares * (1 - np.eye(self.classes))
        return [(int(a), int(b)) for a, b in zip(*np.nonzero(other + other.T >= SAME)) if a < b]

    def mixed(self) -> list[tuple[int, int]]:
        """Classes with the one other class that is seen in a part of them, those of :meth:`same` left out."""
        other, same = self.shares * (1 - np.eye(self.classes)), set(self.same())
        found = [(a, int(other[a].argmax())) for a in np.flatnonzero(other.max(axis=1) >= MIXED).tolist()]
        return [(a, b) for a, b in found if (min(a, b), max(a, b)) not in same and len(self.rows(a, b)) >= _FEW]


def mislabelled(found: Confusion, names: Sequence[str], rows: Sequence[str]) -> Iterator[Finding]:
    """Classes that hold the same things, and classes in part of which another is seen."""
    shares = found.shares
    for a, b in found.same():
        told = [rows[row] for row in (*found.rows(a, b), *found.rows(b, a))]
        yield Finding.of(
            WARNING,
            "same content",
            f"{names[a]} and {names[b]} seem to hold the same things: {shares[a, b]:.0%} of the one and "
            f"{shares[b, a]:.0%} of the other look like the other.",
            "Look whether one of the two folders holds the wrong images, or whether they are one class.",
            told,
        )
    for a, b in found.mixed():
        told = [rows[row] for row in found.rows(a, b)]
        yield Finding.of(
            NOTE,
            "mixed class",
            f"{shares[a, b]:.0%} of {names[a]} ({many(len(told), 'sample')}) look like {names[b]}: "
            f"{some(told)}.",
            "Look at them: mislabelled, or two classes that are hard to tell apart.",
            told,
        )


# --- the target -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sight:
    """What the target looks like, seen with the source's classes.

    Attributes
    ----------
    seen : int array [n]
        The class each row is nearest to.
    margin : array [n]
        How much nearer it is to that class than to the next, averaged over the row and its nearest rows of
        the target, as a multiple of the median: small for a group of rows that lies between classes.
    between : int array [n]
        The next class.
    kappa : float
        How well neighbours agree in their class: 1 always, 0 as by chance.
    """

    seen: np.ndarray
    margin: np.ndarray
    between: np.ndarray
    kappa: float

    @classmethod
    def of(cls, target: np.ndarray, source: np.ndarray, labels: np.ndarray, classes: int) -> Sight:
        """From unit vectors; there must be two classes and two rows."""
        close = to_classes(target, source, labels, classes)
        order = np.argsort(close, axis=1)
        near = Neighbours.among(torch.from_numpy(target), torch.zeros(target.shape[1]))
        seen, between = order[:, -1], order[:, -2]
        each = np.arange(len(close))
        margin = close[each, seen] - close[each, between]
        margin = (margin + margin[near.index].sum(axis=1)) / (1 + near.index.shape[1])
        usual = float(np.median(margin))
        margin = margin / usual if usual > 0 else np.ones_like(margin)
        return cls(seen, margin, between, near.kappa(seen))

    @property
    def undecided(self) -> np.ndarray:
        """Rows that lie between classes, with all their neighbours; the least decided first."""
        order = np.argsort(self.margin, kind="stable")
        return order[self.margin[order] < UNDECIDED]

    @property
    def holds(self) -> bool:
        """Whether the source's classes are visible in the target at all."""
        return self.kappa >= HOLDS

    def classes(self) -> list[int]:
        """Classes that at least three rows and one in a hundred look like: roughly, those that are present."""
        counts = np.bincount(self.seen)
        return np.flatnonzero(counts >= max(3, 0.01 * len(self.seen))).tolist()


def unknown(found: Sight, names: Sequence[str], rows: Sequence[str]) -> Iterator[Finding]:
    """A part of the target that seems to be of no class of the source; and a shift too hard to say."""
    if not found.holds:
        yield Finding(
            WARNING,
            "hard shift",
            f"The source's classes are hard to see in the target: neighbours agree in their class with κ = "
            f"{found.kappa:.2f} only (below {HOLDS}).",
            "Expect little of a named method, and heed the verdict of the automatic choice; whether the "
            "target holds an unknown class can't be told here.",
        )
        return
    lost = found.undecided
    if len(lost) < max(LEAST, UNKNOWN * len(found.margin)):
        return
    pairs, counts = np.unique(np.stack([found.seen[lost], found.between[lost]]), axis=1, return_counts=True)
    told = [f"{names[a]} and {names[b]}" for a, b in pairs[:, np.argsort(-counts, kind="stable")].T]
    which = [rows[row] for row in lost]
    yield Finding.of(
        WARNING,
        "unknown class",
        f"{len(lost) / len(found.margin):.0%} of the target ({many(len(lost), 'sample')}) lie between the "
        f"source's classes (mostly between {told[0]}), and so do their neighbours: {some(which)}.",
        "Look at them: if they are of a class that the source has not got, add it or take them out; they "
        "would be given wrong classes.",
        which,
    )
