"""Checks of classes and domains: sizes, names, mislabelled or unknown classes, distance of domains.

Closeness to classes is one table: the mean cosine of a row to its five nearest rows of each class. Nothing is
trained, so nothing has to be tuned. docs/results/check.md says how thresholds were chosen and what they miss.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from ba3us.check.findings import NOTE, STOP, WARNING, Finding, many, some
from ba3us.nn.norms import Standardize, far_from_unit
from ba3us.scores import Neighbours

MOST_SOURCE, MOST_TARGET = 4000, 2000  # rows that are looked at; more are sampled
_PER_CLASS = 10  # at least, of a source of many classes
_FEWEST_VECTORS = 12  # target rows: a row, its neighbours, and one that is none


def sample_source(labels: np.ndarray, most: int = MOST_SOURCE) -> np.ndarray:
    """Row numbers, in order: all, or so many of each class that they are about `most`, never twice as many."""
    if len(labels) <= most:
        return np.arange(len(labels))
    rng, classes = np.random.default_rng(0), np.unique(labels)
    per_class = max(_PER_CLASS, most // len(classes))
    chosen = np.concatenate([rng.permutation(np.flatnonzero(labels == one))[:per_class] for one in classes])
    return np.sort(rng.permutation(chosen)[: 2 * most])


@dataclass(frozen=True, eq=False)
class Vectors:
    """Rows of both domains that are looked at, labels of the source's, and what messages call each row."""

    source: np.ndarray
    labels: np.ndarray
    target: np.ndarray
    classes: Sequence[str]
    source_names: Sequence[str]
    target_names: Sequence[str]


def merged(labels: np.ndarray, same: Sequence[tuple[int, int]]) -> np.ndarray:
    """Labels under which classes of the `same` content are one: nothing lies between the two."""
    labels = labels.copy()
    for one, other in same:
        labels[labels == other] = one
    return labels


def look(seen: Vectors) -> tuple[list[Finding], dict[str, Any]]:
    """Findings and figures; there must be two classes."""
    count = len(seen.classes)
    source, target = directions(seen.source, seen.target)
    confusion = Confusion.of(source, seen.labels, count)
    found = list(mislabelled(confusion, seen.classes, seen.source_names))
    facts: dict[str, Any] = {"source_rows_like_their_class": round(confusion.accuracy, 4)}
    if len(target) < _FEWEST_VECTORS:
        return found, facts
    labels = merged(seen.labels, confusion.same())
    sight = Sight.of(target, source, labels, count)
    told_apart = accuracy(source, labels, target, sight.seen)
    found += unknown(sight, seen.classes, seen.target_names)
    if told_apart is not None:
        found += finding(told_apart)
    facts |= {
        "domains": in_words(told_apart),
        "told_apart": None if told_apart is None else round(told_apart, 4),
        "neighbours_kappa": round(sight.kappa, 4),
        "classes_seen_in_target": [str(seen.classes[label]) for label in sight.classes()],
        "undecided_share": round(len(sight.undecided) / len(target), 4),
    }
    return found, facts


# --- classes ----------------------------------------------------------------------------------------------


TINY = 5  # samples: a class with fewer can hardly be learnt
_LOPSIDED = 50  # times as many as the smallest class
FEW = 30  # target samples: with fewer, neither presence nor verdict can be judged


def of_source(counts: Mapping[str, int], empty: Sequence[str] = ()) -> Iterator[Finding]:
    """What the sizes of the source's classes say; `empty` are class folders without an image."""
    if len(counts) < 2:
        yield Finding(
            STOP,
            "one class",
            f"The source has {many(len(counts), 'class', 'classes')} ({some(list(counts))}).",
            "Give labelled samples of at least two classes; of images, one subfolder per class.",
        )
        return
    if empty:
        yield Finding.of(
            WARNING,
            "empty classes",
            f"{many(len(empty), 'class folder holds', 'class folders hold')} no image: {some(empty)}.",
            "Fill or remove them; they are not among the classes.",
            empty,
        )
    tiny = sorted((name for name, count in counts.items() if count < TINY), key=lambda name: counts[name])
    if tiny:
        told = [f"{name} ({counts[name]})" for name in tiny]
        yield Finding.of(
            WARNING,
            "tiny classes",
            f"{many(len(tiny), 'class has', 'classes have')} fewer than {TINY} samples: {some(told)}.",
            "Add samples, or take these classes out: they can hardly be learnt.",
            told,
        )
    largest, smallest = (pick(counts, key=lambda name: counts[name]) for pick in (max, min))
    if not tiny and counts[largest] > _LOPSIDED * counts[smallest]:
        yield Finding(
            NOTE,
            "uneven classes",
            f"{largest} has {counts[largest]:,} samples, {smallest} {counts[smallest]:,}.",
            "Rare classes are predicted too seldom: add samples, or take some of the largest class away.",
        )


