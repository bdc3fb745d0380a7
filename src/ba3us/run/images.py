"""Images: folders or list files, decoded once, and the backbone that turns them into vectors."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ba3us.data import Source, Target, image_domains
from ba3us.data.activations import FrozenSource, FrozenTarget
from ba3us.data.domains import evenly_spaced_indices
from ba3us.data.image_cache import DRAFT, CachedPixels, UnreadableError, decode, open_images, quiet_pillow
from ba3us.data.image_domains import ImageSource, ImageTarget, PixelArray, Pixels
from ba3us.data.images import ImageList, Skipped, check_distinct, read_class_names, read_images
from ba3us.errors import require
from ba3us.nn import Frozen
from ba3us.nn.backbones import OFFLINE, Backbone, Encoder, create_backbone, cut, square_side
from ba3us.run.arrays import ArraySamples, OpenedArrays
from ba3us.run.samples import Domains, MoreSamples, Opened, Samples
from ba3us.run.spec import Spec, check_auto, depth, gigabytes, is_images, place, view_count

if TYPE_CHECKING:
    from ba3us.run.build import Model


@dataclass(frozen=True)
class ImageSamples(Samples):
    """Images for a backbone, which is trained from the stage `train` on.

    `weights` is the digest of its initial weights; `size`, `mean` and `std` preprocess the images.
    """

    kind: ClassVar = "images"
    input_name: ClassVar = "pixels"
    input_dtype: ClassVar = torch.uint8
    has_pixels: ClassVar = True
    builds_on_meta: ClassVar = False

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

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one crop, channels first."""
        return 3, self.size, self.size

    @property
    def trained_part(self) -> str | None:
        """How much of the backbone is trained."""
        return self.train

    def encoder(self, backbone: Backbone | None = None, joined: bool = False) -> Encoder:
        """The backbone, cut where training begins."""
        if backbone is None:
            encoder = cut(create_backbone(self.backbone, pretrained=False), self.train, check=False)
        else:
            encoder = cut(dataclasses.replace(backbone, module=copy.deepcopy(backbone.module)), self.train)
        if encoder.front is not None and joined:
            encoder = encoder._replace(front=None, body=nn.Sequential(Frozen(encoder.front), encoder.body))
        encoder.body.to(memory_format=torch.channels_last)
        return encoder

    def domain(
        self, pixels: Pixels, name: str, front: nn.Module | None, device: str, cache_gb: float
    ) -> Target:
        """Central crops, passed through the frozen front."""
        images = ImageTarget(pixels, self.size, self.mean, self.std, views=0, device=device, name=name)
        if front is None:
            return images
        # rounding to float16 could change a prediction of an exported model
        return FrozenTarget(images, front, cache_gb=cache_gb, activations="float32")

    def open_more(self, model: Model, data: Path, spec: Spec, show: bool) -> MoreSamples:
        """List and decode more images; the model moves to the device of `spec`."""
        require(is_images(data), f"{data} holds features, but the run is on images: give images.")
        return self._open(model, list_images(data, spec.root), spec, f"data of {data}", show)

    def _open(self, model: Model, images: ImageList, spec: Spec, name: str, show: bool = False) -> MoreSamples:
        device, budget = place(spec), gigabytes(spec)
        opened = open_images(images, self.side, cache_gb=budget, workers=spec.workers, progress=show)
        model.module.to(device)
        domain = self.domain(opened.pixels, name, model.front, device, budget)
        return MoreSamples(domain, opened.images.paths, opened.skipped, opened.images.labels)

    def reopen(
        self, model: Model, spec: Spec, sizes: tuple[int, int], max_samples: int
    ) -> tuple[MoreSamples, MoreSamples]:
        """Open some images of each domain again."""
        listed = list_source(Path(str(spec.source)), spec), list_images(str(spec.target), spec.root)
        source, target = (
            self._open(model, images.subset(evenly_spaced_indices(len(images), max_samples)), spec, name)
            for images, name in zip(listed, ("source", "target"))
        )
        assert source.labels is not None
        assert listed[0].class_names is not None
        number = {name: label for label, name in enumerate(model.blueprint.classes)}
        names = class_texts(listed[0].class_names)
        require(
            {names[label] for label in source.labels} <= number.keys(),
            f"The folders of {spec.source} have changed since the run: they have other classes.",
        )
        return source._replace(labels=np.array([number[names[label]] for label in source.labels])), target

    def describe(self) -> str:
        """Name the backbone, its input size and its trained part."""
        trained = "nothing of it trained" if self.train == "head" else f"trained: {self.train}"
        return f"{self.backbone} at {self.size} px, {trained}, with a new head"

    def preprocess(self, x: Tensor) -> Tensor:
        """uint8 pixels [n, 3, size, size], normalised."""
        return image_domains.normalised(x.permute(0, 2, 3, 1), tuple(self.mean), tuple(self.std))

    def preparation(self) -> dict[str, Any]:
        """How to prepare an image for an exported model, and what the model does with its pixels."""
        offset = int(image_domains.central_windows(1, self.side - self.size).top[0])
        return {
            "size": self.size,
            "resize": self.side,
            "offset": offset,
            "draft": DRAFT,
            "before": f"upright by EXIF, RGB, transparency on white; a JPEG may be decoded smaller (Pillow's "
            f"draft mode), to no less than {DRAFT} times the side; resized to {self.side}x{self.side} (Pillow, "
            f"bilinear) without keeping its aspect; {self.size}x{self.size} cut out at ({offset}, {offset})",
            "inside": "(pixels / 255 - mean) / std",
            "mean": list(self.mean),
            "std": list(self.std),
        }

    def read_some(self, spec: Spec, count: int) -> np.ndarray:
        """Decode some of the target's images, [n, side, side, 3]."""
        images, squares = list_images(str(spec.target), spec.root), []
        with quiet_pillow():
            for row in evenly_spaced_indices(len(images), count):
                with suppress(UnreadableError):
                    squares.append(decode(images.file(row), self.side))
        require(bool(squares), f"None of {count} images of {spec.target} can be read.")
        return np.stack(squares)

    def random_inputs(self, count: int) -> np.ndarray:
        """Draw random pixels, [count, side, side, 3]."""
        return np.random.default_rng(0).integers(0, 256, (count, self.side, self.side, 3), dtype=np.uint8)

    def example(self, raw: np.ndarray, front: nn.Module | None) -> tuple[np.ndarray, Target]:
        """Central crops, channels first, and the domain of the squares."""
        windows = image_domains.central_windows(len(raw), self.side - self.size)
        crops = image_domains.cut(torch.from_numpy(raw), windows, self.size).permute(0, 3, 1, 2)
        return crops.contiguous().numpy(), self.domain(PixelArray(raw), "target", front, "cpu", cache_gb=0)


