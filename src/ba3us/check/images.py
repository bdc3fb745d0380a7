"""Checks of two folders or lists of images: the files, duplicates, classes and domains."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ba3us.check import cost as estimate
from ba3us.check import domains
from ba3us.check.domains import MOST_TARGET, Vectors, look, sample_source
from ba3us.check.findings import NOTE, STOP, WARNING, Finding, Report, many, some
from ba3us.data.domains import random_indices
from ba3us.data.image_cache import (
    CachedPixels,
    Readable,
    map_in_order,
    open_image,
    open_images,
    quiet_pillow,
    worker_count,
)
from ba3us.data.images import ImageList, Skipped
from ba3us.embed import embed
from ba3us.errors import UserError, optional_import
from ba3us.nn.backbones import Backbone
from ba3us.progress import bar, say
from ba3us.run import images
from ba3us.run.arrays import ArraySamples, OpenedArrays
from ba3us.run.spec import Spec, gigabytes, place

SMALL = 64  # pixels: of a shorter side much is lost
_LONG = 4  # times the shorter side: squeezed into a square, little is left
_GREY = ("1", "L", "LA", "I", "F")
_APART = 0.5  # difference of the shares of grey images


@dataclass(frozen=True)
class Look:
    """The header of an image file."""

    name: str
    width: int
    height: int
    mode: str

    @property
    def grey(self) -> bool:
        """Whether it has one channel of light."""
        return self.mode.partition(";")[0] in _GREY


def measured_images(pixels: CachedPixels, workers: int) -> list[Look]:
    """Headers of images that could be read a moment ago; one that can't any more is left out."""

    def look(row: int) -> Look | None:
        try:
            with open_image(pixels.images.file(row)) as image:
                return Look(pixels.images.paths[row], image.width, image.height, image.mode)
        except Exception:  # Pillow raises many kinds; a run would say so with the file's name
            return None

    with quiet_pillow():
        return [seen for seen in map_in_order(look, range(len(pixels)), workers) if seen is not None]


def prints(pixels: CachedPixels, workers: int, show: bool, title: str) -> tuple[list[bytes], np.ndarray | None]:
    """Digests of the decoded squares, and bool [n, 256] of perceptual hashes where imagehash is installed."""
    pil, imagehash = optional_import("PIL.Image", "vision"), perceptual()

    def look(row: int) -> tuple[bytes, np.ndarray | None]:
        square = pixels.read(np.array([row]))[0]
        if imagehash is None:
            return digest(square), None
        return digest(square), imagehash.phash(pil.fromarray(square), hash_size=HASH_SIDE).hash.ravel()

    digests, bits = [], []
    with bar(title, len(pixels), show) as shown:
        for done, (key, hashed) in enumerate(map_in_order(look, range(len(pixels)), workers), start=1):
            digests.append(key)
            bits.append(hashed)
            shown.update(done)
    return digests, None if imagehash is None else np.array(bits)


def perceptual() -> Any | None:
    """The package imagehash, if it is installed."""
    try:
        return optional_import("imagehash", "check")
    except UserError:
        return None


def unreadable(domain: str, skipped: Sequence[Skipped], readable: int) -> Iterator[Finding]:
    """Files that gave no image; what never claimed to be one is only noted."""
    other = [item for item in skipped if item.reason.startswith(("not an image file", "lies outside"))]
    bad = [item for item in skipped if item not in other and "class folder" not in item.reason]
    if bad:
        told = [f"{item.path} ({item.reason})" for item in bad]
        yield Finding.of(
            WARNING,
            f"unreadable in {domain}",
            f"{many(len(bad), 'file')} of the {domain} can't be read, {readable:,} can: {some(told)}.",
            "Fetch them again or remove them; they are left out of training.",
            told,
        )
    if other:
        told = [f"{item.path} ({item.reason})" for item in other]
        yield Finding.of(
            NOTE,
            f"left out of {domain}",
            f"{many(len(other), 'file is', 'files are')} left out of the {domain}: {some(told)}.",
            "Nothing, if they are not meant to be images of a class.",
            told,
        )


def sizes(domain: str, seen: Sequence[Look]) -> Iterator[Finding]:
    """Images that are very small or very long."""
    small = [
        f"{look.name} ({look.width}×{look.height})" for look in seen if min(look.width, look.height) < SMALL
    ]
    long = [
        f"{look.name} ({look.width}×{look.height})"
        for look in seen
        if max(look.width, look.height) > _LONG * min(look.width, look.height)
    ]
    if small:
        yield Finding.of(
            NOTE,
            f"small images in {domain}",
            f"{many(len(small), 'image')} of the {domain} with a side below {SMALL} pixels: {some(small)}.",
            "Look whether they are thumbnails of better files.",
            small,
        )
    if long:
        yield Finding.of(
            NOTE,
            f"long images in {domain}",
            f"{many(len(long), 'image')} of the {domain}, one side over {_LONG} times the other: {some(long)}.",
            "Crop them: every image is squeezed into a square.",
            long,
        )


