"""Image files: which can be read, how large they are, and what they look like to a perceptual hash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ba3us.checking.duplicates import HASH_SIDE, digest
from ba3us.checking.findings import NOTE, WARNING, Finding, many, some
from ba3us.data.cache import CachedPixels
from ba3us.data.decoding import map_in_order, quiet_pillow
from ba3us.data.images import Skipped
from ba3us.errors import UserError, optional_import
from ba3us.progress import bar

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


def looks(pixels: CachedPixels, workers: int) -> list[Look]:
    """Headers of images that could be read a moment ago; one that can't any more is left out."""
    pil = optional_import("PIL.Image", "vision")

    def look(row: int) -> Look | None:
        try:
            with pil.open(pixels.images.file(row)) as image:
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