@dataclass(frozen=True)
class OpenedImages(Opened):
    """The readable images of both domains, and the classes that have some."""

    samples: ImageSamples
    source: CachedPixels
    target: CachedPixels

    def domains(self, front: nn.Module | None, spec: Spec, show: bool) -> Domains:
        """Crops of the images, or the activations of the frozen `front` for them."""
        samples, views, num_classes = self.samples, view_count(spec), len(self.classes)
        options: dict[str, Any] = {
            "size": samples.size,
            "mean": samples.mean,
            "std": samples.std,
            "seed": spec.seed,
            "views": None if front is None else views,
            "ten_crop": spec.ten_crop,
            "device": place(spec),
        }
        source = ImageSource(self.source, self.labels, num_classes=num_classes, **options)
        target = ImageTarget(self.target, **options)
        if front is None:
            return Domains(source, target)
        caching = _cache_options(spec, show)
        frozen = FrozenSource(source, front, **caching), FrozenTarget(target, front, **caching)
        if samples.train != "head" or views or spec.ten_crop:
            return Domains(*frozen)
        # one vector per image: from here on they are features like any other
        x, xt = (domain.centres() for domain in frozen)
        return Domains(Source(x, self.labels, num_classes=num_classes), Target(xt))

    def content(self) -> Iterator[bytes]:
        """Digests of all images, and the labels."""
        yield from (*self.source.keys, self.labels.tobytes(), *self.target.keys)

    def vectors(self, spec: Spec, show: bool = False) -> OpenedArrays:
        """The frozen backbone's features of the central crops."""
        samples = dataclasses.replace(self.samples, train="head")
        front = samples.encoder(self.backbone).front
        head = dataclasses.replace(spec, train="head", views=0, ten_crop=False)
        source, target = dataclasses.replace(self, samples=samples).domains(front, head, show)
        x, xt = (domain.batch(slice(0, len(domain))).numpy() for domain in (source, target))
        return OpenedArrays(ArraySamples(x.shape[1:]), x, self.labels, xt, self.classes, paths=self.paths)


