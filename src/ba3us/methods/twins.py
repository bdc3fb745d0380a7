"""TWINs: two networks weigh the source classes by what they expect of the target, and agree on it."""

from __future__ import annotations

import copy
import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ba3us import losses
from ba3us.methods.base import DomainOutputs, Group, Inputs, MethodInfo, Outputs, Recipe, Step
from ba3us.methods.options import NonNegative
from ba3us.methods.registry import register, with_budget
from ba3us.methods.shared import ClassWeighted, SourceRiskOptions, source_risk
from ba3us.nn import Network
from ba3us.nn.network import xavier
from ba3us.schedules import ramp


@dataclass(frozen=True, kw_only=True)
class TwinsOptions(SourceRiskOptions):
    """Settings of TWINs.

    `agreement_weight` is what the twins' disagreement on the target weighs at the end of a ramp from 0.
    With `shared_backbone` only bottleneck and classifier are double, which saves memory.
    """

    agreement_weight: NonNegative = 1.0
    shared_backbone: bool = False


@register(
    "twins",
    MethodInfo(
        title="TWINs",
        reference="Matsuura et al., TWINs: Two Weighted Inconsistency-reduced Networks for Partial Domain "
        "Adaptation, 2018",
        setting="partial",
        losses="reconstruction",
        needs=("two networks",),
        note="From the abstract and memory. Ours: the ramp, the refresh interval, other source batches for "
        "the second network, the mean of both as the prediction.",
    ),
    with_budget(),
)
class Twins(ClassWeighted):
    """min  Σ_k weighted CE_k + λ·mean_t Σ_c |p¹_c - p²_c|. What is borrowed is the twin's source batch."""

    Options = TwinsOptions
    options: TwinsOptions

    def __init__(self, options: TwinsOptions, network: Network) -> None:
        super().__init__(options, network)
        self.twin = copy.deepcopy(network)
        self.twin.bottleneck.apply(xavier)  # another start
        self.twin.classifier.apply(xavier)
        if options.shared_backbone:
            self.twin.backbone = nn.Identity()

    def recipe(self) -> Recipe:
        """The twin learns like the network, also in a warm-up."""
        recipe = super().recipe().in_every_phase(trains=("network", "method"))
        backbone = Group("method.twin.backbone", self.options.backbone_scale, self.options.momentum)
        return dataclasses.replace(recipe, groups=(backbone, *recipe.groups))

    def borrow(self, step: Step) -> int:
        """A source batch of the twin's own."""
        return self.options.batch_size

    def _twin(self, network: Network, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.twin(network.backbone(x) if self.options.shared_backbone else x)

    def outputs(self, network: Network, inputs: Inputs) -> Outputs:
        """The network on source and target, the twin on its own source samples and on the target."""
        first = super().outputs(network, inputs._replace(borrowed=inputs.borrowed.none()))
        own = inputs.borrowed if len(inputs.borrowed.x) else inputs.source
        features, logits = self._twin(network, own.x)
        twin = DomainOutputs(features, logits, own.rows, own.labels)
        if not len(inputs.target.x):
            return dataclasses.replace(first, borrowed=twin)
        other = {"twin": self._twin(network, inputs.target.x)[1]}
        return dataclasses.replace(first, borrowed=twin, target=dataclasses.replace(first.target, extra=other))

    def predict(self, network: Network, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean of both predictions."""
        (features, first), (_, second) = network(x), self._twin(network, x)
        both = torch.logaddexp(first.log_softmax(dim=1), second.log_softmax(dim=1))
        return features, both - math.log(2)

    def warmup_losses(self, outputs: Outputs) -> dict[str, Tensor]:
        """Both networks learn the source."""
        return super().warmup_losses(outputs) | _renamed(source_risk(outputs.borrowed, self.options))

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Both weighted cross-entropies and the disagreement on the target."""
        c, target = self.options, outputs.target
        one, two = (source_risk(d, c, self.class_weights[d.labels]) for d in (outputs.source, outputs.borrowed))
        disagreement = losses.disagreement(target.logits, target.extra["twin"])
        weight = c.agreement_weight * ramp(step.number, step.horizon)
        return one | _renamed(two) | {"agreement": weight * disagreement}


def _renamed(terms: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{name}_twin": value for name, value in terms.items()}
