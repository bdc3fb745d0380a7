"""Checking two feature files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ba3us.checking import classes, duplicates, numbers
from ba3us.checking.duplicates import Sample
from ba3us.checking.findings import STOP, Finding, Report
from ba3us.checking.vectors import Vectors, look, sample_source, sample_target
from ba3us.data.domain import check_numbers
from ba3us.data.files import FeatureSet, check_same_backbone
from ba3us.data.labels import encoded
from ba3us.engine import estimate
from ba3us.engine.opening import OpenedArrays, read_arrays
from ba3us.engine.samples import Arrays
from ba3us.engine.spec import Spec
from ba3us.errors import UserError, require
from ba3us.progress import bar

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
            findings += [*classes.of_source(counts), *classes.names_alike(list(counts))]
        findings += [*classes.of_target(len(target.features)), *_fitting(source, target, spec)]
        shown.update(1, _STEPS[1])
        good = {"source": numbers.good_rows(source.features), "target": numbers.good_rows(target.features)}
        for domain, rows in good.items():
            findings += numbers.not_finite(domain, rows)
        shown.update(2, _STEPS[2])
        findings += _duplicates(source, target, labels, names)
        shown.update(3, _STEPS[3])
        alike = source.features.shape[1:] == target.features.shape[1:]
        if labels is None or not alike or not all(rows.any() for rows in good.values()):
            passed_over.append("Classes and domains: mend what is above first.")
        else:
            seen = _sampled(source, target, labels, known, good, names)
            findings += [
                *numbers.constant(seen.source, "source"),
                *numbers.scales(seen.source, seen.target),
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
        for _, rows in numbers.chunks(content.features):
            with np.errstate(over="ignore"):
                keys += [duplicates.digest(row) for row in rows.astype(coarse)]
    yield from duplicates.findings(samples, duplicates.equal_pairs(keys), "row")


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
    other = whole[sample_target(len(whole))]
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
    opened = OpenedArrays(Arrays(source.features.shape[1:]), source.features, labels, target.features, known)
    return [estimate.told(cost) for cost in estimate.of_head(opened)]


def _rows(content: FeatureSet) -> list[str]:
    return content.paths or [f"row {row}" for row in range(len(content.features))]
