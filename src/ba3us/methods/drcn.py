"""DRCN: a residual block corrects one domain's features; classes are aligned one by one, by weight."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ba3us import losses
from ba3us.methods.base import DomainOutputs, Inputs, MethodInfo, Outputs, Step
from ba3us.methods.options import NonNegative
from ba3us.methods.registry import register, with_budget
from ba3us.methods.shared import ClassWeighted, SourceRiskOptions, source_risk
from ba3us.nn import Network
from ba3us.schedules import ramp

_FLOOR = 1e-7  # probabilities below it are left out of the entropy, as in DCAN


@dataclass(frozen=True, kw_only=True)
class DRCNOptions(SourceRiskOptions):
    """Settings of DRCN.

    `correct` names the domain whose features the residual block corrects. `alignment_weight` weighs, at the
    end of a ramp from 0, the distance between the domains: of each class, by class weight, or (not
    `class_wise`) of all samples at once, with DCAN's linear-time estimate. `entropy_weight` weighs the target
    entropy.
    """

    correct: Literal["source", "target"] = "source"
    class_wise: bool = True
    alignment_weight: NonNegative = 1.5
    entropy_weight: NonNegative = 0.1


@register(
    "drcn",
    MethodInfo(
        title="DRCN",
        reference="Li et al., Deep Residual Correction Network for Partial Domain Adaptation, TPAMI 2020",
        setting="both",
        losses="reconstruction",
        note="From the abstract, with the kernels of its sibling DCAN (checked). Ours: the block's shape and "
        "zero start, target samples assigned by their predictions, the weighted mean over classes, the ramp.",
    ),
    with_budget(),
)
class DRCN(ClassWeighted):
    """min  CE + λ·Σ_c w_c MMD²(source class c, target samples that seem to be c) + β·H(target)."""

    Options = DRCNOptions
    options: DRCNOptions

    def __init__(self, options: DRCNOptions, network: Network) -> None:
        super().__init__(options, network)
        width = network.feature_dim
        self.correction = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        for parameter in self.correction[2].parameters():
            nn.init.zeros_(parameter)  # no correction at first

    def _corrected(self, network: Network, features: Tensor) -> tuple[Tensor, Tensor]:
        features = features + self.correction(features)
        return features, network.classifier(features)

    def outputs(self, network: Network, inputs: Inputs) -> Outputs:
        """One pass per domain; the chosen one is corrected before it is classified."""
        outputs, name = super().outputs(network, inputs), self.options.correct
        domain: DomainOutputs = getattr(outputs, name)
        features, logits = self._corrected(network, domain.features)
        corrected = dataclasses.replace(domain, features=features, logits=logits)
        return dataclasses.replace(outputs, **{name: corrected})  # type: ignore[arg-type]

    def predict(self, network: Network, x: Tensor) -> tuple[Tensor, Tensor]:
        """The target's path, with its correction if it has one."""
        features, logits = network(x)
        return self._corrected(network, features) if self.options.correct == "target" else (features, logits)

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Cross-entropy, weighted distance of the domains, target entropy."""
        c = self.options
        # slowly, because target samples are assigned by predictions, which are poor at first
        weight = c.alignment_weight * ramp(step.number, step.horizon)
        return source_risk(outputs.source, c) | {
            "alignment": weight * self.distance(outputs.source, outputs.target),
            "entropy": c.entropy_weight * losses.entropy(outputs.target.logits, floor=_FLOOR).mean(),
        }

    def distance(self, source: DomainOutputs, target: DomainOutputs) -> Tensor:
        """Distance of the domains: the weighted mean over the batch's classes, or over all samples."""
        kernel = losses.gaussian_kernels(torch.cat([source.features, target.features]))
        if not self.options.class_wise:
            return losses.linear_mmd(kernel)
        assert source.labels is not None
        one_hot = F.one_hot(source.labels, self.num_classes).to(kernel)
        distances = losses.class_mmd(kernel, one_hot, target.logits.detach().softmax(dim=1).to(kernel))
        weights = self.class_weights * one_hot.amax(dim=0)
        return (weights * distances).sum() / weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)
