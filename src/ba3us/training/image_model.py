"""A trained network on images that can be taken apart into data and put together again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ba3us import methods
from ba3us.data import Target
from ba3us.data.frozen_domain import FrozenTarget
from ba3us.data.image_domain import ImageTarget, Pixels
from ba3us.nn import Frozen, Network
from ba3us.nn.backbones import Backbone, create_backbone
from ba3us.nn.depth import cut
from ba3us.training.loop import TrainingStep
from ba3us.training.model import Model

_FRONT = "front."


@dataclass(frozen=True)
class ImageBlueprint:
    """All that decides the shape of backbone, network and method, and how images are shown to them."""

    method: str
    options: dict[str, Any]
    classes: int
    backbone: str
    train: str
    size: int
    mean: Sequence[float]
    std: Sequence[float]

    @property
    def side(self) -> int:
        """Side of the squares that crops are taken from: 256 for crops of 224, as in the paper."""
        return round(self.size * 8 / 7)

    @property
    def needs_pixels(self) -> bool:
        """Whether the method must see the images themselves."""
        return "pixels" in methods.get(self.method).info.needs

    def assemble(self, backbone: Backbone, *, check: bool = True) -> tuple[nn.Module | None, TrainingStep]:
        """What is frozen and stands before the network (None: nothing does), and network and method."""
        entry = methods.get(self.method)
        config = entry.config(**self.options)
        parts = cut(backbone, self.train, check=check)
        front, body = parts.front, parts.tail
        if front is not None and self.needs_pixels:
            body, front = nn.Sequential(Frozen(front), body), None
        head = entry.method.head(config)
        network = Network(body, backbone.dim, self.classes, head, backbone.classifier)
        network.to(memory_format=torch.channels_last)
        return front, TrainingStep(network, entry.create(network, config))


class ImageModel(Model):
    """A network on images with the method's own way to predict."""

    FORMAT: ClassVar[str] = "ba3us image model 1"
    Plan: ClassVar[type] = ImageBlueprint
    blueprint: ImageBlueprint  # type: ignore[assignment]

    def __init__(self, blueprint: ImageBlueprint, module: TrainingStep, front: nn.Module | None) -> None:
        super().__init__(blueprint, module)  # type: ignore[arg-type]
        self.front = front

    @classmethod
    def rebuilt(cls, blueprint: Any, state: dict[str, Tensor]) -> Self:
        """From weights."""
        backbone = create_backbone(blueprint.backbone, pretrained=False)
        front, module = blueprint.assemble(backbone, check=False)
        before = {k.removeprefix(_FRONT): v for k, v in state.items() if k.startswith(_FRONT)}
        module.load_state_dict({k: v for k, v in state.items() if not k.startswith(_FRONT)})
        if front is not None:
            front.load_state_dict(before)
        return cls(blueprint, module, front)

    def state(self) -> dict[str, Tensor]:
        """Copies of all weights and buffers."""
        front = {} if self.front is None else self.front.state_dict()
        copies = {f"{_FRONT}{k}": v.detach().cpu().clone().contiguous() for k, v in front.items()}
        return super().state() | copies

    def domain(self, pixels: Pixels, name: str = "target", device: str | torch.device = "cpu") -> Target:
        """Images as this model sees them; nothing is kept on disk."""
        b = self.blueprint
        images = ImageTarget(pixels, b.size, b.mean, b.std, device=device, name=name)
        if self.front is None:
            return images
        return FrozenTarget(images, self.front, cache_gb=0, activations="float32")

    def outputs(self, domain: Target, batch_size: int = 32) -> Iterator[tuple[Tensor, Tensor]]:
        """Features and logits, batch by batch."""
        return super().outputs(domain, batch_size)
