"""How a sample becomes a vector: the one part in which features and images differ."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from ba3us.data import Source, Target
from ba3us.data.frozen_domain import FrozenTarget
from ba3us.data.image_domain import ImageTarget, Pixels
from ba3us.errors import did_you_mean, require
from ba3us.nn import SMALL, Frozen
from ba3us.nn.backbones import Backbone, create_backbone, square_side
from ba3us.nn.depth import cut
from ba3us.nn.scale import Scale


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
            f"(--backbone {' or '.join(SMALL)}).",
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
