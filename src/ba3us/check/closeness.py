"""Checks of the vectors of both domains: values, mislabelled or unknown classes, distance of domains."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ba3us.check.domains import ALIKE, HOLDS, Domains
from ba3us.check.findings import NOTE, STOP, WARNING, Finding, many, register_check, some

UNKNOWN = 0.05  # of the target that is undecided
LEAST = 10  # rows that are worth a word
_TIMES = 10.0  # one domain's scale over the other's
_LEAST_DEVIATION = 1e-6  # of a column's mean: a smaller one is rounding


@register_check("arrays")
def constant_columns(domains: Domains) -> Iterator[Finding]:
    """Columns that are the same in all rows of the source."""
    if domains.vectors is None:
        return
    rows = domains.vectors.source.astype(np.float64)
    constant = np.flatnonzero(rows.std(axis=0) <= _LEAST_DEVIATION * np.abs(rows.mean(axis=0)))
    if not len(constant):
        return
    columns = [f"column {column}" for column in constant]
    level, advice = NOTE, "Nothing, if that is known: they hold no information."
    if len(constant) == rows.shape[1]:
        level, advice = STOP, "Make the features again: all rows are the same."
    yield Finding.of(
        level,
        "constant columns in source",
        f"{many(len(constant), 'column is', 'columns are')} the same in all rows of the source, of "
        f"{rows.shape[1]:,}: {some(columns)}.",
        advice,
        columns,
    )


@register_check("arrays")
def scales(domains: Domains) -> Iterator[Finding]:
    """Domains of which one is much larger than the other: another unit, or another normalisation."""
    if domains.vectors is None:
        return
    both = domains.vectors.source, domains.vectors.target
    sizes = [float(np.sqrt(np.mean(np.square(rows, dtype=np.float64)))) for rows in both]
    if max(sizes) > _TIMES * min(sizes):
        yield Finding(
            WARNING,
            "scales apart",
            f"Values of the source are of size {sizes[0]:.3g}, of the target {sizes[1]:.3g}.",
            "Make both in the same way: the same units, the same normalisation, the same backbone.",
        )


@register_check("arrays", "images")
def mislabelled(domains: Domains) -> Iterator[Finding]:
    """Classes that hold the same things, and classes in part of which another is seen."""
    if domains.vectors is None:
        return
    confusion, names, rows = domains.closeness[0], domains.vectors.classes, domains.vectors.source_names
    shares = confusion.shares
    for a, b in confusion.same():
        items = [rows[row] for row in (*confusion.rows(a, b), *confusion.rows(b, a))]
        yield Finding.of(
            WARNING,
            "same content",
            f"{names[a]} and {names[b]} seem to hold the same things: {shares[a, b]:.0%} of the one and "
            f"{shares[b, a]:.0%} of the other look like the other.",
            "Look whether one of the two folders holds the wrong images, or whether they are one class.",
            items,
        )
    for a, b in confusion.mixed():
        items = [rows[row] for row in confusion.rows(a, b)]
        yield Finding.of(
            NOTE,
            "mixed class",
            f"{shares[a, b]:.0%} of {names[a]} ({many(len(items), 'sample')}) look like {names[b]}: "
            f"{some(items)}.",
            "Look at them: mislabelled, or two classes that are hard to tell apart.",
            items,
        )


@register_check("arrays", "images")
def unknown_class(domains: Domains) -> Iterator[Finding]:
    """A part of the target that seems to be of no class of the source; and a shift too hard to say."""
    if domains.vectors is None or (sight := domains.closeness[1]) is None:
        return
    names, rows = domains.vectors.classes, domains.vectors.target_names
    if sight.kappa < HOLDS:
        yield Finding(
            WARNING,
            "hard shift",
            f"The source's classes are hard to see in the target: neighbours agree in their class with κ = "
            f"{sight.kappa:.2f} only (below {HOLDS}).",
            "Expect little of a named method, and heed the verdict of the automatic choice; whether the "
            "target holds an unknown class can't be told here.",
        )
        return
    undecided = sight.undecided
    if len(undecided) < max(LEAST, UNKNOWN * len(sight.margin)):
        return
    both = np.stack([sight.predicted[undecided], sight.between[undecided]])
    pairs, counts = np.unique(both, axis=1, return_counts=True)
    between = [f"{names[a]} and {names[b]}" for a, b in pairs[:, np.argsort(-counts, kind="stable")].T]
    items = [rows[row] for row in undecided]
    yield Finding.of(
        WARNING,
        "unknown class",
        f"{len(undecided) / len(sight.margin):.0%} of the target ({many(len(undecided), 'sample')}) lie "
        f"between the source's classes (mostly between {between[0]}), and so do their neighbours: "
        f"{some(items)}.",
        "Look at them: if they are of a class that the source has not got, add it or take them out; they "
        "would be given wrong classes.",
        items,
    )


@register_check("arrays", "images")
def similar_domains(domains: Domains) -> Iterator[Finding]:
    """Domains that a classifier can hardly tell apart: there is little to adapt to."""
    accuracy = None if domains.vectors is None else domains.closeness[2]
    if accuracy is not None and accuracy < ALIKE:
        yield Finding(
            NOTE,
            "domains alike",
            f"A classifier tells source from target in {accuracy:.0%} of cases only (50 % is chance).",
            "There is little to adapt to: a classifier of the source may do as it is.",
        )
