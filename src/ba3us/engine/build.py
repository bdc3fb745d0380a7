"""Network and method from data: the only place where they are made."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from ba3us import methods
from ba3us.data.memory import memory
from ba3us.engine.samples import Arrays, Images
from ba3us.errors import require
from ba3us.methods.base import MethodOptions
from ba3us.nn import Network
from ba3us.nn.backbones import Backbone
from ba3us.training import TrainingStep

_COPIES = 4  # of every weight: itself, its gradient, its momentum, and the best so far


class Built(NamedTuple):
    """What is frozen and stands before the network (None: nothing does), and network and method."""

    front: nn.Module | None
    module: TrainingStep


@dataclass(frozen=True)
class Blueprint:
    """All that decides the shape of network and method: every hyper-parameter, the classes, the samples."""

    method: str
    options: dict[str, Any]
    classes: list[Any]
    samples: Arrays | Images

    @classmethod
    def of(cls, method: str, config: MethodOptions, classes: list[Any], samples: Arrays | Images) -> Blueprint:
        """From resolved hyper-parameters, so that later defaults don't change it."""
        return cls(method, dataclasses.asdict(config), classes, samples)

    def build(self, backbone: Backbone | None = None) -> Built:
        """Network and method with initial weights, those of `backbone` where there is one."""
        entry = methods.get(self.method)
        config = entry.options(**self.options)
        pixels = "pixels" in entry.info.needs
        require(
            not pixels or isinstance(self.samples, Images),
            f"The method {self.method!r} needs pixels, but there are feature vectors: choose another method.",
        )
        front, body, dim, classifier = (
            self.samples.encoder(pixels, backbone)
            if isinstance(self.samples, Images)
            else self.samples.encoder()
        )
        network = Network(body, dim, len(self.classes), entry.method.head(config), classifier)
        return Built(front, TrainingStep(network, entry.create(network, config)))

    def check_memory(self) -> None:
        """A sentence, before anything is allocated, if training could not fit into memory.

        Only of arrays, where a discriminator may grow with features times classes.
        """
        most = memory()
        if most is None or not isinstance(self.samples, Arrays):
            return
        with torch.device("meta"):
            module = self.build().module
        size = _COPIES * sum(p.numel() * p.element_size() for p in module.parameters())
        require(
            size <= most,
            f"The method {self.method!r} would need {size / 1e9:.1f} GB of memory for {len(self.classes)} "
            f"classes, but there are {most / 1e9:.1f} GB: choose another method, or a smaller bottleneck or "
            "discriminator_hidden.",
        )

    # --- as data -----------------------------------------------------------------------------------------

    def packed(self) -> dict[str, Any]:
        """As JSON values."""
        kind = "images" if isinstance(self.samples, Images) else "arrays"
        return {
            "method": self.method,
            "options": self.options,
            "classes": self.classes,
            kind: dataclasses.asdict(self.samples),
        }

    @classmethod
    def unpacked(cls, content: dict[str, Any]) -> Blueprint:
        """From what :meth:`packed` gave."""
        samples: Arrays | Images
        samples = Images(**content["images"]) if "images" in content else Arrays(**content["arrays"])
        classes = content["classes"]
        assert isinstance(classes, list)
        return cls(content["method"], content["options"], classes, samples)
