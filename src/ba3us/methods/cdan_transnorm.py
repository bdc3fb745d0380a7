"""CDAN+E on a network whose batch norm layers are TransNorm layers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ba3us.methods.base import MethodInfo, Recipe
from ba3us.methods.cdan import CDAN, PUBLISHED, CDANOptions
from ba3us.methods.options import NormedBatch
from ba3us.methods.registry import register
from ba3us.nn import Network, swap_batch_norm


@dataclass(frozen=True, kw_only=True)
class TransNormOptions(CDANOptions):
    """Settings of CDAN+TransNorm: CDAN+E with a norm layer and ReLU after the bottleneck."""

    entropy_weights: bool = True
    bottleneck_norm: bool = True
    batch_size: NormedBatch = 36


@register(
    "cdan+transnorm",
    MethodInfo(
        title="CDAN+TransNorm",
        reference="Wang et al., Transferable Normalization, NeurIPS 2019",
        setting="closed-set",
        losses="checked",
        needs=("batch norm",),
        note="On a backbone without batch norm only the bottleneck has a TransNorm layer.",
    ),
    PUBLISHED,
    entropy_weights=True,
    bottleneck_norm=True,
)
class CDANTransNorm(CDAN):
    """CDAN+E; both domains pass through the network together, in halves."""

    Options = TransNormOptions
    joint = True

    def __init__(self, options: TransNormOptions, network: Network) -> None:
        swap_batch_norm(network)
        super().__init__(options, network)

    def recipe(self) -> Recipe:
        """The warm-up too draws target rows: a training pass always has two halves."""
        recipe = super().recipe()
        phases = tuple(dataclasses.replace(phase, target=True) for phase in recipe.phases)
        return dataclasses.replace(recipe, phases=phases)
