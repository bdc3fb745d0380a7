"""Checking two folders or lists of images."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ba3us.checking import classes, duplicates, pictures
from ba3us.checking.duplicates import Sample
from ba3us.checking.findings import Finding, Report
from ba3us.checking.vectors import Vectors, look, sample_source, sample_target
from ba3us.data.cache import Readable, open_images, worker_count
from ba3us.data.images import ImageList
from ba3us.embedding import embed
from ba3us.engine import estimate, opening
from ba3us.engine.opening import OpenedArrays
from ba3us.engine.samples import Arrays
from ba3us.engine.spec import Spec
from ba3us.nn.backbones import Backbone
from ba3us.progress import say


def check_images(spec: Spec, show: bool = False, cost: bool = True) -> Report:
    """Findings about the images of a spec. What is decoded and embedded here, ``ba3us adapt`` finds done."""
    source, target = Path(str(spec.source)), Path(str(spec.target))
    listed, unlabelled = opening.list_labelled(source, spec), opening.list_images(target, spec.root)
    backbone, _ = opening.seen_with(spec)
    how: dict[str, Any] = {"cache_gb": opening.gigabytes(spec), "workers": spec.workers, "progress": show}
    ours = open_images(listed, backbone.side, **how, title="Decoding the source")
    theirs = open_images(unlabelled, backbone.side, **how, title="Decoding the target")
    names = opening.class_texts(listed.class_names or [])
    findings, facts = _files(ours, theirs, names, worker_count(spec.workers))
    findings += classes.target_folders(_folders(target), names)
    twins, passed_over = _duplicates(ours, theirs, worker_count(spec.workers), show)
    findings += twins
    labels = ours.images.labels
    assert labels is not None
    if len(np.unique(labels)) > 1:
        seen = _embedded(ours.images, theirs.images, names, backbone, how, opening.place(spec))
        say("Comparing classes and domains", show)
        found, figures = look(seen)
        findings += found
        facts |= figures
        if (len(seen.source), len(seen.target)) != (len(ours.images), len(theirs.images)):
            passed_over.append(
                f"Classes and domains were judged by {len(seen.source):,} of {len(ours.images):,} source "
                f"images and {len(seen.target):,} of {len(theirs.images):,} target images."
            )
        if cost:
            say("Timing a step of each depth", show)
            facts["cost"] = _cost(seen, backbone, (len(ours.images), len(theirs.images)))
    else:
        passed_over.append("Classes and domains: mend what is above first.")
    return Report.of(findings, facts, passed_over)


def _files(
    source: Readable, target: Readable, names: list[str], workers: int
) -> tuple[list[Finding], dict[str, Any]]:
    """What the files themselves say: counts, sizes, channels, and those that can't be read."""
    labels = source.images.labels
    assert labels is not None
    each = np.bincount(labels, minlength=len(names))
    counts = {name: int(count) for name, count in zip(names, each) if count}
    lost = [name for name, count in zip(names, each) if not count]
    empty = [item.path for item in source.skipped if item.reason == "a class folder without images"]
    looks = {domain: pictures.looks(r.pixels, workers) for domain, r in _both(source, target)}
    findings = [*classes.of_source(counts, empty + lost), *classes.names_alike(list(counts))]
    findings += classes.of_target(len(target.images))
    for domain, readable in _both(source, target):
        findings += pictures.unreadable(domain, readable.skipped, len(readable.images))
        findings += pictures.sizes(domain, looks[domain])
    findings += pictures.channels(looks["source"], looks["target"])
    facts: dict[str, Any] = {
        "kind": "images",
        "source": {"images": len(source.images), "classes": counts} | pictures.measures(looks["source"]),
        "target": {"images": len(target.images)} | pictures.measures(looks["target"]),
    }
    return findings, facts


def _both(source: Readable, target: Readable) -> Iterator[tuple[str, Readable]]:
    yield from (("source", source), ("target", target))


def _folders(path: Path) -> list[str]:
    """Names of a folder's own folders."""
    if not path.is_dir():
        return []
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _duplicates(
    source: Readable, target: Readable, workers: int, show: bool
) -> tuple[list[Finding], list[str]]:
    """Pictures that are there twice, and what was not compared."""
    samples, keys, said = [], [], []
    hashes: list[np.ndarray] = []
    for domain, readable in _both(source, target):
        digests, bits = pictures.prints(readable.pixels, workers, show, f"Comparing the {domain}")
        labels = readable.images.labels
        numbers = [None] * len(digests) if labels is None else labels.tolist()
        samples += [Sample(domain, name, label) for name, label in zip(readable.images.paths, numbers)]
        keys += digests
        hashes += [] if bits is None else [bits]
    pairs = set(duplicates.equal_pairs(keys))
    if not hashes:
        said.append("Nearly equal images were not looked for: pip install 'ba3us[check]'.")
    else:
        rows = sample_target(len(keys), duplicates.MOST_COMPARED)
        if len(rows) < len(keys):
            said.append(f"Nearly equal images were looked for among {len(rows):,} of {len(keys):,}.")
        near = duplicates.near_pairs(np.concatenate(hashes)[rows])
        pairs |= {(int(rows[a]), int(rows[b])) for a, b in near}
    return list(duplicates.findings(samples, sorted(pairs), "image")), said


def _embedded(
    source: ImageList,
    target: ImageList,
    names: list[str],
    backbone: Backbone,
    how: dict[str, Any],
    device: str,
) -> Vectors:
    """Vectors of the images that are looked at."""
    assert source.labels is not None
    kept, labels = np.unique(source.labels, return_inverse=True)
    rows, other = sample_source(labels), sample_target(len(target))
    parts = [_rows_of(source, rows), _rows_of(target, other)]
    x, xt = (embed(part, backbone, device=device, **how).content.features for part in parts)
    return Vectors(x, labels[rows], xt, [names[label] for label in kept], parts[0].paths, parts[1].paths)


def _rows_of(images: ImageList, rows: np.ndarray) -> ImageList:
    return dataclasses.replace(images, paths=[images.paths[row] for row in rows], labels=None, skipped=[])


def _cost(seen: Vectors, backbone: Backbone, rows: tuple[int, int]) -> list[dict[str, Any]]:
    """Of the automatic choice, and of a named system in all three depths, on all images."""
    opened = OpenedArrays(
        Arrays(seen.source.shape[1:]), seen.source, seen.labels, seen.target, list(seen.classes)
    )
    return [estimate.told(cost) for cost in estimate.of_depths(backbone, rows, opened)]
