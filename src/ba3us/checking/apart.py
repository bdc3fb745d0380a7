"""How far apart the domains are: can a classifier tell a source sample from a target sample?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from ba3us.checking.findings import NOTE, Finding

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
