"""SAN: one discriminator per class; those of absent classes pass no gradient on to the features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ba3us import losses
from ba3us.methods.base import DomainOutputs, MethodInfo, Outputs, Step
from ba3us.methods.options import NonNegative
from ba3us.methods.registry import Published, Settings, register
from ba3us.methods.shared import Selective, SelectiveOptions, source_risk
from ba3us.nn import DiscriminatorBank, Network, reverse_gradient

_FLOOR = 1e-6  # smaller probabilities are left out of SAN's entropy

_RUN: Settings = {
    "steps": 50004,
    "refresh_every": 200,
    "learning_rate": 3e-3,
    "weight_decay": 5e-4,
    "ramp_steps": 10000,
    "gaussian_start": True,
    "entropy_weight": 0.2,
}
_PUBLISHED = {
    "office31": Published(_RUN),
    "office-home": Published(_RUN, note="not run by its authors; as for Office31, with smaller discriminators"),
    "imagenet-caltech": Published(
        _RUN,
        {
            "I->C": {"entropy_weight": 1.0, "keep_classifier": True},
            "C->I": {"entropy_weight": 0.1, "learning_rate": 1e-2},
        },
    ),
}


@dataclass(frozen=True, kw_only=True)
class SANOptions(SelectiveOptions):
    """Settings of SAN.

    `weighting` takes the class weights from the whole ``target`` at every refresh (steadier, say the authors)
    or from both halves of every ``batch``. `entropy_weight` weighs the entropy of all predictions.
    `discriminator_hidden` is an upper bound: above 31 classes the discriminators have one hidden layer of at
    most 256, above 256 classes none.
    """

    weighting: Literal["target", "batch"] = "target"
    entropy_weight: NonNegative = 0.2

    def hidden(self, num_classes: int) -> tuple[int, ...]:
        """Sizes of the hidden layers of each of the discriminators."""
        if num_classes <= 31:
            return (self.discriminator_hidden, self.discriminator_hidden)
        return (min(256, self.discriminator_hidden),) if num_classes <= 256 else ()


@register(
    "san",
    MethodInfo(
        title="SAN",
        reference="Cao et al., Partial Transfer Learning with Selective Adversarial Networks, CVPR 2018",
        setting="partial",
        losses="checked",
        note="As the authors' PyTorch code; the printed numbers came from their Caffe code. Time and memory "
        "grow with the number of classes.",
    ),
    _PUBLISHED,
)
class SAN(Selective):
    """min_{F,G} max_D  CE + α·H + Σ_k L_adv(D_k(p_k·f)), with λ·w_k in the gradient reversal of D_k."""

    Options = SANOptions
    options: SANOptions

    def __init__(self, options: SANOptions, network: Network) -> None:
        super().__init__(options, network)
        self.discriminators = DiscriminatorBank(
            network.num_classes,
            network.feature_dim,
            options.hidden(network.num_classes),
            options.discriminator_dropout,
        )
        self.start(network, list(self.discriminators.weights))

    def refresh(self, target: DomainOutputs) -> None:
        """Class weights from the whole target, unless they come from the batches."""
        if self.options.weighting == "target":
            super().refresh(target)

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Cross-entropy, the sum of the C domain losses, and the entropy of both domains."""
        c, source, target = self.options, outputs.source, outputs.target
        logits = torch.cat([source.logits, target.logits])
        p = logits.softmax(dim=1).detach()
        if c.weighting == "batch":
            self.class_weights.copy_(p.mean(dim=0) / p.mean(dim=0).max())
        selected = p.T[:, :, None] * torch.cat([source.features, target.features])
        reversal = c.reversal(step) * self.class_weights
        scores = self.discriminators(reverse_gradient(selected, reversal[:, None, None]))
        d_source, d_target = scores.tensor_split([len(source.logits)], dim=1)
        return source_risk(source, c) | {
            "alignment": self.num_classes * losses.adversarial_loss(d_source, d_target),
            "entropy": c.entropy_weight * losses.entropy(logits, floor=_FLOOR).mean(),
        }
