"""Checks of two feature files: labels, values, duplicates, classes and domains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ba3us.check import cost as estimate
from ba3us.check import domains, images
from ba3us.check.domains import MOST_TARGET, Vectors, look, sample_source
from ba3us.check.findings import NOTE, STOP, WARNING, Finding, Report, many, some
from ba3us.check.images import Sample
from ba3us.data.domains import check_numbers, random_indices, release_pages
from ba3us.data.files import FeatureSet, check_same_backbone, encoded
from ba3us.errors import UserError, require
from ba3us.progress import bar
from ba3us.run.arrays import ArraySamples, OpenedArrays, read_arrays
from ba3us.run.spec import Spec

_CHUNK_VALUES = 1 << 22  # values looked at at once
_MOST = float(np.finfo(np.float32).max)
_TIMES = 10.0  # one domain's scale over the other's
_LEAST = 1e-6  # of a column's mean: a smaller deviation is rounding


def chunks(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(start, rows [n, values] as float32 or float64) for all of an array, some rows at a time."""
    width = int(np.prod(array.shape[1:]))
    step = max(1, _CHUNK_VALUES // max(1, width))
    for start in range(0, len(array), step):
        rows = np.asarray(array[start : start + step]).reshape(-1, width)
        yield start, rows.astype(np.float64 if rows.dtype == np.float64 else np.float32, copy=False)
        if isinstance(array, np.memmap):
            release_pages(array)


def good_rows(array: np.ndarray) -> np.ndarray:
    """Which rows hold nothing but numbers that float32 can hold."""
    with np.errstate(invalid="ignore"):
        return np.concatenate([(np.abs(rows) <= _MOST).all(axis=1) for _, rows in chunks(array)])


def not_finite(domain: str, good: np.ndarray) -> Iterator[Finding]:
    """Rows with NaN, infinite or overlarge values."""
    bad = [f"row {row}" for row in np.flatnonzero(~good)]
    if bad:
        yield Finding.of(
            STOP,
            f"not finite in {domain}",
            f"{many(len(bad), f'row of the {domain} has', f'rows of the {domain} have')} values that are NaN, "
            f"infinite or beyond float32: {some(bad)}.",
            "Drop or fill these rows: training refuses them.",
            bad,
        )


def constant(rows: np.ndarray, domain: str) -> Iterator[Finding]:
    """Columns that are the same in all of `rows`."""
    wide = rows.astype(np.float64)
    still = np.flatnonzero(wide.std(axis=0) <= _LEAST * np.abs(wide.mean(axis=0)))
    if not len(still):
        return
    all_of_them = len(still) == rows.shape[1]
    columns = [f"column {column}" for column in still]
    yield Finding.of(
        STOP if all_of_them else NOTE,
        f"constant columns in {domain}",
        f"{many(len(still), 'column is', 'columns are')} the same in all rows of the {domain}, of "
        f"{rows.shape[1]:,}: {some(columns)}.",
        "Make the features again: all rows are the same."
        if all_of_them
        else "Nothing, if that is known: they hold no information.",
        columns,
    )


def scales(source: np.ndarray, target: np.ndarray) -> Iterator[Finding]:
    """Domains of which one is much larger than the other: another unit, or another normalisation."""
    sizes = [float(np.sqrt(np.mean(np.square(rows, dtype=np.float64)))) for rows in (source, target)]
    large, small = max(sizes), min(sizes)
    if large > _TIMES * small:
        yield Finding(
            WARNING,
            "scales apart",
            f"Values of the source are of size {sizes[0]:.3g}, of the target {sizes[1]:.3g}.",
            "Make both in the same way: the same units, the same normalisation, the same backbone.",
        )


# --- the whole check --------------------------------------------------------------------------------------


_STEPS = ("Labels", "Values", "Duplicates", "Classes and domains", "Cost")


def check_features(spec: Spec, show: bool = False, cost: bool = True) -> Report:
    """Findings about the feature files of a spec; what training would refuse is a finding of its own."""
    source, target = read_arrays(spec)
    for content, domain in ((source, "source"), (target, "target")):
        require(len(content.features) > 0, f"The {domain} is empty: give at least one row.")
        check_numbers(content.features[:0], domain)  # their type; values are looked at below
    names = {"source": _rows(source), "target": _rows(target)}
    facts: dict[str, Any] = {
        "kind": "features",
        "source": {"rows": len(source.features), "shape": list(source.features.shape[1:])},
        "target": {"rows": len(target.features), "shape": list(target.features.shape[1:])},
    }
    findings: list[Finding] = []
    passed_over: list[str] = []
    with bar("Checking", len(_STEPS), show) as shown:
        shown.update(0, _STEPS[0])
        labels, known = _labels(source, spec, findings)
        if labels is not None:
            counts = {str(name): int(n) for name, n in zip(known, np.bincount(labels))}
            facts["source"]["classes"] = counts
            findings += [*domains.of_source(counts), *domains.names_alike(list(counts))]
        findings += [*domains.of_target(len(target.features)), *_fitting(source, target, spec)]
        shown.update(1, _STEPS[1])
        good = {"source": good_rows(source.features), "target": good_rows(target.features)}
        for domain, rows in good.items():
            findings += not_finite(domain, rows)
        shown.update(2, _STEPS[2])
        findings += _duplicates(source, target, labels, names)
        shown.update(3, _STEPS[3])
        alike = source.features.shape[1:] == target.features.shape[1:]
        if labels is None or not alike or not all(rows.any() for rows in good.values()):
            passed_over.append("Classes and domains: fix what is above first.")
        else:
            seen = _sampled(source, target, labels, known, good, names)
            findings += [
                *constant(seen.source, "source"),
                *scales(seen.source, seen.target),
            ]
            said, figures = look(seen)
            findings += said
            facts |= figures
            passed_over += _sampling(seen, len(source.features), len(target.features))
            shown.update(4, _STEPS[4])
            if cost and all(rows.all() for rows in good.values()):
                facts["cost"] = _cost(source, labels, target, known)
        shown.update(len(_STEPS))
    return Report.of(findings, facts, passed_over)


def _labels(source: FeatureSet, spec: Spec, findings: list[Finding]) -> tuple[np.ndarray | None, list[Any]]:
    """Labels as numbers and their classes; none, and a finding, if training would refuse them."""
    named = source.named_labels(str(spec.labels or spec.source))
    try:
        known, labels = encoded(named, len(source.features))
    except UserError as error:
        findings.append(_refusal("labels", error))
        return None, []
    return labels, known.tolist()


def _refusal(topic: str, error: UserError) -> Finding:
    """What training would say of it."""
    text, _, advice = str(error).rpartition(": ")
    return Finding(STOP, topic, f"{text}.", f"{advice[:1].upper()}{advice[1:]}")


def _fitting(source: FeatureSet, target: FeatureSet, spec: Spec) -> Iterator[Finding]:
    """Whether the two files are of one kind."""
    one, two = source.features.shape[1:], target.features.shape[1:]
    if one != two:
        yield Finding(
            STOP,
            "shapes",
            f"A source row has shape {one}, a target row {two}.",
            "Make both with the same backbone, or give both the same columns.",
        )
    try:
        check_same_backbone(source.origin, target.origin, str(spec.target))
    except UserError as error:
        yield _refusal("backbones", error)


def _duplicates(
    source: FeatureSet, target: FeatureSet, labels: np.ndarray | None, names: dict[str, list[str]]
) -> Iterator[Finding]:
    """Rows that are there twice; of two floating types the coarser one is compared."""
    kinds = [content.features.dtype for content in (source, target)]
    floating = all(kind.kind == "f" for kind in kinds)
    coarse = min(kinds, key=lambda kind: kind.itemsize).newbyteorder("=") if floating else np.dtype(np.float32)
    numbers_of = [None] * len(source.features) if labels is None else labels.tolist()
    samples = [Sample("source", name, label) for name, label in zip(names["source"], numbers_of)]
    samples += [Sample("target", name) for name in names["target"]]
    keys = []
    for content in (source, target):
        for _, rows in chunks(content.features):
            with np.errstate(over="ignore"):
                keys += [images.digest(row) for row in rows.astype(coarse)]
    yield from images.duplicate_findings(samples, images.equal_pairs(keys), "row")


def _sampled(
    source: FeatureSet,
    target: FeatureSet,
    labels: np.ndarray,
    known: list[Any],
    good: dict[str, np.ndarray],
    names: dict[str, list[str]],
) -> Vectors:
    whole = np.flatnonzero(good["source"])
    rows = whole[sample_source(labels[whole])]
    whole = np.flatnonzero(good["target"])
    other = whole[random_indices(len(whole), MOST_TARGET)]
    x, xt = (
        np.asarray(content.features[chosen], dtype=np.float32).reshape(len(chosen), -1)
        for content, chosen in ((source, rows), (target, other))
    )
    called = [names["source"][row] for row in rows], [names["target"][row] for row in other]
    return Vectors(x, labels[rows], xt, [str(name) for name in known], *called)


def _sampling(seen: Vectors, source: int, target: int) -> list[str]:
    if len(seen.source) == source and len(seen.target) == target:
        return []
    return [
        f"Classes and domains were judged by {len(seen.source):,} of {source:,} source rows and "
        f"{len(seen.target):,} of {target:,} target rows."
    ]


def _cost(source: FeatureSet, labels: np.ndarray, target: FeatureSet, known: list[Any]) -> list[dict[str, Any]]:
    if source.features.ndim != 2:
        return []
    opened = OpenedArrays(
        ArraySamples(source.features.shape[1:]), source.features, labels, target.features, known
    )
    return [estimate.to_dict(cost) for cost in estimate.of_head(opened)]


def _rows(content: FeatureSet) -> list[str]:
    return content.paths or [f"row {row}" for row in range(len(content.features))]
