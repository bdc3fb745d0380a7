"""F and G: a backbone, a bottleneck and a classifier."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


def xavier(module: nn.Module) -> None:
    """Xavier-normal weights and zero bias for linear layers, as BA³US and CDAN start theirs."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_normal_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


@dataclass(frozen=True)
class Head:
    """What stands on the backbone: a linear bottleneck (``None``: none) and a linear classifier."""

    bottleneck: int | None = 256


class Network(nn.Module):
    """The shared network: x → backbone → bottleneck = features f → classifier = logits.

    Parameters
    ----------
    backbone : Module
        Anything that maps a batch to [n, `backbone_dim`]; ``nn.Identity()`` for feature arrays.
    backbone_dim : int
        Size of what the backbone gives.
    num_classes : int
        C, the number of source classes.
    head : Head
        The layers on top.
    """

    def __init__(self, backbone: nn.Module, backbone_dim: int, num_classes: int, head: Head | None = None):
        super().__init__()
        head = head or Head()
        self.feature_dim = head.bottleneck or backbone_dim
        self.num_classes = num_classes
        self.backbone = backbone
        self.bottleneck = nn.Linear(backbone_dim, head.bottleneck) if head.bottleneck else nn.Identity()
        self.classifier = nn.Linear(self.feature_dim, num_classes)
        self.bottleneck.apply(xavier)
        self.classifier.apply(xavier)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x → (features [n, d], logits [n, C])."""
        features = self.bottleneck(self.backbone(x))
        return features, self.classifier(features)

    @property
    def couples_samples(self) -> bool:
        """Whether a training pass mixes the samples of a batch (batch norm), so domains must stay apart."""
        return any(isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training for m in self.modules())

    def passes(self, *batches: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Forward several batches: each on its own if the network couples samples, else in one pass."""
        if self.couples_samples or len(batches) == 1:
            return [self(x) for x in batches]
        sizes = [len(x) for x in batches]
        features, logits = self(torch.cat(batches))
        return list(zip(features.split(sizes), logits.split(sizes)))
