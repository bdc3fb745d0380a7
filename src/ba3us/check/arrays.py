"""Two feature files: opened for checks, and the checks that only they have."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from ba3us.check import cost
from ba3us.check.domains import MOST_TARGET, Domains, Vectors, digest, sample_source
from ba3us.check.findings import STOP, Finding, many, register_check, some
from ba3us.data.domains import check_numbers, random_indices, release_pages
from ba3us.data.files import check_same_backbone, encoded
from ba3us.errors import UserError, require
from ba3us.run.arrays import ArraySamples, OpenedArrays, read_arrays
from ba3us.run.spec import Spec

_CHUNK_VALUES = 1 << 22  # values looked at at once


class ArrayDomains(Domains):
    """Two feature files."""

    noun = "row"

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.source, self.target = read_arrays(spec)
        self.features = {"source": self.source.features, "target": self.target.features}
        for domain, features in self.features.items():
            require(len(features) > 0, f"The {domain} is empty: give at least one row.")
            check_numbers(features[:0], domain)  # their type; a check looks at the values
        self.names = {
            "source": self.source.paths or [f"row {row}" for row in range(len(self.source.features))],
            "target": self.target.paths or [f"row {row}" for row in range(len(self.target.features))],
        }
        self.facts = {"kind": "features"} | {
            domain: {"rows": len(features), "shape": list(features.shape[1:])}
            for domain, features in self.features.items()
        }
        self.labels, self.counts, self.refusals = None, None, dict[str, str]()
        named = self.source.named_labels(str(spec.labels or spec.source))
        try:
            classes, self.labels = encoded(named, len(self.source.features))
            self.classes = classes.tolist()
            self.counts = {str(name): int(n) for name, n in zip(self.classes, np.bincount(self.labels))}
            self.facts["source"]["classes"] = self.counts
        except UserError as error:
            self.refusals["labels"] = str(error)
        one, two = (features.shape[1:] for features in self.features.values())
        if one != two:
            self.refusals["shapes"] = (
                f"A source row has shape {one}, a target row {two}: make both with the same backbone, or give "
                "both the same columns."
            )
        try:
            check_same_backbone(self.source.origin, self.target.origin, str(spec.target))
        except UserError as error:
            self.refusals["backbones"] = str(error)

    @cached_property
    def finite(self) -> dict[str, np.ndarray]:
        """Which rows of each domain hold nothing but numbers that float32 can hold."""
        return {domain: finite_rows(features) for domain, features in self.features.items()}

    def fingerprints(self) -> tuple[list[bytes], np.ndarray | None]:
        """Digests of rows; of two floating types the coarser one is compared."""
        kinds = [features.dtype for features in self.features.values()]
        coarse = np.dtype(np.float32)
        if all(kind.kind == "f" for kind in kinds):
            coarse = min(kinds, key=lambda kind: kind.itemsize).newbyteorder("=")
        digests = []
        for features in self.features.values():
            for rows in chunks(features):
                with np.errstate(over="ignore"):
                    digests += [digest(row) for row in rows.astype(coarse)]
        return digests, None

    @cached_property
    def vectors(self) -> Vectors | None:
        """Some finite rows of both domains."""
        source, target = self.source.features, self.target.features
        finite = {domain: np.flatnonzero(rows) for domain, rows in self.finite.items()}
        if self.labels is None or source.shape[1:] != target.shape[1:] or not all(map(len, finite.values())):
            return None
        rows = finite["source"][sample_source(self.labels[finite["source"]])]
        other = finite["target"][random_indices(len(finite["target"]), MOST_TARGET)]
        return Vectors(
            np.asarray(source[rows], dtype=np.float32).reshape(len(rows), -1),
            self.labels[rows],
            np.asarray(target[other], dtype=np.float32).reshape(len(other), -1),
            [str(name) for name in self.classes],
            [self.names["source"][row] for row in rows],
            [self.names["target"][row] for row in other],
        )

    def costs(self) -> list[dict[str, Any]] | None:
        """Of the automatic choice and a named method."""
        if self.labels is None or not all(rows.all() for rows in self.finite.values()):
            return None
        features = self.source.features
        if features.ndim != 2:
            return []
        samples = ArraySamples(features.shape[1:])
        opened = OpenedArrays(samples, features, self.labels, self.target.features, self.classes)
        return [cost.to_dict(each) for each in cost.of_head(opened)]


def chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    """All rows [n, values] of an array as float32 or float64, some rows at a time."""
    width = int(np.prod(array.shape[1:]))
    step = max(1, _CHUNK_VALUES // max(1, width))
    for start in range(0, len(array), step):
        rows = np.asarray(array[start : start + step]).reshape(-1, width)
        yield rows.astype(np.float64 if rows.dtype == np.float64 else np.float32, copy=False)
        if isinstance(array, np.memmap):
            release_pages(array)


def finite_rows(array: np.ndarray) -> np.ndarray:
    """Which rows hold nothing but numbers that float32 can hold."""
    largest = float(np.finfo(np.float32).max)
    with np.errstate(invalid="ignore"):
        return np.concatenate([(np.abs(rows) <= largest).all(axis=1) for rows in chunks(array)])


@register_check("arrays")
def refusals(domains: ArrayDomains) -> Iterator[Finding]:
    """What training refuses: labels, rows of two shapes, vectors of two backbones."""
    for topic, refusal in domains.refusals.items():
        text, _, advice = refusal.rpartition(": ")
        yield Finding(STOP, topic, f"{text}.", f"{advice[:1].upper()}{advice[1:]}")


@register_check("arrays")
def not_finite(domains: ArrayDomains) -> Iterator[Finding]:
    """Rows with NaN, infinite or overlarge values."""
    for domain, finite in domains.finite.items():
        bad = [f"row {row}" for row in np.flatnonzero(~finite)]
        if bad:
            yield Finding.of(
                STOP,
                f"not finite in {domain}",
                f"{many(len(bad), f'row of the {domain} has', f'rows of the {domain} have')} values that are "
                f"NaN, infinite or beyond float32: {some(bad)}.",
                "Drop or fill these rows: training refuses them.",
                bad,
            )
