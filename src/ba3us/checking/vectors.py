"""What vectors of both domains say: labels that look wrong, unknown classes, how far apart the domains are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ba3us.checking import apart, closeness
from ba3us.checking.findings import Finding

MOST_SOURCE, MOST_TARGET = 4000, 2000  # rows that are looked at; more are sampled
_PER_CLASS = 10  # at least, of a source of many classes
_LEAST = 12  # target rows: a row, its neighbours, and one that is none


def sample_source(labels: np.ndarray, most: int = MOST_SOURCE) -> np.ndarray:
    """Row numbers, in order: all, or so many of each class that they are about `most`, never twice as many."""
    if len(labels) <= most:
        return np.arange(len(labels))
    rng, classes = np.random.default_rng(0), np.unique(labels)
    per_class = max(_PER_CLASS, most // len(classes))
    chosen = np.concatenate([rng.permutation(np.flatnonzero(labels == one))[:per_class] for one in classes])
    return np.sort(rng.permutation(chosen)[: 2 * most])


def sample_target(rows: int, most: int = MOST_TARGET) -> np.ndarray:
    """Row numbers, in order: all, or `most` of them."""
    return np.sort(np.random.default_rng(0).permutation(rows)[:most])


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
    source, target = closeness.directions(seen.source, seen.target)
    confusion = closeness.Confusion.of(source, seen.labels, count)
    found = list(closeness.mislabelled(confusion, seen.classes, seen.source_names))
    facts: dict[str, Any] = {"source_rows_like_their_class": round(confusion.accuracy, 4)}
    if len(target) < _LEAST:
        return found, facts
    labels = merged(seen.labels, confusion.same())
    sight = closeness.Sight.of(target, source, labels, count)
    told_apart = apart.accuracy(source, labels, target, sight.seen)
    found += closeness.unknown(sight, seen.classes, seen.target_names)
    if told_apart is not None:
        found += apart.finding(told_apart)
    facts |= {
        "domains": apart.in_words(told_apart),
        "told_apart": None if told_apart is None else round(told_apart, 4),
        "neighbours_kappa": round(sight.kappa, 4),
        "classes_seen_in_target": [str(seen.classes[label]) for label in sight.classes()],
        "undecided_share": round(len(sight.undecided) / len(target), 4),
    }
    return found, facts
