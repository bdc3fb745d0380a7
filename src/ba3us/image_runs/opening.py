"""From paths to images that can be read, classes that have some, and a list of what was left out."""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ba3us.data.cache import CachedPixels, open_images
from ba3us.data.images import ImageList, Skipped, read_class_names, read_images
from ba3us.errors import require
from ba3us.image_runs.options import ImageOptions


@dataclass(frozen=True)
class OpenedSource:
    """Labelled images that can be read; labels count the classes that have some."""

    pixels: CachedPixels
    labels: np.ndarray
    class_names: list[str]
    skipped: list[Skipped]


@dataclass(frozen=True)
class OpenedTarget:
    """Unlabelled images that can be read."""

    pixels: CachedPixels
    skipped: list[Skipped]


def list_source(path: Path, root: Path | None, classes: Path | None) -> ImageList:
    """The labelled images of a folder of class folders or a list file; there must be two classes."""
    names = None if classes is None else read_class_names(classes)
    images = read_images(path, root=_root_for(path, root), labelled=True, class_names=names)
    assert images.labels is not None
    _check_classes(path, len(np.unique(images.labels)))
    return images


def list_target(path: Path, root: Path | None) -> ImageList:
    """All images of a folder, however nested, or of a list file; labels and folder names are not looked at."""
    return read_images(path, root=_root_for(path, root), labelled=False)


def open_source(images: ImageList, side: int, chosen: ImageOptions, progress: bool) -> OpenedSource:
    """Decode what is not in the cache; classes none of whose images can be read are left out."""
    opened = open_images(images, side, **_how(chosen, progress), title="Decoding the source")
    assert images.labels is not None
    assert images.class_names is not None
    assert opened.images.labels is not None
    kept, labels = np.unique(opened.images.labels, return_inverse=True)
    _check_classes(images.root, len(kept))
    names = [_printable(name) for name in images.class_names]
    lost = sorted(set(images.labels.tolist()) - set(kept.tolist()))
    reasons = [Skipped(names[label], "a class none of whose images can be read") for label in lost]
    chosen_names = [names[label] for label in kept]
    twice = [name for name in chosen_names if chosen_names.count(name) > 1]
    require(not twice, f"{images.root} has two classes called {twice[:1]}: give each its own name.")
    return OpenedSource(opened.pixels, labels, chosen_names, opened.skipped + reasons)


def open_target(images: ImageList, side: int, chosen: ImageOptions, progress: bool) -> OpenedTarget:
    """Decode what is not in the cache."""
    opened = open_images(images, side, **_how(chosen, progress), title="Decoding the target")
    return OpenedTarget(opened.pixels, opened.skipped)


def notes_on(class_names: list[str]) -> list[str]:
    """What somebody should know of these classes, a sentence each."""
    alike = defaultdict(list)
    for name in class_names:
        alike[name.casefold()].append(name)
    return [
        f"The classes {' and '.join(map(repr, names))} differ only in case: they are {len(names)} classes."
        for names in alike.values()
        if len(names) > 1
    ]


def write_skipped(path: Path, skipped: dict[str, list[Skipped]]) -> int:
    """List what was left out of each domain; returns how many. Without any, no file is written."""
    count = sum(map(len, skipped.values()))
    if count:
        with open(path, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            rows = csv.writer(file, lineterminator=os.linesep)
            rows.writerow(["domain", "path", "reason"])
            rows.writerows(
                (domain, item.path, item.reason) for domain, items in skipped.items() for item in items
            )
    return count


def _how(chosen: ImageOptions, progress: bool) -> dict[str, Any]:
    return {"cache_gb": chosen.cache_gb, "workers": chosen.workers, "progress": progress}


def _root_for(path: Path, root: Path | None) -> Path | None:
    """One --root serves two list files, also where the other domain is a folder."""
    return None if path.is_dir() else root


def _check_classes(path: Path, count: int) -> None:
    require(count > 1, f"The source {path} has {count} class with images: give at least two classes.")


def _printable(name: str) -> str:
    """A folder's name as text, also where its bytes are none."""
    return os.fsencode(name).decode("utf-8", "replace")
