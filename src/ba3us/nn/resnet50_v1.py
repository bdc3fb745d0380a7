"""The original ResNet-50 (He et al. 2016): timm's with the stride in the first convolution of a block."""

from __future__ import annotations

from typing import Any

from torch import nn

NAME = "resnet50_v1"
MEAN = (0.485020, 0.457957, 0.407604)
STD = (1 / 255,) * 3  # its weights expect pixels of 0 … 255 less their mean


def make_original(model: nn.Module) -> None:
    """Change timm's ``resnet50`` in place; the names and shapes of its weights stay."""
    for stage in ("layer2", "layer3", "layer4"):
        block: Any = model.get_submodule(f"{stage}.0")
        block.conv1.stride, block.conv2.stride = (2, 2), (1, 1)
    model.pretrained_cfg |= {"mean": MEAN, "std": STD}  # type: ignore[operator]
