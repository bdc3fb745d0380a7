"""What checks look at: the opened domains, and how close their vectors are to the source's classes.

Closeness to classes is one table: the mean cosine of a row to its five nearest rows of each class. Nothing is
trained, so nothing has to be tuned. docs/results/check.md says how thresholds were chosen and what they miss.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from ba3us.nn.norms import Standardize, far_from_unit
from ba3us.scores import Neighbours

MOST_SOURCE, MOST_TARGET = 4000, 2000  # rows that are looked at; more are sampled
MOST_ROWS = 1000  # of each domain, to tell the domains apart
NEAREST = 5  # rows of a class that speak for it
SAME = 0.8  # of two classes' rows together that look like the other one: they hold the same things
MIXED = 0.15  # of a class that looks like one other
UNDECIDED = 0.25  # of the usual margin between the nearest class and the next
HOLDS = 0.7  # κ of neighbours from which the source's classes are visible in the target at all
ALIKE, _CLEARLY = 0.6, 0.9  # accuracy of telling the domains apart
_PER_CLASS = 10  # at least, of a source of many classes
_FEWEST_VECTORS = 12  # target rows: a row, its neighbours, and one that is none
_FOLDS, _WIDTH = 5, 50
_FEW = 3  # rows that could be chance
_CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Vectors:
    """Rows of both domains that are looked at, labels of the source's, and what messages call each row."""

    source: np.ndarray
    labels: np.ndarray
    target: np.ndarray
    classes: Sequence[str]
    source_names: Sequence[str]
    target_names: Sequence[str]


class Domains:
    """The opened domains of a spec, as checks see them; each kind of domains adds what only it has.

    Attributes
    ----------
    noun : str
        What messages call a sample: ``row``, ``image``.
    names : dict
        The names of the samples of ``source`` and ``target``.
    labels : int array [source samples] or None
        None if training would refuse the labels.
    counts : dict or None
        Samples of each class of the source.
    empty_classes : list of str
        Class folders without an image.
    facts, passed_over : dict, list of str
        Figures of the report, and what was not looked at.
    """

    noun = "sample"
    names: dict[str, list[str]]
    labels: np.ndarray | None
    counts: dict[str, int] | None
    facts: dict[str, Any]

    def __init__(self) -> None:
        self.empty_classes: list[str] = []
        self.passed_over: list[str] = []

    def fingerprints(self) -> tuple[list[bytes], np.ndarray | None]:
        """Digests of all samples, source first; and bool [n, bits] of perceptual hashes, if there are some."""
        raise NotImplementedError

    @cached_property
    def vectors(self) -> Vectors | None:
        """Some samples of both domains; None if a finding has to be fixed first."""
        raise NotImplementedError

    def costs(self) -> list[dict[str, Any]] | None:
        """Estimated time and memory of training; None if training would fail."""
        raise NotImplementedError

    @cached_property
    def closeness(self) -> tuple[Confusion, Sight | None, float | None]:
        """What the source looks like, what the target looks like, and the accuracy of telling them apart.

        The target needs some samples; without, the last two are None.
        """
        vectors = self.vectors
        assert vectors is not None
        source, target = directions(vectors.source, vectors.target)
        confusion = Confusion.of(source, vectors.labels, len(vectors.classes))
        if len(target) < _FEWEST_VECTORS:
            return confusion, None, None
        labels = vectors.labels.copy()
        for one, other in confusion.same():  # one class, else the target would lie between the two
            labels[labels == other] = one
        sight = Sight.of(target, source, labels, len(vectors.classes))
        return confusion, sight, accuracy(source, labels, target, sight.predicted)

    def figures(self) -> dict[str, Any]:
        """Figures of the vectors, for people and machines."""
        if self.vectors is None:
            return {}
        confusion, sight, told_apart = self.closeness
        figures: dict[str, Any] = {"source_rows_like_their_class": round(confusion.accuracy, 4)}
        if sight is not None:
            figures |= {
                "domains": in_words(told_apart),
                "told_apart": None if told_apart is None else round(told_apart, 4),
                "neighbours_kappa": round(sight.kappa, 4),
                "classes_seen_in_target": [str(self.vectors.classes[label]) for label in sight.classes()],
                "undecided_share": round(len(sight.undecided) / len(sight.margin), 4),
            }
        return figures


def digest(values: np.ndarray) -> bytes:
    """Equal for equal values."""
    return hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=16).digest()


