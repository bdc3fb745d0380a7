"""The interface of a kind of samples: all that differs between feature arrays and images is behind it.

A kind is one file with a subclass of :class:`Samples` (what a sample is like; it goes into the model's file)
and one of :class:`Opened` (both domains, ready to be trained on). :mod:`ba3us.run.opening` lists the kinds.
"""

from __future__ import annotations

import dataclasses
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
    """A labelled source and an unlabelled target, as the network sees them."""

    source: Source
    target: Target


class MoreSamples(NamedTuple):
    """Samples for a finished model: as its network sees them, their paths or names, and what was left out."""

    domain: Target
    paths: list[str] | None
    skipped: Sequence[Skipped] = ()
    labels: np.ndarray | None = None


@dataclass(frozen=True)
class Samples(ABC):
    """What a sample is like, and how it becomes a vector. Fields are JSON values."""

    kind: ClassVar[str]  # the name in a model's file
    input_name: ClassVar[str]  # of the input of an exported model
    input_dtype: ClassVar[torch.dtype] = torch.float32
    has_pixels: ClassVar[bool] = False
    builds_on_meta: ClassVar[bool] = True  # whether the network can be built without allocating memory

    @property
    @abstractmethod
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample as the network (or an exported model) takes it."""

    @property
    def trained_part(self) -> str | None:
        """How much of a backbone is trained; None without a backbone."""
        return None

    @property
    def is_standardized(self) -> bool | None:
        """Whether the network begins with a standardisation; None if this kind has none."""
        return None

    @abstractmethod
    def encoder(self, backbone: Backbone | None = None, joined: bool = False) -> Encoder:
        """Build what stands before the head.

        Parameters
        ----------
        backbone : Backbone, optional
            With pretrained weights. It is copied. Without one, weights are arbitrary.
        joined : bool
            Leave what is frozen in the body, for methods that need pixels.
        """

    @abstractmethod
    def open_more(self, model: Model, data: Path, spec: Spec, name: str, show: bool = False) -> MoreSamples:
        """Open more samples of this kind for a model, with the root and the device of `spec`."""

    @abstractmethod
    def reopen(
        self, model: Model, spec: Spec, sizes: tuple[int, int], max_samples: int
    ) -> tuple[MoreSamples, MoreSamples]:
        """Open at most `max_samples` of each domain of a finished run again, the source with its labels."""

    @abstractmethod
    def describe(self) -> str:
        """Name the backbone or network in a few words."""

    def preprocess(self, x: Tensor) -> Tensor:
        """Prepare a batch of an exported model's input; the identity by default."""
        return x

    def preparation(self) -> dict[str, Any] | None:
        """Steps before and inside an exported model, as JSON values; None if there are none."""
        return None

    @abstractmethod
    def read_some(self, spec: Spec, count: int) -> np.ndarray:
        """Read `count` raw samples of the target, spread over it."""

    @abstractmethod
    def random_inputs(self, count: int) -> np.ndarray:
        """Draw `count` raw samples of the right shape at random."""

    @abstractmethod
    def example(self, raw: np.ndarray, front: nn.Module | None) -> tuple[np.ndarray, Target]:
        """Raw samples as input of an exported model, and as the domain that ``ba3us predict`` sees."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Opened(ABC):
    """Both domains, the source's labels as numbers, and the classes that they number."""

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
        """The domains as the network behind the frozen `front` sees them."""

    @abstractmethod
    def content(self) -> Iterator[bytes]:
        """All data that a result can depend on, for a digest."""

    @abstractmethod
    def vectors(self, spec: Spec, show: bool = False) -> OpenedArrays:
        """Both domains as vectors that no training changes."""

    def samples_for(self, spec: Spec) -> Samples:
        """The samples, with the standardisation that `spec` asks for or the source needs."""
        return self.samples