def of_target(rows: int) -> Iterator[Finding]:
    """What the size of the target says."""
    if rows < FEW:
        yield Finding(
            WARNING,
            "small target",
            f"The target has {many(rows, 'sample')}.",
            f"Give {FEW} or more: with fewer, which classes it holds and whether adapting helped is a guess.",
        )


def names_alike(names: Sequence[str]) -> Iterator[Finding]:
    """Names of classes that differ only in case, blanks or dashes."""
    alike = defaultdict(list)
    for name in names:
        alike[plain(name)].append(name)
    for group in alike.values():
        if len(group) > 1:
            yield Finding.of(
                WARNING,
                "names alike",
                f"The classes {' and '.join(map(repr, group))} differ only in case, blanks or dashes.",
                "Put them into one folder if they are one class; else give them names of their own.",
                group,
            )


def target_folders(folders: Sequence[str], names: Sequence[str]) -> Iterator[Finding]:
    """Folders of the target whose names are none of the source's classes, where others are.

    Which image lies in which folder is not looked at: training does not know it either. That classes of the
    source have no folder in the target is what partial adaptation is for, and no finding.
    """
    known, written = set(names), {plain(name): name for name in names}
    other = [name for name in folders if name not in known]
    if not other or len(other) == len(folders):
        return  # all of them are classes, or they are no classes at all
    spelled = [f"{name!r} for {written[plain(name)]!r}" for name in other if plain(name) in written]
    strange = [name for name in other if plain(name) not in written]
    if spelled:
        yield Finding.of(
            NOTE,
            "names spelled otherwise",
            f"Target folders are spelled otherwise than the source's classes: {some(spelled)}.",
            "Rename them before you score predictions; training does not look at them.",
            spelled,
        )
    if strange:
        yield Finding.of(
            WARNING,
            "unknown folders",
            f"{many(len(strange), 'target folder is', 'target folders are')} named like no class of the "
            f"source: {some(strange)}.",
            "If these are classes, add them to the source or take them out of the target: all of their "
            "samples would be given a wrong class.",
            strange,
        )


def plain(name: str) -> str:
    """A name without what people write in several ways."""
    return "".join(letter for letter in name.casefold() if letter not in " _-\t.")


# --- apart ------------------------------------------------------------------------------------------------


MOST_ROWS = 1000  # of each domain
_FOLDS, _WIDTH = 5, 50
_LEAST = 2 * _FOLDS  # rows of a domain
_ALIKE, _CLEARLY = 0.6, 0.9


def accuracy(source: np.ndarray, labels: np.ndarray, target: np.ndarray, seen: np.ndarray) -> float | None:
    """Cross-validated accuracy of telling the domains apart, each counting half: 0.5 not at all, 1 always.

    Source rows are drawn in the shares of the classes `seen` in the target, so that a class that the target
    has not got does not count as distance. None if there are too few rows.
    """
    rng = np.random.default_rng(0)
    drawn = matched(labels, seen, min(MOST_ROWS, len(seen)), rng)
    other = rng.permutation(len(target))[:MOST_ROWS]
    if min(len(drawn), len(other)) < _LEAST:
        return None
    rows = np.concatenate([source[drawn], target[other]])
    domain = np.repeat([0, 1], [len(drawn), len(other)])
    rows = PCA(min(_WIDTH, *rows.shape), random_state=0).fit_transform(rows)
    rows /= rows.std(axis=0) + 1e-12
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
    told = cross_val_predict(LogisticRegression(max_iter=1000, class_weight="balanced"), rows, domain, cv=folds)
    return float(np.mean([np.mean(told[domain == one] == one) for one in (0, 1)]))


def matched(labels: np.ndarray, seen: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Source rows, none twice, as nearly as can be in the shares of the classes `seen`."""
    shares = np.bincount(seen, minlength=int(labels.max()) + 1) / len(seen)
    chosen = []
    for label in np.flatnonzero(shares):
        rows = np.flatnonzero(labels == label)
        chosen.append(rng.permutation(rows)[: max(1, round(most * shares[label]))])
    return np.concatenate(chosen)


def finding(value: float) -> Iterator[Finding]:
    """The distance in words, where something follows from it."""
    if value < _ALIKE:
        yield Finding(
            NOTE,
            "domains alike",
            f"A classifier tells source from target in {value:.0%} of cases only (50 % is chance).",
            "There is little to adapt to: a classifier of the source may do as it is.",
        )


def in_words(value: float | None) -> str:
    """For people."""
    if value is None:
        return "too few samples to say"
    if value < _ALIKE:
        return f"hardly apart (told apart in {value:.0%} of cases; 50 % is chance)"
    if value < _CLEARLY:
        return f"apart in part (told apart in {value:.0%} of cases; 50 % is chance)"
    return f"clearly apart (told apart in {value:.0%} of cases; 50 % is chance), as other cameras or styles are"


# --- closeness --------------------------------------------------------------------------------------------


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
