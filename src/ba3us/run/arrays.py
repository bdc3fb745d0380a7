"""Feature arrays: vectors, or arrays of any shape for a small network."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import nn

from ba3us.data import Source, Target
from ba3us.data.domains import evenly_spaced_indices
from ba3us.data.files import FeatureSet, Origin, check_same_backbone, encoded, read_features, read_labels
from ba3us.errors import did_you_mean, require
from ba3us.nn import SMALL
from ba3us.nn.backbones import Backbone, Encoder
from ba3us.nn.norms import Standardize, far_from_unit
from ba3us.run.samples import Domains, MoreSamples, Opened, Samples
from ba3us.run.spec import Spec

if TYPE_CHECKING:
    from ba3us.run.build import Model

_CHUNK_BYTES = 1 << 26  # hashed at a time


@dataclass(frozen=True)
class ArraySamples(Samples):
    """Arrays of one shape.

    `network` is a small network of :data:`ba3us.nn.SMALL` for arrays that are not vectors. `backbone` and
    `weights` produced the features, if known. If `standardized`, the network begins by standardising.
    """

    kind: ClassVar = "arrays"
    input_name: ClassVar = "features"

    shape: Sequence[int]
    network: str | None = None
    backbone: str | None = None
    weights: str | None = None
    standardized: bool = False

    def __post_init__(self) -> None:
        require(
            self.network in (None, *SMALL),
            f"There is no network {self.network!r} for arrays: {did_you_mean(str(self.network), SMALL)}",
        )
        require(
            self.network is not None or len(self.shape) == 1,
            f"A sample has shape {tuple(self.shape)} and is not a vector: flatten it, or give a network for "
            f"such arrays (`backbone`: {' or '.join(SMALL)}).",
        )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.shape)

    @property
    def is_standardized(self) -> bool | None:
        """Whether the network begins with a standardisation."""
        return self.standardized

    def encoder(self, backbone: Backbone | None = None, joined: bool = False) -> Encoder:
        """The identity, a standardisation, or a small network that learns from scratch."""
        if self.network is None:
            body = Standardize(self.shape[0]) if self.standardized else nn.Identity()
            return Encoder(None, body, self.shape[0])
        network, dim = SMALL[self.network](tuple(self.shape))
        return Encoder(None, network, dim)

    def domain(self, array: np.ndarray, name: str) -> Target:
        """Arrays as a domain; they must have the shape of the run's."""
        shape = tuple(array.shape[1:])
        require(
            shape == tuple(self.shape),
            f"A sample of {name} has shape {shape}, but the run's have {tuple(self.shape)}: give such samples.",
        )
        return Target(array, name=name)

    def open_more(self, model: Model, data: Path, spec: Spec, show: bool) -> MoreSamples:
        """Read a feature file."""
        require(
            spec.root is None, "`root` is for list files of images, but the run is on features: leave it out."
        )
        content = read_array(data)
        check_same_backbone(Origin(self.backbone, self.weights), content.origin, data)
        return MoreSamples(self.domain(content.features, f"data of {data}"), content.paths)

    def reopen(
        self, model: Model, spec: Spec, sizes: tuple[int, int], max_samples: int
    ) -> tuple[MoreSamples, MoreSamples]:
        """Read both feature files of a run."""
        opened = open_arrays(spec)
        require(
            opened.rows == tuple(sizes) and opened.classes == model.blueprint.classes,
            f"The files have changed since the run: {opened.rows[0]} and {opened.rows[1]} rows in place of "
            f"{sizes[0]} and {sizes[1]}, or other classes.",
        )
        rows, target_rows = (evenly_spaced_indices(size, max_samples) for size in sizes)
        source = self.domain(opened.source[rows], "source")
        target = self.domain(opened.target[target_rows], "target")
        return (
            MoreSamples(source, [f"row {row}" for row in rows], labels=opened.labels[rows]),
            MoreSamples(target, [opened.paths[row] if opened.paths else f"row {row}" for row in target_rows]),
        )

    def describe(self) -> str:
        """Name the small network, or the backbone of the features."""
        return self.network or "a head on features" + (f" of {self.backbone}" if self.backbone else "")

    def read_some(self, spec: Spec, count: int) -> np.ndarray:
        """Read rows of the target's feature file."""
        features = read_array(str(spec.target)).features
        samples = np.asarray(features[evenly_spaced_indices(len(features), count)])
        self.domain(samples, "the target")  # checks the shape
        return samples

    def random_inputs(self, count: int) -> np.ndarray:
        """Draw standard normal arrays."""
        return np.random.default_rng(0).standard_normal((count, *self.shape), dtype=np.float32)

    def example(self, raw: np.ndarray, front: nn.Module | None) -> tuple[np.ndarray, Target]:
        """The same array as both."""
        domain = self.domain(raw, "target")
        return domain.batch(slice(None), torch.float32).contiguous().numpy(), domain


@dataclass(frozen=True)
class OpenedArrays(Opened):
    """Arrays of both domains."""

    samples: ArraySamples
    source: np.ndarray
    target: np.ndarray

    def domains(self, front: nn.Module | None, spec: Spec, show: bool) -> Domains:
        """The arrays as they are."""
        source = Source(self.source, self.labels, num_classes=len(self.classes))
        return Domains(source, Target(self.target))

    def content(self) -> Iterator[bytes]:
        """Shapes, types and all values."""
        for array in (self.source, self.labels, self.target):
            yield repr((array.shape, str(array.dtype))).encode()
            step = max(1, _CHUNK_BYTES // max(1, array[:1].nbytes))
            yield from (array[at : at + step].tobytes() for at in range(0, len(array), step))

    def vectors(self, spec: Spec, show: bool = False) -> OpenedArrays:
        """The arrays as they are."""
        return self

    def samples_for(self, spec: Spec) -> ArraySamples:
        """Standardise if `spec` says so or a part of the source needs it; published settings never do."""
        if self.samples.network is not None:
            return self.samples
        standardized = spec.standardize
        if standardized is None:
            part = self.source[:: -(-len(self.source) // 10_000)]
            standardized = spec.protocol is None and far_from_unit(torch.from_numpy(np.array(part, float)))
        return dataclasses.replace(self.samples, standardized=standardized)


def open_arrays(spec: Spec, show: bool = False) -> OpenedArrays:
    """Open the feature files of a spec."""
    source, target = read_arrays(spec)
    y = source.named_labels(str(spec.labels or spec.source))
    check_same_backbone(source.origin, target.origin, str(spec.target))
    classes, labels = encoded(y, len(source.features))
    samples = ArraySamples(source.features.shape[1:], spec.backbone, source.backbone, source.weights)
    return OpenedArrays(samples, source.features, labels, target.features, classes.tolist(), paths=target.paths)


def read_arrays(spec: Spec) -> tuple[FeatureSet, FeatureSet]:
    """Read the feature files of a spec; the source with its labels, wherever they are."""
    source, target = read_array(str(spec.source)), read_array(str(spec.target))
    if spec.labels is not None:
        require(source.labels is None, f"{spec.source} has labels of its own: leave `labels` out.")
        source = dataclasses.replace(source, labels=read_labels(spec.labels))
    return source, target


def read_array(path: str | Path) -> FeatureSet:
    """Read a feature file."""
    path = Path(path)
    require(
        not path.is_dir(), f"{path} is a folder: turn its images into a feature file with ba3us embed first."
    )
    return read_features(path)
