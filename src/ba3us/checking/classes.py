"""Label spaces: how many of each class, and names that do not fit one another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ba3us.checking.findings import NOTE, STOP, WARNING, Finding, many, some

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