def sample_source(labels: np.ndarray, most: int = MOST_SOURCE) -> np.ndarray:
    """Row numbers, in order: all, or so many of each class that they are about `most`, never twice as many."""
    if len(labels) <= most:
        return np.arange(len(labels))
    rng, classes = np.random.default_rng(0), np.unique(labels)
    per_class = max(_PER_CLASS, most // len(classes))
    chosen = np.concatenate([rng.permutation(np.flatnonzero(labels == one))[:per_class] for one in classes])
    return np.sort(rng.permutation(chosen)[: 2 * most])


def accuracy(source: np.ndarray, labels: np.ndarray, target: np.ndarray, predicted: np.ndarray) -> float | None:
    """Cross-validated accuracy of telling the domains apart, each counting half: 0.5 not at all, 1 always.

    Source samples are drawn in the proportions of the classes `predicted` in the target, so that a class that
    the target does not hold does not count as distance. None if there are too few samples.
    """
    rng = np.random.default_rng(0)
    shares = np.bincount(predicted, minlength=int(labels.max()) + 1) / len(predicted)
    per_class = np.maximum(1, np.round(min(MOST_ROWS, len(predicted)) * shares)).astype(int)
    drawn = np.concatenate(
        [rng.permutation(np.flatnonzero(labels == c))[: per_class[c]] for c in np.flatnonzero(shares)]
    )
    other = rng.permutation(len(target))[:MOST_ROWS]
    if min(len(drawn), len(other)) < 2 * _FOLDS:
        return None
    rows = np.concatenate([source[drawn], target[other]])
    domain = np.repeat([0, 1], [len(drawn), len(other)])
    rows = PCA(min(_WIDTH, *rows.shape), random_state=0).fit_transform(rows)
    rows /= rows.std(axis=0) + 1e-12
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
    told = cross_val_predict(LogisticRegression(max_iter=1000, class_weight="balanced"), rows, domain, cv=folds)
    return float(np.mean([np.mean(told[domain == one] == one) for one in (0, 1)]))


def in_words(value: float | None) -> str:
    """For people."""
    if value is None:
        return "too few samples to say"
    figure = f"(told apart in {value:.0%} of cases; 50 % is chance)"
    if value < ALIKE:
        return f"hardly apart {figure}"
    return (
        f"apart in part {figure}"
        if value < _CLEARLY
        else f"clearly apart {figure}, as other cameras or styles are"
    )


def directions(source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of both as unit vectors seen from the source's mean, columns scaled where they have to be."""
    x, xt = (torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32)) for rows in (source, target))
    if far_from_unit(x):
        scale = Standardize(x.shape[1]).fit(x)
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
                nearest = min(NEAREST, count)
                top = np.partition(cosine[:, low:high], high - low - nearest, axis=1)[:, -nearest:]
                close[start : start + _CHUNK, label] = top.mean(axis=1)
    return close


@dataclass(frozen=True, eq=False)
class Confusion:
    """What each source row looks like, itself left out."""

    labels: np.ndarray
    predicted: np.ndarray  # the class it is nearest to
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
        np.add.at(table, (self.labels, self.predicted), 1.0)
        counts = table.sum(axis=1, keepdims=True)
        return np.divide(table, counts, out=np.zeros_like(table), where=counts > 1)

    @property
    def accuracy(self) -> float:
        """How often a row looks like its own class."""
        return float(np.mean(self.labels == self.predicted))

    def rows(self, one: int, other: int) -> np.ndarray:
        """Rows of a class that look like another."""
        return np.flatnonzero((self.labels == one) & (self.predicted == other))

    def same(self) -> list[tuple[int, int]]:
        """Pairs of classes that hold the same things."""
        other = self.shares * (1 - np.eye(self.classes))
        return [(int(a), int(b)) for a, b in zip(*np.nonzero(other + other.T >= SAME)) if a < b]

    def mixed(self) -> list[tuple[int, int]]:
        """Classes with the one other class that is seen in a part of them, those of :meth:`same` left out."""
        other, same = self.shares * (1 - np.eye(self.classes)), set(self.same())
        found = [(a, int(other[a].argmax())) for a in np.flatnonzero(other.max(axis=1) >= MIXED).tolist()]
        return [(a, b) for a, b in found if (min(a, b), max(a, b)) not in same and len(self.rows(a, b)) >= _FEW]


@dataclass(frozen=True, eq=False)
class Sight:
    """What the target looks like, seen with the source's classes.

    Attributes
    ----------
    predicted : int array [n]
        The class each row is nearest to.
    margin : array [n]
        How much nearer it is to that class than to the next, averaged over the row and its nearest rows of
        the target, as a multiple of the median: small for a group of rows that lies between classes.
    between : int array [n]
        The next class.
    kappa : float
        How well neighbours agree in their class: 1 always, 0 as by chance.
    """

    predicted: np.ndarray
    margin: np.ndarray
    between: np.ndarray
    kappa: float

    @classmethod
    def of(cls, target: np.ndarray, source: np.ndarray, labels: np.ndarray, classes: int) -> Sight:
        """From unit vectors; there must be two classes and two rows."""
        close = to_classes(target, source, labels, classes)
        order = np.argsort(close, axis=1)
        near = Neighbours.among(torch.from_numpy(target), torch.zeros(target.shape[1]))
        predicted, between = order[:, -1], order[:, -2]
        each = np.arange(len(close))
        margin = close[each, predicted] - close[each, between]
        margin = (margin + margin[near.index].sum(axis=1)) / (1 + near.index.shape[1])
        usual = float(np.median(margin))
        margin = margin / usual if usual > 0 else np.ones_like(margin)
        return cls(predicted, margin, between, near.kappa(predicted))

    @property
    def undecided(self) -> np.ndarray:
        """Rows that lie between classes, with all their neighbours; the least decided first."""
        order = np.argsort(self.margin, kind="stable")
        return order[self.margin[order] < UNDECIDED]

    def classes(self) -> list[int]:
        """Classes that at least three rows and one in a hundred look like: roughly, those that are present."""
        counts = np.bincount(self.predicted)
        return np.flatnonzero(counts >= max(3, 0.01 * len(self.predicted))).tolist()
