"""Checks of duplicates: equal content by digest, nearly equal images by perceptual hash."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from ba3us.check.domains import Domains
from ba3us.check.findings import NOTE, STOP, WARNING, Finding, many, register_check, some
from ba3us.data.domains import random_indices

NEAR = 30  # of the 256 bits of a perceptual hash may differ; docs/results/check.md says how it was chosen
MOST_COMPARED = 20_000  # images that are compared with one another; more are sampled
_MOSTLY = 0.5  # of the target in the source: there is nothing to adapt to
_CHUNK = 2048


@register_check("arrays", "images")
def duplicates(domains: Domains) -> Iterator[Finding]:
    """Samples that are there twice: in both domains, under two labels, or in one domain."""
    noun, n_source, labels = domains.noun, len(domains.names["source"]), domains.labels
    names = [*domains.names["source"], *domains.names["target"]]
    kinds: dict[str, list[tuple[int, int]]] = defaultdict(list)
    digests, bits = domains.fingerprints()
    pairs = set(equal_pairs(digests))
    if bits is not None:
        rows = random_indices(len(bits), MOST_COMPARED)
        if len(rows) < len(bits):
            domains.passed_over.append(
                f"Nearly equal images were looked for among {len(rows):,} of {len(bits):,}."
            )
        pairs |= {(int(rows[a]), int(rows[b])) for a, b in near_pairs(bits[rows])}
    for first, row in sorted(pairs):
        if first < n_source <= row:
            kinds["across"].append((first, row))
        elif row < n_source and labels is not None and labels[first] != labels[row]:
            kinds["contradicting"].append((first, row))
        else:
            kinds["source" if row < n_source else "target"].append((first, row))
    items = {kind: [f"{names[a]} = {names[b]}" for a, b in pairs] for kind, pairs in kinds.items()}
    counts = {kind: len({row for _, row in pairs}) for kind, pairs in kinds.items()}
    if across := items.get("across"):
        shared = counts["across"]
        yield Finding.of(
            STOP if shared > _MOSTLY * len(domains.names["target"]) else WARNING,
            "duplicates across",
            f"{many(shared, f'target {noun} is', f'target {noun}s are')} in the source too: {some(across)}.",
            "Take them out of the target: they have labels already, and make the domains look closer.",
            across,
            shared,
        )
    if clash := items.get("contradicting"):
        yield Finding.of(
            WARNING,
            "duplicates of two classes",
            f"{many(len(clash), f'pair of source {noun}s is', f'pairs of source {noun}s are')} the same under "
            f"two labels: {some(clash)}.",
            "Decide which label is right, and remove the other.",
            clash,
        )
    for domain in ("source", "target"):
        if repeated := items.get(domain):
            yield Finding.of(
                NOTE,
                f"duplicates in {domain}",
                f"{many(counts[domain], f'{noun} is', f'{noun}s are')} in the {domain} more than once, or "
                f"nearly so: {some(repeated)}.",
                "Keep one of each: repeated ones count several times.",
                repeated,
            )


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
