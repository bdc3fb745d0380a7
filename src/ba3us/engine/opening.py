"""From what a spec names to samples that can be seen: files, folders, lists or arrays, never target labels."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ba3us.data import Source, Target
from ba3us.data.cache import DEFAULT_GIGABYTES, CachedPixels, open_images
from ba3us.data.files import FeatureSet, check_same_backbone, read_features, read_labels
from ba3us.data.frozen_domain import FrozenSource, FrozenTarget
from ba3us.data.image_domain import ImageSource, ImageTarget
from ba3us.data.images import ImageList, Skipped, read_class_names, read_images
from ba3us.data.labels import encoded
from ba3us.engine.samples import Arrays, Domains, Images
from ba3us.engine.spec import Spec
from ba3us.errors import require
from ba3us.methods.auto import NAME as AUTO
from ba3us.nn.backbones import OFFLINE, Backbone, create_backbone
from ba3us.nn.scale import far_from_unit

_CHUNK = 1 << 26  # bytes hashed at a time
_LOOK = 10_000  # rows that a look at a domain takes in


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
    known = (repr(own), spec.resolved(), opened.samples, opened.classes, extra)
    sketch = hashlib.blake2b(repr(known).encode(errors="surrogateescape"), digest_size=16)
    for part in opened.content():
        sketch.update(part)
    return sketch.hexdigest()


def some_rows(domain: Target, most: int = _LOOK) -> Tensor:
    """Rows of a domain, evenly spaced, at most so many."""
    step = -(-len(domain) // most)
    return domain.batch(np.arange(0, len(domain), step))


def needs_scaling(opened: Opened) -> bool:
    """Whether the source's columns are far from unit scale."""
    if not isinstance(opened, OpenedArrays) or opened.source.ndim != 2:
        return False
    return far_from_unit(torch.from_numpy(np.array(opened.source[:: -(-len(opened.source) // _LOOK)], float)))


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
        f"--train is {spec.train!r}, but the automatic choice adapts the head: name a --method as well.",
    )


def view_count(spec: Spec) -> int:
    """Augmented views per image that are kept, decided."""
    return (0 if depth(spec) == "head" else 4) if spec.views is None else spec.views


def gigabytes(spec: Spec) -> float:
    """What the caches may hold."""
    return DEFAULT_GIGABYTES if spec.cache_gb is None else spec.cache_gb


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
        require(source.labels is None, f"{spec.source} has labels of its own: leave --labels out.")
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
    twice = [name for name in classes if classes.count(name) > 1]
    require(not twice, f"{listed.root} has two classes called {twice[:1]}: give each its own name.")
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
