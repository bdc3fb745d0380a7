"""Images of a benchmark: what they are seen with, and how those of a task are opened."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ba3us.bench.domains import Domain, File, Pair, digest_of, image_list
from ba3us.bench.protocol import Protocol
from ba3us.data.cache import CachedPixels, open_images
from ba3us.data.images import ImageList
from ba3us.engine import Spec
from ba3us.engine.opening import OpenedImages, check_precision, depth, gigabytes, place, seen_with, view_count
from ba3us.engine.samples import Images
from ba3us.errors import UserError, optional_import, require
from ba3us.nn.backbones import OFFLINE, Backbone

FIELDS = (  # of a spec, for images only
    "backbone", "weights", "train", "views", "size", "device", "precision", "cache_gb",
)  # fmt: skip
_DECIDE = ("backbone", "weights", "train", "size")  # what decides which network it is, and how it is cut


@dataclass(frozen=True)
class Sight:
    """What images are seen with: a spec in which all is decided, and what tells its weights from others."""

    spec: Spec
    weights: str

    @property
    def described(self) -> dict[str, Any]:
        """All that a result depends on, as JSON values."""
        names = ("backbone", "train", "views", "size", "ten_crop", "precision", "device")
        return {name: getattr(self.spec, name) for name in names} | {"weights": self.weights}

    def with_views(self, ten_crop: bool) -> Sight:
        """The same for a method that refreshes from ten crops, or does not."""
        return dataclasses.replace(self, spec=dataclasses.replace(self.spec, ten_crop=ten_crop))


def sight(protocol: Protocol, asked: dict[str, Any]) -> Sight:
    """Decide what was left open: the protocol's backbone, and what this machine can do."""
    spec = Spec(**{"method": "source-only", "backbone": protocol.backbone or OFFLINE, **asked})
    check_precision(spec)
    spec = dataclasses.replace(spec, train=depth(spec), views=view_count(spec), device=place(spec))
    return Sight(spec, _weights(spec))


def check_kind(domains: Iterable[Domain], asked: dict[str, Any]) -> bool:
    """Whether all domains are images; refuse a mixture, and what was asked of images if they are none."""
    kinds = {domain.file.images: domain for domain in domains}
    if len(kinds) > 1:
        raise UserError(
            f"Domain {kinds[True].name!r} ({kinds[True].file.path}) is images, {kinds[False].name!r} "
            f"({kinds[False].file.path}) features: make features of all (ba3us embed), or of none."
        )
    if asked and True not in kinds:
        first = next(iter(asked)).replace("_", "-")
        raise UserError(f"--{first} is for images, but the domains are feature files: leave it out.")
    return True in kinds


def open_pair(seen: Sight, pair: Pair, workers: int | None = 1, show: bool = False) -> OpenedImages:
    """The chosen images of a task; one that can't be read is an error, because scores count all of them."""
    backbone, samples = copy.deepcopy(_seen_with(seen))  # a run takes it apart
    how: dict[str, Any] = {"cache_gb": gigabytes(seen.spec), "workers": workers, "progress": show}
    source, target = (
        _readable(file, rows, samples.side, how)
        for file, rows in ((pair.source, pair.source_rows), (pair.target, pair.target_rows))
    )
    classes = list(range(pair.num_classes))
    return OpenedImages(samples, source, pair.source_labels, target, classes, backbone, [], {})


def warm(tasks: Iterable[tuple[Sight, Pair]], show: bool = False) -> None:
    """Decode, and run what stays frozen, once and on all cores, before many runs ask for it."""
    for seen, pair in tasks:
        _seen_with(seen)  # weights that can't be had are an error at once
        with suppress(UserError):  # an unreadable image is a reason in the rows of its runs
            opened = open_pair(seen, pair, None, show)
            front = opened.samples.encoder(backbone=opened.backbone).front
            opened.domains(front, seen.spec, show)


def _readable(file: File, rows: np.ndarray, side: int, how: dict[str, Any]) -> CachedPixels:
    listed = _listed(file)
    chosen = ImageList(listed.root, [listed.paths[row] for row in rows])
    opened = open_images(chosen, side, **how)
    if opened.skipped:
        first = opened.skipped[0]
        raise UserError(
            f"{len(opened.skipped)} of {len(chosen)} images of {file.path} can't be read (the first, "
            f"{first.path}: {first.reason}): mend or remove them."
        )
    return opened.pixels


@lru_cache(maxsize=4)
def _listed(file: File) -> ImageList:
    """The images of a domain; a worker lists those of a task once, not for every run."""
    listed, digest = image_list(file.path, file.root)
    check_same(file.path, digest == file.digest)
    return listed


def _seen_with(seen: Sight) -> tuple[Backbone, Images]:
    return _backbone(seen.weights, *(getattr(seen.spec, name) for name in _DECIDE))


@lru_cache(maxsize=1)  # networks may be large
def _backbone(known: str, *decided: Any) -> tuple[Backbone, Images]:
    spec = Spec(**dict(zip(_DECIDE, decided)))
    check_same(spec.weights, _weights(spec) == known)
    return seen_with(spec)


def _weights(spec: Spec) -> str:
    """A digest of the weights file, or what names the weights that come from elsewhere."""
    if spec.weights is None:
        return f"timm {optional_import('timm', 'vision').__version__}"
    require(Path(spec.weights).is_file(), f"There is no weights file {spec.weights}: check the path.")
    return digest_of(Path(spec.weights).read_bytes())


def check_same(path: Any, same: bool) -> None:
    """Refuse what has changed since the keys of the runs were made."""
    require(same, f"{path} is not what it was when the benchmark began: start it again.")
