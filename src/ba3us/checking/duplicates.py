"""Samples that are there twice: equal content by digest, nearly equal pictures by perceptual hash."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ba3us.checking.findings import NOTE, STOP, WARNING, Finding, many, some

HASH_SIDE = 16  # a perceptual hash has 16 × 16 bits
NEAR = 30  # of these 256 bits may differ; docs/results/check.md says how it was chosen
MOST_COMPARED = 20_000  # pictures that are compared with one another; more are sampled
_MOSTLY = 0.5  # of the target in the source: there is nothing to adapt to
_CHUNK = 2048
_DIGEST = 16  # bytes


@dataclass(frozen=True)
class Sample:
    """One sample of either domain: what messages call it, and its class if it has one."""

    domain: str
    name: str
    label: int | None = None

    def __str__(self) -> str:
        return self.name


def digest(values: np.ndarray) -> bytes:
    """Equal for equal values."""
    return hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=_DIGEST).digest()


def equal_pairs(digests: Sequence[bytes]) -> list[tuple[int, int]]:
    """Each row that equals an earlier one, with the first that it equals: (first, row)."""
    first: dict[bytes, list[int]] = defaultdict(list)
    for row, key in enumerate(digests):
        first[key].append(row)
    return [(group[0], row) for group in first.values() for row in group[1:]]


def near_pairs(bits: np.ndarray, most: int = NEAR) -> list[tuple[int, int]]:
    """Each row of bool [n, b] that differs from an earlier one in at most `most` places: (first such, row)."""
    signs = np.where(bits, np.float32(1), np.float32(-1))
    least = signs.shape[1] - 2 * most  # of the product of two rows
    first = np.full(len(signs), -1)
    for start in range(0, len(signs), _CHUNK):
        near = np.triu(signs[start : start + _CHUNK] @ signs[start:].T >= least, k=1)
        new = near.any(axis=0) & (first[start:] < 0)
        first[start:][new] = start + near[:, new].argmax(axis=0)
    return [(int(first[row]), int(row)) for row in np.flatnonzero(first >= 0)]


def findings(samples: Sequence[Sample], pairs: Sequence[tuple[int, int]], noun: str) -> Iterator[Finding]:
    """What pairs of equal or nearly equal samples say; `noun` names a sample: image, row."""
    kinds: dict[str, list[tuple[Sample, Sample]]] = defaultdict(list)
    for one, two in pairs:
        a, b = sorted((samples[one], samples[two]), key=lambda sample: sample.domain)  # source before target
        if a.domain != b.domain:
            kinds["across"].append((a, b))
        elif a.label != b.label:
            kinds["contradicting"].append((a, b))
        else:
            kinds[a.domain].append((a, b))
    rows = sum(sample.domain == "target" for sample in samples)
    yield from _across(kinds["across"], rows, noun)
    if clash := kinds["contradicting"]:
        yield Finding.of(
            WARNING,
            "duplicates of two classes",
            f"{many(len(clash), f'pair of source {noun}s is', f'pairs of source {noun}s are')} the same under "
            f"two labels: {some(_told(clash))}.",
            "Decide which label is right, and remove the other.",
            _told(clash),
        )
    for domain in ("source", "target"):
        if twins := kinds[domain]:
            yield Finding.of(
                NOTE,
                f"duplicates in {domain}",
                f"{many(len({id(b) for _, b in twins}), f'{noun} is', f'{noun}s are')} in the {domain} more "
                f"than once, or nearly so: {some(_told(twins))}.",
                "Keep one of each: repeated ones count several times.",
                _told(twins),
            )


def _across(pairs: list[tuple[Sample, Sample]], rows: int, noun: str) -> Iterator[Finding]:
    if not pairs:
        return
    shared = len({id(b) for _, b in pairs})
    yield Finding(
        STOP if shared > _MOSTLY * rows else WARNING,
        "duplicates across",
        f"{many(shared, f'target {noun} is', f'target {noun}s are')} in the source too: {some(_told(pairs))}.",
        "Take them out of the target: they have labels already, and make the domains look closer.",
        shared,
        tuple(_told(pairs)[:1000]),
    )


def _told(pairs: Sequence[tuple[Sample, Sample]]) -> list[str]:
    return [f"{a} = {b}" for a, b in pairs]
