"""Checks of the classes' names and sizes, and of the target's size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ba3us.check.domains import Domains
from ba3us.check.findings import NOTE, STOP, WARNING, Finding, many, register_check, some

TINY = 5  # samples: a class with fewer can hardly be learnt
_LOPSIDED = 50  # times as many as the smallest class
FEW = 30  # target samples: with fewer, neither presence nor verdict can be judged


@register_check("arrays", "images")
def class_sizes(domains: Domains) -> Iterator[Finding]:
    """Too few classes, class folders without an image, and classes with few samples."""
    counts, empty = domains.counts, domains.empty_classes
    if counts is None:
        return
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
    by_size = sorted(counts, key=lambda name: counts[name])
    tiny = [f"{name} ({counts[name]})" for name in by_size if counts[name] < TINY]
    if tiny:
        yield Finding.of(
            WARNING,
            "tiny classes",
            f"{many(len(tiny), 'class has', 'classes have')} fewer than {TINY} samples: {some(tiny)}.",
            "Add samples, or take these classes out: they can hardly be learnt.",
            tiny,
        )
    largest, smallest = max(counts, key=lambda name: counts[name]), by_size[0]
    if not tiny and counts[largest] > _LOPSIDED * counts[smallest]:
        yield Finding(
            NOTE,
            "uneven classes",
            f"{largest} has {counts[largest]:,} samples, {smallest} {counts[smallest]:,}.",
            "Rare classes are predicted too seldom: add samples, or take some of the largest class away.",
        )


@register_check("arrays", "images")
def similar_class_names(domains: Domains) -> Iterator[Finding]:
    """Names of classes that differ only in case, blanks or dashes."""
    alike = defaultdict(list)
    for name in domains.counts or ():
        alike[normalised(name)].append(name)
    for group in alike.values():
        if len(group) > 1:
            yield Finding.of(
                WARNING,
                "names alike",
                f"The classes {' and '.join(map(repr, group))} differ only in case, blanks or dashes.",
                "Put them into one folder if they are one class; else give them names of their own.",
                group,
            )


@register_check("arrays", "images")
def target_size(domains: Domains) -> Iterator[Finding]:
    """A target with few samples."""
    rows = len(domains.names["target"])
    if rows < FEW:
        yield Finding(
            WARNING,
            "small target",
            f"The target has {many(rows, 'sample')}.",
            f"Give {FEW} or more: with fewer, which classes it holds and whether adapting helped is a guess.",
        )


def normalised(name: str) -> str:
    """A name without what people write in several ways."""
    return "".join(letter for letter in name.casefold() if letter not in " _-\t.")
