"""The interface of a kind of samples: feature arrays and images differ behind it and nowhere else.

A kind is one file with a subclass of :class:`Samples` (what a sample is like; the model's file holds it)
and one of :class:`Opened` (both domains, ready for training). :mod:`ba3us.run.opening` lists the kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ba3us.data import Source, Target
from ba3us.data.images import Skipped
from ba3us.nn.backbones import Backbone, Encoder
from ba3us.run.spec import Spec

if TYPE_CHECKING:
    from ba3us.run.arrays import OpenedArrays
    from ba3us.run.build import Model


class Domains(NamedTuple):
    """A labelled source and an unlabelled target, as inputs of the network."""

    source: Source
    target: Target


class MoreSamples(NamedTuple):
    """Samples for a finished model: network inputs, their paths or names, skipped files, labels if known."""

    domain: Target
    paths: list[str] | None
    skipped: Sequence[Skipped] = ()
    labels: np.ndarray | None = None


@dataclass(frozen=True)
class Samples(ABC):
    """What a sample is like, and how it becomes a vector. Fields are JSON values."""

    kind: ClassVar[str]  # its name in a model's file
    input_name: ClassVar[str]  # of an exported model
    input_dtype: ClassVar[torch.dtype] = torch.float32
    has_pixels: ClassVar[bool] = False
    builds_on_meta: ClassVar[bool] = True  # whether the network can be built without allocating memory

    @property
    @abstractmethod
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample as the network takes it."""

    @property
    def trained_part(self) -> str | None:
        """How much of a backbone is trained; None without a backbone."""
        return None

    @property
    def is_standardized(self) -> bool | None:
        """Whether the network begins by standardising; None if this kind never does."""
        return None

    @abstractmethod
    def encoder(self, backbone: Backbone | None = None, joined: bool = False) -> Encoder:
        """Build the layers before the head.

        Parameters
        ----------
        backbone : Backbone, optional
            With pretrained weights, which are copied. Without one, weights are arbitrary.
        joined : bool
            Make the frozen layers part of the body, for methods that need pixels.
        """

    @abstractmethod
    def open_more(self, model: Model, data: Path, spec: Spec, show: bool) -> MoreSamples:
        """Open more samples of this kind for a model, with the root and the device of `spec`."""

    @abstractmethod
    def reopen(
        self, model: Model, spec: Spec, sizes: tuple[int, int], max_samples: int
    ) -> tuple[MoreSamples, MoreSamples]:
        """Open at most `max_samples` of each domain of a finished run again, the source with its labels.

        It is an error if the classes, or the `sizes` of feature files, have changed.
        """

    @abstractmethod
    def describe(self) -> str:
        """Name the backbone or network in a few words."""

    def preprocess(self, x: Tensor) -> Tensor:
        """Turn a batch of an exported model's input into the network's; the identity by default."""
        return x

    def preparation(self) -> dict[str, Any] | None:
        """Describe the preprocessing before and inside an exported model as JSON values, if there is any."""
        return None

    @abstractmethod
    def read_some(self, spec: Spec, count: int) -> np.ndarray:
        """Read `count` evenly spaced raw samples of the target."""

    @abstractmethod
    def random_inputs(self, count: int) -> np.ndarray:
        """Draw `count` raw samples of the right shape at random."""

    @abstractmethod
    def example(self, raw: np.ndarray, front: nn.Module | None) -> tuple[np.ndarray, Target]:
        """Raw samples as input of an exported model, and as the domain that ``ba3us predict`` would make."""


@dataclass(frozen=True)
class Opened(ABC):
    """Both domains, the source's labels as positions in `classes`, and the target's paths or names."""

    samples: Samples
    source: Any
    labels: np.ndarray
    target: Any
    classes: list[Any]
    backbone: Backbone | None = None
    paths: list[str] | None = None
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, list[Skipped]] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[int, int]:
        """Number of samples of the source and of the target."""
        return len(self.source), len(self.target)

    @abstractmethod
    def domains(self, front: nn.Module | None, spec: Spec, show: bool) -> Domains:
        """The domains as inputs of the network behind the frozen `front`."""

    @abstractmethod
    def content(self) -> Iterator[bytes]:
        """Everything in the data that a result can depend on, for a digest."""

    @abstractmethod
    def vectors(self, spec: Spec, show: bool = False) -> OpenedArrays:
        """Both domains as vectors, in front of everything that is trained."""

    def samples_for(self, spec: Spec) -> Samples:
        """The samples, standardised if `spec` asks for it or the source needs it."""
        return self.samples
