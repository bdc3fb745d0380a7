"""Two folders or lists of images: opened for checks, and the checks that only they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ba3us.check import cost
from ba3us.check.classes import normalised
from ba3us.check.domains import MOST_TARGET, Domains, Vectors, digest, sample_source
from ba3us.check.findings import NOTE, WARNING, Finding, many, register_check, some
from ba3us.data.domains import random_indices
from ba3us.data.image_cache import (
    CachedPixels,
    map_in_order,
    open_image,
    open_images,
    quiet_pillow,
    worker_count,
)
from ba3us.embed import embed
from ba3us.errors import UserError, optional_import
from ba3us.progress import bar, say
from ba3us.run import images
from ba3us.run.arrays import ArraySamples, OpenedArrays
from ba3us.run.spec import Spec, gigabytes, place

SMALL = 64  # pixels: of a shorter side much is lost
HASH_SIDE = 16  # a perceptual hash has 16 × 16 bits
_LONG = 4  # times the shorter side: squeezed into a square, little is left
_GREY = ("1", "L", "LA", "I", "F")
_APART = 0.5  # difference of the shares of grey images


class Header(NamedTuple):
    """The header of an image file."""

    name: str
    width: int
    height: int
    mode: str


class ImageDomains(Domains):
    """Two folders or lists of images. What is decoded and embedded here, ``ba3us adapt`` finds done."""

    noun = "image"

    def __init__(self, spec: Spec, show: bool) -> None:
        super().__init__()
        self.spec, self.show, self.workers = spec, show, worker_count(spec.workers)
        source, self.target_path = Path(str(spec.source)), Path(str(spec.target))
        lists = {
            "source": images.list_labelled(source, spec),
            "target": images.list_images(self.target_path, spec.root),
        }
        self.backbone, _ = images.backbone_of(spec)
        self.options: dict[str, Any] = {"cache_gb": gigabytes(spec), "workers": spec.workers, "progress": show}
        self.readable = {
            domain: open_images(listed, self.backbone.side, **self.options, title=f"Decoding the {domain}")
            for domain, listed in lists.items()
        }
        self.names = {domain: readable.images.paths for domain, readable in self.readable.items()}
        self.classes = images.class_texts(lists["source"].class_names or [])
        self.labels = self.readable["source"].images.labels
        assert self.labels is not None
        each = np.bincount(self.labels, minlength=len(self.classes))
        self.counts = {name: int(count) for name, count in zip(self.classes, each) if count}
        skipped = self.readable["source"].skipped
        self.empty_classes = [item.path for item in skipped if item.reason == "a class folder without images"]
        self.empty_classes += [name for name, count in zip(self.classes, each) if not count]
        self.headers = {name: headers(each.pixels, self.workers) for name, each in self.readable.items()}
        self.facts = {
            "kind": "images",
            "source": {"images": len(self.names["source"]), "classes": self.counts},
            "target": {"images": len(self.names["target"])},
        }
        for domain in self.readable:
            self.facts[domain] |= measures(self.headers[domain])

    def fingerprints(self) -> tuple[list[bytes], np.ndarray | None]:
        """Digests of the decoded squares, and perceptual hashes where imagehash is installed."""
        pil, imagehash = optional_import("PIL.Image", "vision"), perceptual()
        digests, hashes = [], []
        for domain, readable in self.readable.items():
            pixels = readable.pixels

            def fingerprint(row: int, pixels: CachedPixels = pixels) -> tuple[bytes, np.ndarray | None]:
                square = pixels.read(np.array([row]))[0]
                if imagehash is None:
                    return digest(square), None
                return digest(square), imagehash.phash(pil.fromarray(square), hash_size=HASH_SIDE).hash.ravel()

            with bar(f"Comparing the {domain}", len(pixels), self.show) as progress:
                found = map_in_order(fingerprint, range(len(pixels)), self.workers)
                for done, (key, bits) in enumerate(found, start=1):
                    digests.append(key)
                    hashes.append(bits)
                    progress.update(done)
        if imagehash is None:
            self.passed_over.append("Nearly equal images were not looked for: pip install 'ba3us[check]'.")
        return digests, None if imagehash is None else np.array(hashes)

    @cached_property
    def vectors(self) -> Vectors | None:
        """Some embedded images of both domains."""
        source, target = (readable.images for readable in self.readable.values())
        assert source.labels is not None
        classes, labels = np.unique(source.labels, return_inverse=True)
        if len(classes) < 2:
            return None
        rows, other = sample_source(labels), random_indices(len(target), MOST_TARGET)
        parts = [source.subset(rows), target.subset(other)]
        device = place(self.spec)
        x, xt = (embed(p, self.backbone, device=device, **self.options).content.features for p in parts)
        say("Comparing classes and domains", self.show)
        names = [self.classes[label] for label in classes]
        return Vectors(x, labels[rows], xt, names, parts[0].paths, parts[1].paths)

    def costs(self) -> list[dict[str, Any]] | None:
        """Of the automatic choice, and of a named method at all three depths, on all images."""
        if self.vectors is None:
            return None
        say("Timing a step of each depth", self.show)
        vectors = self.vectors
        samples = ArraySamples(vectors.source.shape[1:])
        opened = OpenedArrays(samples, vectors.source, vectors.labels, vectors.target, list(vectors.classes))
        rows = len(self.names["source"]), len(self.names["target"])
        return [cost.to_dict(each) for each in cost.of_depths(self.backbone, rows, opened)]


def headers(pixels: CachedPixels, workers: int) -> list[Header]:
    """Headers of images that could be read a moment ago; one that can't any more is left out."""

    def header(row: int) -> Header | None:
        try:
            with open_image(pixels.images.file(row)) as image:
                return Header(pixels.images.paths[row], image.width, image.height, image.mode)
        except Exception:  # Pillow raises many kinds; a run would say so with the file's name
            return None

    with quiet_pillow():
        return [each for each in map_in_order(header, range(len(pixels)), workers) if each is not None]


