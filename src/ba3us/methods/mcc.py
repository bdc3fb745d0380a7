"""MCC: target predictions should not confuse one class with another."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ba3us import losses
from ba3us.methods.base import Method, MethodInfo, Outputs, Step
from ba3us.methods.options import NonNegative, Positive
from ba3us.methods.registry import register
from ba3us.methods.shared import SourceRiskOptions, source_risk


@dataclass(frozen=True, kw_only=True)
class MCCOptions(SourceRiskOptions):
    """Settings of MCC: `temperature` softens the predictions, `confusion_weight` weighs their confusion."""

    temperature: Positive = 2.5
    confusion_weight: NonNegative = 1.0


@register(
    "mcc",
    MethodInfo(
        title="MCC",
        reference="Jin et al., Minimum Class Confusion for Versatile Domain Adaptation, ECCV 2020",
        setting="both",
        losses="checked",
        note="The loss is checked against the authors' library; the head is the one of all methods here. "
        "It asks something of every class, and on few classes gives samples to absent ones (C→W of "
        "Office-Caltech 10→5, features: 16 % of them).",
    ),
)
class MCC(Method):
    """min  CE + class confusion of the target batch."""

    Options = MCCOptions
    options: MCCOptions
    joint = True

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and class confusion (of the process's own batch)."""
        c = self.options
        confusion = losses.class_confusion(outputs.target.logits, c.temperature)
        return source_risk(outputs.source, c) | {"confusion": c.confusion_weight * confusion}
