"""Vectors that no training changes: features as they are, or what a frozen backbone makes of images."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from ba3us.data import Source, Target
from ba3us.data.activations import FrozenSource, FrozenTarget
from ba3us.data.files import (
    FeatureSet,
    check_distinct,
    check_same_backbone,
    encoded,
    read_features,
    read_labels,
)
from ba3us.data.image_cache import CachedPixels, open_images
from ba3us.data.image_domains import ImageSource, ImageTarget, Pixels
from ba3us.data.images import ImageList, Skipped, read_class_names, read_images
from ba3us.data.machine import DEFAULT_CACHE_GB
from ba3us.errors import did_you_mean, require
from ba3us.methods.auto import NAME as AUTO
from ba3us.nn import SMALL, Frozen
from ba3us.nn.backbones import OFFLINE, Backbone, create_backbone, cut, square_side
from ba3us.nn.norms import Scale, far_from_unit
from ba3us.run.spec import Spec
from ba3us.training.evaluation import MAX_ROWS

# --- samples ----------------------------------------------------------------------------------------------
# How a sample becomes a vector: the one part in which features and images differ.


class Encoder(NamedTuple):
    """What stands before the head: `front` is frozen and may be run once for all samples, `body` is trained."""

    front: nn.Module | None
    body: nn.Module
    dim: int
    classifier: nn.Linear | None = None


class Domains(NamedTuple):
    """A labelled source and an unlabelled target, as the network sees them."""

    source: Source
    target: Target


@dataclass(frozen=True)
class Arrays:
    """Arrays that the network takes as they are: vectors, or what one of the small networks makes vectors of.

    `backbone` and `weights` say what made the features, if that is known; `scaled` vectors pass a layer that
    the source has set.
    """

    shape: Sequence[int]
    network: str | None = None
    backbone: str | None = None
    weights: str | None = None
    scaled: bool = False

    def __post_init__(self) -> None:
        known = self.network is None or self.network in SMALL
        require(
            known, f"There is no network {self.network!r} for arrays: {did_you_mean(str(self.network), SMALL)}"
        )
        require(
            self.network is not None or len(self.shape) == 1,
            f"A sample has shape {tuple(self.shape)}, no vector: flatten it, or give a network for such arrays "
            f"(`backbone`: {' or '.join(SMALL)}).",
        )

    def encoder(self, inside: bool = False) -> Encoder:
        """Nothing, a scaling, or a small network that learns from scratch."""
        if self.network is None:
            return Encoder(None, Scale(self.shape[0]) if self.scaled else nn.Identity(), self.shape[0])
        body, dim = SMALL[self.network](tuple(self.shape))
        return Encoder(None, body, dim)

    def domain(self, array: Any, name: str) -> Target:
        """More samples of this kind."""
        shape = tuple(array.shape[1:])
        require(
            shape == tuple(self.shape),
            f"A sample of {name} has shape {shape}, of the run {tuple(self.shape)}: give the same kind.",
        )
        return Target(array, name=name)


@dataclass(frozen=True)
class Images:
    """Images that a backbone makes vectors of, trained from one of its stages on.

    `weights` is a digest of what the backbone starts from; `size`, `mean` and `std` say how it is shown images.
    """

    backbone: str
    weights: str
    train: str
    size: int
    mean: Sequence[float]
    std: Sequence[float]

    @property
    def side(self) -> int:
        """Side of the squares that crops are taken from."""
        return square_side(self.size)

    def encoder(self, inside: bool = False, backbone: Backbone | None = None) -> Encoder:
        """The backbone, cut where training begins; `inside` leaves what is frozen in the body.

        A `backbone` is copied, since it is cut and trained, and several networks may begin with it. Without one
        it has the right shape and any weights, for those of a file to come.
        """
        if backbone is None:
            whole = create_backbone(self.backbone, pretrained=False)
        else:
            whole = dataclasses.replace(backbone, module=copy.deepcopy(backbone.module))
        parts = cut(whole, self.train, check=backbone is not None)
        front, body = parts.front, parts.tail
        if front is not None and inside:
            body, front = nn.Sequential(Frozen(front), body), None
        body.to(memory_format=torch.channels_last)
        return Encoder(front, body, whole.dim, whole.classifier)

    def domain(
        self, pixels: Pixels, name: str, front: nn.Module | None, device: str, cache_gb: float
    ) -> Target:
        """More images, through what is frozen."""
        images = ImageTarget(pixels, self.size, self.mean, self.std, views=0, device=device, name=name)
        if front is None:
            return images
        # all digits: what is rounded here could fall another way in an exported model
        return FrozenTarget(images, front, cache_gb=cache_gb, activations="float32")


# --- opening ----------------------------------------------------------------------------------------------
# From what a spec names to samples that can be seen: files, folders, lists or arrays, never target labels.


_CHUNK = 1 << 26  # bytes hashed at a time


@dataclass(frozen=True)
class OpenedArrays:
    """Arrays of both domains, the source's labels as numbers, and the classes they number."""

    samples: Arrays
    source: np.ndarray
    labels: np.ndarray
    target: np.ndarray
    classes: list[Any]
    paths: list[str] | None = None
    backbone: Backbone | None = None  # nothing is pretrained
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, list[Skipped]] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[int, int]:
        """Samples of the source and of the target."""
        return len(self.source), len(self.target)

    def domains(self, front: nn.Module | None, spec: Spec, show: bool) -> Domains:
        """As they are."""
        source = Source(self.source, self.labels, num_classes=len(self.classes))
        return Domains(source, Target(self.target))

    def content(self) -> Iterator[bytes]:
        """All that a result can depend on, for a digest."""
        for array in (self.source, self.labels, self.target):
            yield repr((array.shape, str(array.dtype))).encode()
            step = max(1, _CHUNK // max(1, array[:1].nbytes))
            yield from (array[at : at + step].tobytes() for at in range(0, len(array), step))


@dataclass(frozen=True)
class OpenedImages:
    """Images of both domains that can be read, and the classes that have some."""

    samples: Images
    source: CachedPixels
    labels: np.ndarray
    target: CachedPixels
    classes: list[Any]
    backbone: Backbone
    notes: list[str]
    skipped: dict[str, list[Skipped]]

    @property
    def rows(self) -> tuple[int, int]:
        """Samples of the source and of the target."""
        return len(self.source), len(self.target)

    @property
    def paths(self) -> list[str]:
        """Of the target's images."""
        return self.target.images.paths

    def domains(self, front: nn.Module | None, spec: Spec, show: bool) -> Domains:
        """Crops of the images, or what the frozen `front` says of them."""
        s, device, views = self.samples, place(spec), view_count(spec)
        how: dict[str, Any] = {
            "seed": spec.seed,
            "views": None if front is None else views,
            "ten_crop": spec.ten_crop,
            "device": device,
        }
        look = (s.size, s.mean, s.std)
        source = ImageSource(self.source, self.labels, *look, num_classes=len(self.classes), **how)
        target = ImageTarget(self.target, *look, **how)
        if front is None:
            return Domains(source, target)
        kept: dict[str, Any] = {"cache_gb": gigabytes(spec), "workers": spec.workers, "progress": show}
        seen = FrozenSource(source, front, **kept), FrozenTarget(target, front, **kept)
        if s.train != "head" or views or spec.ten_crop:
            return Domains(*seen)
        # one vector per image: from here on they are features like any other
        x, xt = (domain.centres() for domain in seen)
        return Domains(Source(x, self.labels, num_classes=len(self.classes)), Target(xt))

    def content(self) -> Iterator[bytes]:
        """All that a result can depend on, for a digest."""
        yield from (*self.source.keys, self.labels.tobytes(), *self.target.keys)


Opened = OpenedArrays | OpenedImages


def open_spec(spec: Spec, show: bool = False) -> Opened:
    """Open what a spec names."""
    return _images(spec, show) if spec.of_images else _features(spec)


def digest(spec: Spec, opened: Opened, extra: Any) -> str:
    """Changes with everything that the result depends on; `extra` is what the caller knows of it."""
    # on_nan may change when a run goes on: up to there it has decided nothing
    own = dataclasses.replace(
        spec, source=None, target=None, cache_gb=None, workers=None, weights=None, on_nan="stop"
    )
    known = (repr(own), spec.method_options(), opened.samples, opened.classes, extra)
    hasher = hashlib.blake2b(repr(known).encode(errors="surrogateescape"), digest_size=16)
    for part in opened.content():
        hasher.update(part)
    return hasher.hexdigest()


def needs_scaling(opened: Opened) -> bool:
    """Whether the source's columns are far from unit scale."""
    if not isinstance(opened, OpenedArrays) or opened.source.ndim != 2:
        return False
    every = -(-len(opened.source) // MAX_ROWS)
    return far_from_unit(torch.from_numpy(np.array(opened.source[::every], float)))


def place(spec: Spec) -> str:
    """The device, decided."""
    if spec.device in (None, "auto"):
        return "cuda" if torch.cuda.is_available() else "cpu"
    return str(spec.device)


def check_precision(spec: Spec) -> None:
    """Refuse to train in what the device has not got; a run that was trained elsewhere can still be used."""
    require(
        place(spec) != "cpu" or spec.precision != "float16",
        "A CPU can't train in float16: choose bfloat16 or float32.",
    )


def depth(spec: Spec) -> str:
    """How much of a backbone is trained, decided."""
    return spec.train or ("tail" if place(spec) == "cuda" and spec.method != AUTO else "head")


def check_auto(spec: Spec) -> None:
    """The automatic choice is one among heads."""
    require(
        spec.method != AUTO or depth(spec) == "head",
        f"`train` is {spec.train!r}, but the automatic choice adapts the head: name a `method` as well.",
    )


def view_count(spec: Spec) -> int:
    """Augmented views per image that are kept, decided."""
    return (0 if depth(spec) == "head" else 4) if spec.views is None else spec.views


def gigabytes(spec: Spec) -> float:
    """What the caches may hold."""
    return DEFAULT_CACHE_GB if spec.cache_gb is None else spec.cache_gb


# --- features -----------------------------------------------------------------------------------------------


def read_array(path: str | Path) -> FeatureSet:
    """A feature file."""
    path = Path(path)
    require(
        not path.is_dir(), f"{path} is a folder: turn its images into a feature file with ba3us embed first."
    )
    return read_features(path)


def read_arrays(spec: Spec) -> tuple[FeatureSet, FeatureSet]:
    """The feature files of a spec; the source with its labels, wherever they lie."""
    source, target = read_array(str(spec.source)), read_array(str(spec.target))
    if spec.labels is not None:
        require(source.labels is None, f"{spec.source} has labels of its own: leave `labels` out.")
        source = dataclasses.replace(source, labels=read_labels(spec.labels))
    return source, target


def _features(spec: Spec) -> OpenedArrays:
    source, target = read_arrays(spec)
    y = source.named_labels(str(spec.labels or spec.source))
    check_same_backbone(source.origin, target.origin, str(spec.target))
    classes, labels = encoded(y, len(source.features))
    samples = Arrays(source.features.shape[1:], spec.backbone, source.backbone, source.weights)
    return OpenedArrays(samples, source.features, labels, target.features, classes.tolist(), target.paths)


# --- images -------------------------------------------------------------------------------------------------


def _images(spec: Spec, show: bool) -> OpenedImages:
    check_auto(spec)
    listed = list_source(Path(str(spec.source)), spec)
    unlabelled = list_images(str(spec.target), spec.root)
    backbone, samples = seen_with(spec)
    how: dict[str, Any] = {"cache_gb": gigabytes(spec), "workers": spec.workers, "progress": show}
    source = open_images(listed, samples.side, **how, title="Decoding the source")
    labels, classes, lost = _readable_classes(listed, source.images)
    target = open_images(unlabelled, samples.side, **how, title="Decoding the target")
    skipped = {"source": source.skipped + lost, "target": target.skipped}
    return OpenedImages(
        samples, source.pixels, labels, target.pixels, classes, backbone, _alike(classes), skipped
    )


def seen_with(spec: Spec) -> tuple[Backbone, Images]:
    """The backbone that a spec asks for, and how it sees images."""
    name = spec.backbone or OFFLINE
    backbone = create_backbone(name, spec.weights)
    backbone = dataclasses.replace(backbone, size=spec.size or backbone.size)
    return backbone, Images(name, backbone.digest, depth(spec), backbone.size, backbone.mean, backbone.std)


def list_images(path: str | Path, root: str | Path | None) -> ImageList:
    """All images of a folder, however nested, or of a list file; labels and folder names are not looked at."""
    return read_images(path, root=_root_for(Path(path), root), labelled=False)


def list_source(path: Path, spec: Spec) -> ImageList:
    """The labelled images of a folder of class folders or a list file; there must be two classes."""
    images = list_labelled(path, spec)
    assert images.labels is not None
    _check_classes(path, len(np.unique(images.labels)))
    return images


def list_labelled(path: Path, spec: Spec) -> ImageList:
    """The same, however many classes there are."""
    names = None if spec.classes is None else read_class_names(spec.classes)
    return read_images(path, root=_root_for(path, spec.root), labelled=True, class_names=names)


def _readable_classes(listed: ImageList, readable: ImageList) -> tuple[np.ndarray, list[str], list[Skipped]]:
    """Labels that count the classes with images that can be read, their names, and the classes without any."""
    assert listed.labels is not None
    assert listed.class_names is not None
    assert readable.labels is not None
    kept, labels = np.unique(readable.labels, return_inverse=True)
    _check_classes(listed.root, len(kept))
    names = class_texts(listed.class_names)
    lost = sorted(set(listed.labels.tolist()) - set(kept.tolist()))
    reasons = [Skipped(names[label], "a class none of whose images can be read") for label in lost]
    classes = [names[label] for label in kept]
    check_distinct(classes, listed.root)
    return labels, classes, reasons


def class_texts(names: list[str]) -> list[str]:
    """Names of folders as text, also where their bytes are none."""
    return [os.fsencode(name).decode("utf-8", "replace") for name in names]


def _alike(classes: list[str]) -> list[str]:
    """A sentence for every name that several classes share but for its case."""
    alike = defaultdict(list)
    for name in classes:
        alike[name.casefold()].append(name)
    return [
        f"The classes {' and '.join(map(repr, names))} differ only in case: they are {len(names)} classes."
        for names in alike.values()
        if len(names) > 1
    ]


def _root_for(path: Path, root: str | Path | None) -> str | Path | None:
    """One --root serves two list files, also where the other domain is a folder."""
    return None if path.is_dir() else root


def _check_classes(path: Path, count: int) -> None:
    require(count > 1, f"The source {path} has {count} class with images: give at least two classes.")


# --- vectors ----------------------------------------------------------------------------------------------
# Vectors that no training changes: features as they are, or what a frozen backbone makes of images.


def vectors(opened: Opened, spec: Spec, show: bool = False) -> OpenedArrays:
    """The samples of both domains as arrays; images as the backbone sees their centres."""
    if not isinstance(opened, OpenedImages):
        return opened
    samples = dataclasses.replace(opened.samples, train="head")
    front = samples.encoder(backbone=opened.backbone).front
    seen = dataclasses.replace(spec, train="head", views=0, ten_crop=False)
    source, target = dataclasses.replace(opened, samples=samples).domains(front, seen, show)
    x, xt = (domain.batch(slice(0, len(domain))).numpy() for domain in (source, target))
    return OpenedArrays(Arrays(x.shape[1:]), x, opened.labels, xt, opened.classes, opened.paths)