def channels(source: Sequence[Look], target: Sequence[Look]) -> Iterator[Finding]:
    """One domain in colour, the other in grey."""
    grey = [sum(look.grey for look in seen) / max(1, len(seen)) for seen in (source, target)]
    if abs(grey[0] - grey[1]) > _APART:
        yield Finding(
            NOTE,
            "grey and colour",
            f"{grey[0]:.0%} of the source's images are grey, {grey[1]:.0%} of the target's.",
            "Turn all of them grey if colour does not matter: it is a difference that need not be adapted to.",
        )


def measures(seen: Sequence[Look]) -> dict[str, Any]:
    """Sizes and channels, for people and machines."""
    shape = np.array([(look.width, look.height) for look in seen]).reshape(-1, 2)
    if not len(shape):
        return {}
    low, middle, high = (np.quantile(shape, q, axis=0).round().astype(int).tolist() for q in (0, 0.5, 1))
    modes = Counter(look.mode for look in seen).most_common()
    return {"smallest": low, "median": middle, "largest": high, "modes": dict(modes)}


# --- duplicates -------------------------------------------------------------------------------------------
# Equal content by digest, nearly equal pictures by perceptual hash.


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


def duplicate_findings(
    samples: Sequence[Sample], pairs: Sequence[tuple[int, int]], noun: str
) -> Iterator[Finding]:
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


# --- the whole check --------------------------------------------------------------------------------------


def check_images(spec: Spec, show: bool = False, cost: bool = True) -> Report:
    """Findings about the images of a spec. What is decoded and embedded here, ``ba3us adapt`` finds done."""
    source, target = Path(str(spec.source)), Path(str(spec.target))
    listed, unlabelled = images.list_labelled(source, spec), images.list_images(target, spec.root)
    backbone, _ = images.backbone_of(spec)
    how: dict[str, Any] = {"cache_gb": gigabytes(spec), "workers": spec.workers, "progress": show}
    ours = open_images(listed, backbone.side, **how, title="Decoding the source")
    theirs = open_images(unlabelled, backbone.side, **how, title="Decoding the target")
    names = images.class_texts(listed.class_names or [])
    findings, facts = _files(ours, theirs, names, worker_count(spec.workers))
    findings += domains.target_folders(_folders(target), names)
    twins, passed_over = _duplicates(ours, theirs, worker_count(spec.workers), show)
    findings += twins
    labels = ours.images.labels
    assert labels is not None
    if len(np.unique(labels)) > 1:
        seen = _embedded(ours.images, theirs.images, names, backbone, how, place(spec))
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
        passed_over.append("Classes and domains: fix what is above first.")
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
    looks = {domain: measured_images(r.pixels, workers) for domain, r in _both(source, target)}
    findings = [*domains.of_source(counts, empty + lost), *domains.names_alike(list(counts))]
    findings += domains.of_target(len(target.images))
    for domain, readable in _both(source, target):
        findings += unreadable(domain, readable.skipped, len(readable.images))
        findings += sizes(domain, looks[domain])
    findings += channels(looks["source"], looks["target"])
    facts: dict[str, Any] = {
        "kind": "images",
        "source": {"images": len(source.images), "classes": counts} | measures(looks["source"]),
        "target": {"images": len(target.images)} | measures(looks["target"]),
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
        digests, bits = prints(readable.pixels, workers, show, f"Comparing the {domain}")
        labels = readable.images.labels
        numbers = [None] * len(digests) if labels is None else labels.tolist()
        samples += [Sample(domain, name, label) for name, label in zip(readable.images.paths, numbers)]
        keys += digests
        hashes += [] if bits is None else [bits]
    pairs = set(equal_pairs(keys))
    if not hashes:
        said.append("Nearly equal images were not looked for: pip install 'ba3us[check]'.")
    else:
        rows = random_indices(len(keys), MOST_COMPARED)
        if len(rows) < len(keys):
            said.append(f"Nearly equal images were looked for among {len(rows):,} of {len(keys):,}.")
        near = near_pairs(np.concatenate(hashes)[rows])
        pairs |= {(int(rows[a]), int(rows[b])) for a, b in near}
    return list(duplicate_findings(samples, sorted(pairs), "image")), said


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
    rows, other = sample_source(labels), random_indices(len(target), MOST_TARGET)
    parts = [source.subset(rows), target.subset(other)]
    x, xt = (embed(part, backbone, device=device, **how).content.features for part in parts)
    return Vectors(x, labels[rows], xt, [names[label] for label in kept], parts[0].paths, parts[1].paths)


def _cost(seen: Vectors, backbone: Backbone, rows: tuple[int, int]) -> list[dict[str, Any]]:
    """Of the automatic choice, and of a named system in all three depths, on all images."""
    opened = OpenedArrays(
        ArraySamples(seen.source.shape[1:]), seen.source, seen.labels, seen.target, list(seen.classes)
    )
    return [estimate.to_dict(cost) for cost in estimate.of_depths(backbone, rows, opened)]