def open_image_domains(spec: Spec, show: bool = False) -> OpenedImages:
    """List and decode the images of a spec, and create its backbone."""
    check_auto(spec)
    source_list = list_source(Path(str(spec.source)), spec)
    target_list = list_images(str(spec.target), spec.root)
    backbone, samples = backbone_of(spec)
    caching = _cache_options(spec, show)
    source = open_images(source_list, samples.side, **caching, title="Decoding the source")
    assert source_list.labels is not None
    assert source_list.class_names is not None
    assert source.images.labels is not None
    # classes without a readable image are left out
    present, labels = np.unique(source.images.labels, return_inverse=True)
    _check_classes(source_list.root, len(present))
    names = class_texts(source_list.class_names)
    classes = [names[label] for label in present]
    check_distinct(classes, source_list.root)
    lost = [
        Skipped(names[label], "a class none of whose images can be read")
        for label in np.setdiff1d(source_list.labels, present)
    ]
    groups = defaultdict(list)
    for name in classes:
        groups[name.casefold()].append(name)
    similar = [
        f"The classes {' and '.join(map(repr, group))} differ only in case: they are {len(group)} classes."
        for group in groups.values()
        if len(group) > 1
    ]
    target = open_images(target_list, samples.side, **caching, title="Decoding the target")
    return OpenedImages(
        samples,
        source.pixels,
        labels,
        target.pixels,
        classes,
        backbone,
        paths=target.pixels.images.paths,
        notes=similar,
        skipped={"source": source.skipped + lost, "target": target.skipped},
    )


def backbone_of(spec: Spec) -> tuple[Backbone, ImageSamples]:
    """The backbone of a spec, and how it takes images."""
    name = spec.backbone or OFFLINE
    backbone = create_backbone(name, spec.weights)
    backbone = dataclasses.replace(backbone, size=spec.size or backbone.size)
    return backbone, ImageSamples(
        name, backbone.digest, depth(spec), backbone.size, backbone.mean, backbone.std
    )


def list_images(path: str | Path, root: str | Path | None) -> ImageList:
    """List all images of a folder, however nested, or of a list file, without labels."""
    # the other domain may be the list file that `root` is for
    return read_images(path, root=None if Path(path).is_dir() else root, labelled=False)


def list_labelled(path: Path, spec: Spec) -> ImageList:
    """List the labelled images of a folder of class folders, or of a list file."""
    names = None if spec.classes is None else read_class_names(spec.classes)
    return read_images(path, root=None if path.is_dir() else spec.root, labelled=True, class_names=names)


def list_source(path: Path, spec: Spec) -> ImageList:
    """As :func:`list_labelled`; there must be two classes."""
    images = list_labelled(path, spec)
    assert images.labels is not None
    _check_classes(path, len(np.unique(images.labels)))
    return images


def class_texts(names: list[str]) -> list[str]:
    """Names of folders as text, also where their bytes are not UTF-8."""
    return [os.fsencode(name).decode("utf-8", "replace") for name in names]


def _check_classes(path: Path, count: int) -> None:
    require(count > 1, f"The source {path} has {count} class with images: give at least two classes.")


def _cache_options(spec: Spec, show: bool) -> dict[str, Any]:
    return {"cache_gb": gigabytes(spec), "workers": spec.workers, "progress": show}