def perceptual() -> Any | None:
    """The package imagehash, if it is installed."""
    try:
        return optional_import("imagehash", "check")
    except UserError:
        return None


def measures(headers: Sequence[Header]) -> dict[str, Any]:
    """Sizes and channels, for people and machines."""
    shape = np.array([(h.width, h.height) for h in headers]).reshape(-1, 2)
    if not len(shape):
        return {}
    low, middle, high = (np.quantile(shape, q, axis=0).round().astype(int).tolist() for q in (0, 0.5, 1))
    modes = Counter(h.mode for h in headers).most_common()
    return {"smallest": low, "median": middle, "largest": high, "modes": dict(modes)}


@register_check("images")
def files(domains: ImageDomains) -> Iterator[Finding]:
    """Files that gave no image, what never claimed to be one, and images that are very small or very long."""
    for domain, readable in domains.readable.items():
        skipped = readable.skipped
        other = [item for item in skipped if item.reason.startswith(("not an image file", "lies outside"))]
        bad = [item for item in skipped if item not in other and "class folder" not in item.reason]
        if bad:
            items = [f"{item.path} ({item.reason})" for item in bad]
            yield Finding.of(
                WARNING,
                f"unreadable in {domain}",
                f"{many(len(bad), 'file')} of the {domain} can't be read, "
                f"{len(readable.images):,} can: {some(items)}.",
                "Fetch them again or remove them; they are left out of training.",
                items,
            )
        if other:
            items = [f"{item.path} ({item.reason})" for item in other]
            yield Finding.of(
                NOTE,
                f"left out of {domain}",
                f"{many(len(other), 'file is', 'files are')} left out of the {domain}: {some(items)}.",
                "Nothing, if they are not meant to be images of a class.",
                items,
            )
        small, long = [], []
        for name, *size, _ in domains.headers[domain]:
            text = f"{name} ({size[0]}×{size[1]})"
            small += [text] if min(size) < SMALL else []
            long += [text] if max(size) > _LONG * min(size) else []
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
                f"{many(len(long), 'image')} of the {domain}, one side over {_LONG} times the "
                f"other: {some(long)}.",
                "Crop them: every image is squeezed into a square.",
                long,
            )


@register_check("images")
def channels(domains: ImageDomains) -> Iterator[Finding]:
    """One domain in colour, the other in grey."""
    grey = [
        sum(header.mode.partition(";")[0] in _GREY for header in headers) / max(1, len(headers))
        for headers in domains.headers.values()
    ]
    if abs(grey[0] - grey[1]) > _APART:
        yield Finding(
            NOTE,
            "grey and colour",
            f"{grey[0]:.0%} of the source's images are grey, {grey[1]:.0%} of the target's.",
            "Turn all of them grey if colour does not matter: it is a difference that need not be adapted to.",
        )


@register_check("images")
def target_folders(domains: ImageDomains) -> Iterator[Finding]:
    """Folders of the target whose names are none of the source's classes, where others are.

    Which image lies in which folder is not looked at: training does not know it either. That classes of the
    source have no folder in the target is what partial adaptation is for, and no finding.
    """
    path, names = domains.target_path, domains.classes
    entries = path.iterdir() if path.is_dir() else ()
    folders = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    known, written = set(names), {normalised(name): name for name in names}
    other = [name for name in folders if name not in known]
    if not other or len(other) == len(folders):
        return  # all of them are classes, or they are no classes at all
    spelled = [f"{name!r} for {written[normalised(name)]!r}" for name in other if normalised(name) in written]
    strange = [name for name in other if normalised(name) not in written]
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
