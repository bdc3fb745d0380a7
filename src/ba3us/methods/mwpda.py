"""MWPDA: weights of source classes, split into shared and outlier ones, times weights of samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ba3us import losses, scores
from ba3us.methods.base import DomainOutputs, MethodInfo, Outputs, Step
from ba3us.methods.dann import DANN
from ba3us.methods.options import NonNegative
from ba3us.methods.registry import register, with_budget
from ba3us.methods.shared import AdversarialOptions, ClassWeighted, sample_weights, source_risk
from ba3us.nn import Network
from ba3us.nn.network import xavier

_EPS = 1e-5


@dataclass(frozen=True, kw_only=True)
class MWPDAOptions(AdversarialOptions):
    """Settings of MWPDA.

    Weights of outlier classes are multiplied by `outlier_scale`; `entropy_weight` weighs the target entropy.
    """

    outlier_scale: NonNegative = 0.1
    entropy_weight: NonNegative = 0.1


@register(
    "mwpda",
    MethodInfo(
        title="MWPDA",
        reference="Hu et al., Multi-Weight Partial Domain Adaptation, BMVC 2019",
        setting="partial",
        losses="reconstruction",
        note="From the abstract. Ours: the scale of outlier classes, the classifier of shared samples (one "
        "hidden layer), how the weights are normalised, all coefficients.",
    ),
    with_budget(),
)
class MWPDA(ClassWeighted, DANN):
    """min_{F,G} max_D  CE and L_adv under weights v(y)·r(x), with target entropy; S learns what is shared."""

    Options = MWPDAOptions
    options: MWPDAOptions
    shared: Tensor

    def __init__(self, options: MWPDAOptions, network: Network) -> None:
        super().__init__(options, network)
        hidden = options.discriminator_hidden
        self.sharing = nn.Sequential(nn.Linear(network.feature_dim, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.sharing.apply(xavier)
        self.register_buffer("shared", torch.ones(network.num_classes))

    def refresh(self, target: DomainOutputs) -> None:
        """v: mean predictions, the largest 1; those below Otsu's threshold are outliers and lowered."""
        super().refresh(target)
        self.shared.copy_(self.class_weights > scores.otsu_threshold(self.class_weights))
        self.class_weights.mul_(torch.where(self.shared > 0, 1.0, self.options.outlier_scale))

    def log_scalars(self, step: Step) -> dict[str, float]:
        """λ, and the number of shared classes."""
        return super().log_scalars(step) | {"shared_classes": float(self.shared.sum())}

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Weighted cross-entropy and domain loss, target entropy, and the classifier of shared samples."""
        c, source, target = self.options, outputs.source, outputs.target
        seems_shared = self.sharing(source.features.detach()).squeeze(1)
        # v·r, of mean 1
        weights = self.class_weights[source.labels] * sample_weights(-seems_shared, _EPS)
        weights = weights / weights.mean().clamp(min=torch.finfo(weights.dtype).tiny)
        sharing = torch.where(
            self.shared[source.labels] > 0,
            losses.domain_loss(seems_shared, True),
            losses.domain_loss(seems_shared, False),
        )
        return source_risk(source, c, weights) | {
            "alignment": self.alignment(outputs, step, weights),
            "entropy": c.entropy_weight * losses.entropy(target.logits).mean(),
            "sharing": sharing.mean(),
        }
