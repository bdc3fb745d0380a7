"""HAFN and SAFN: small feature norms transfer badly, so the norms of both domains are enlarged."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ba3us import losses
from ba3us.methods.base import Group, Method, MethodInfo, Outputs, Recipe, Step
from ba3us.methods.options import BelowOne, MethodOptions, NonNegative, NormedBatch, Size
from ba3us.methods.registry import Published, Settings, by_epochs, register
from ba3us.methods.shared import SourceRiskOptions, SourceStageOptions, source_risk
from ba3us.nn import Head

_FLOOR = 1e-6  # probabilities below it are left out of the entropy
_RELEASED: Settings = {
    "batch_size": 32,
    "learning_rate": 1e-3,
    "backbone_scale": 1.0,
    "weight_decay": 5e-4,
    "decay_gamma": 0.0,
    "bottleneck": 1000,
}


@dataclass(frozen=True, kw_only=True)
class AFNOptions(SourceRiskOptions):
    """Settings of HAFN and SAFN.

    `norm_weight` weighs the norm term of each domain, `entropy_weight` the target entropy (+ENT). `dropout`
    is that of the bottleneck, which also has batch norm and ReLU.
    """

    unused: ClassVar = ("keep_classifier", "bottleneck_norm")

    batch_size: NormedBatch = 36
    bottleneck: Size | None = 1000
    norm_weight: NonNegative = 0.05
    entropy_weight: NonNegative = 0.0
    dropout: BelowOne = 0.5


@dataclass(frozen=True, kw_only=True)
class HAFNOptions(AFNOptions, SourceStageOptions):
    """Settings of HAFN: mean norms are drawn to `radius`, after a stage on the source alone."""

    radius: NonNegative = 25.0


@dataclass(frozen=True, kw_only=True)
class SAFNOptions(AFNOptions):
    """Settings of SAFN: every norm is asked to grow by `growth`."""

    growth: NonNegative = 1.0


_INFO = MethodInfo(
    title="HAFN",
    reference="Xu et al., Larger Norm More Transferable: An Adaptive Feature Norm Approach, ICCV 2019",
    setting="both",
    losses="checked",
    note="The published rate is 1e-3, constant; without a protocol it is that of all methods here.",
)
_CLOSED = dataclasses.replace(
    _INFO,
    title="SAFN, closed set",
    setting="closed-set",
    note="SAFN, whose published epochs pass over a target with all classes: more steps.",
)


def _published(source_only: int, office31: int, office_home: int, closed: bool = False) -> dict[str, Published]:
    """From epochs on the source alone and all epochs; an epoch is a pass over the target's full batches."""

    def dataset(protocol: str, epochs: int, released_for: str) -> Published:
        def count(_: int, target: int) -> Settings:
            batches = target // _RELEASED["batch_size"]
            stage = {"source_steps": source_only * batches} if source_only else {}
            return {"steps": epochs * batches, **stage}

        same = released_for == ("closed-set" if closed else "partial")
        note = "" if same else f"The released epochs of the {released_for} task."
        return Published(_RELEASED, by_epochs(protocol, count, closed), note)

    return {
        "office31": dataset("office31", office31, "closed-set"),
        "office-home": dataset("office-home", office_home, "partial"),
    }


class AFN(Method):
    """min  CE + norm terms of source and target + target entropy; no discriminator, no class weights."""

    options: AFNOptions

    @classmethod
    def head(cls, options: MethodOptions) -> Head:
        """Linear, batch norm, ReLU and a dropout that keeps the norm."""
        assert isinstance(options, AFNOptions)
        return Head(
            options.bottleneck, batch_norm=True, relu=True, dropout=options.dropout, keep_norm=True, std=0.01
        )

    def recipe(self) -> Recipe:
        """No momentum on the backbone, no Nesterov step."""
        recipe = super().recipe()
        backbone = Group("network.backbone", self.options.backbone_scale, momentum=0.0)
        return dataclasses.replace(recipe, groups=(backbone, *recipe.groups[1:]), nesterov=False)

    def norm_loss(self, features: Tensor) -> Tensor:
        """What is asked of the norms."""
        raise NotImplementedError

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Cross-entropy, both norm terms and, with +ENT, the target entropy."""
        c, source, target = self.options, outputs.source, outputs.target
        terms = source_risk(source, c)
        terms["norm_source"] = c.norm_weight * self.norm_loss(source.features)
        terms["norm_target"] = c.norm_weight * self.norm_loss(target.features)
        if c.entropy_weight:
            terms["entropy"] = c.entropy_weight * losses.entropy(target.logits, floor=_FLOOR).mean()
        return terms


@register("hafn", _INFO, _published(60, 120, 180))
@register(
    "hafn+ent", dataclasses.replace(_INFO, title="HAFN + ENT"), _published(60, 120, 180), entropy_weight=0.1
)
class HAFN(AFN):
    """Hard AFN: the mean norm of each domain is drawn to R."""

    Options = HAFNOptions
    options: HAFNOptions

    def norm_loss(self, features: Tensor) -> Tensor:
        """(mean ‖f‖ - R)²."""
        return losses.hard_norm_loss(features, self.options.radius)

    def recipe(self) -> Recipe:
        """A source-only stage first."""
        return self.options.staged(super().recipe())

    def warmup_losses(self, outputs: Outputs) -> dict[str, Tensor]:
        """The source-only stage has the source's norm term."""
        norm = self.options.norm_weight * self.norm_loss(outputs.source.features)
        return super().warmup_losses(outputs) | {"norm_source": norm}


@register("safn", dataclasses.replace(_INFO, title="SAFN"), _published(0, 100, 180))
@register("safn-closed", _CLOSED, _published(0, 100, 180, closed=True))
@register(
    "safn+ent", dataclasses.replace(_INFO, title="SAFN + ENT"), _published(0, 100, 180), entropy_weight=0.1
)
class SAFN(AFN):
    """Stepwise AFN: every norm is to be larger by Δr than it is."""

    Options = SAFNOptions
    options: SAFNOptions

    def norm_loss(self, features: Tensor) -> Tensor:
        """Mean of (‖f‖ - (‖f‖ as it is + Δr))²."""
        return losses.stepwise_norm_loss(features, self.options.growth)
