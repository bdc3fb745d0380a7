"""ETN: an auxiliary classifier on detached features estimates how transferable each source sample is."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from ba3us import losses
from ba3us.methods.base import MethodInfo, Outputs, Recipe, Step
from ba3us.methods.dann import DANN
from ba3us.methods.options import NonNegative
from ba3us.methods.registry import Published, Settings, register
from ba3us.methods.shared import AdversarialOptions, domain_scores, sample_weights, source_risk
from ba3us.nn import Network, Perceptron, reverse_gradient

_EPS_ENTROPY, _EPS_WEIGHT = 1e-20, 1e-10
_RUN: Settings = {
    "steps": 20000,
    "refresh_every": 500,
    "learning_rate": 1e-3,
    "weight_decay": 5e-4,
    "decay_gamma": 10.0,
    "decay_steps": 10000,
    "ramp_steps": 5000,  # λ's counter of 10,000 advances twice per step
    "auxiliary_domain": 10.0,
    "auxiliary_class": 1.0,
    "freeze_stem_norm": True,
}
_REUSED = Published(_RUN, note="not run by its authors with this code; as for Office-Home")


@losses.full_precision
def leaky_scores(logits: Tensor) -> Tensor:
    """Logit of s = Σ_c u_c (being source), of the leaky softmax u_c = e^(z_c)/(C + Σ e^z). [n, C] → [n]."""
    return logits.logsumexp(dim=1) - math.log(logits.shape[1])


def _leaked(logits: Tensor) -> Tensor:
    """The leaky softmax is a softmax with one more logit, log C. [n, C] → [n, C + 1]."""
    return torch.cat([logits, torch.full_like(logits[:, :1], math.log(logits.shape[1]))], dim=1)


@losses.full_precision
def leaky_log_softmax(logits: Tensor) -> Tensor:
    """log u. [n, C] → [n, C]."""
    return _leaked(logits).log_softmax(dim=1)[:, :-1]


@losses.full_precision
def leaky_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over samples of Σ_c BCE(u_c, 1[c = y]), exact where u saturates. [n, C], [n] → scalar."""
    log_u, leaked = leaky_log_softmax(logits), _leaked(logits)
    # log(1 - u_c): only the largest u_c can be near 1, and for it the others are summed
    top = logits.argmax(dim=1, keepdim=True)
    rest = leaked.scatter(1, top, -torch.inf).logsumexp(dim=1) - leaked.logsumexp(dim=1)
    log_not_u = torch.log1p(-log_u.exp().scatter(1, top, 0.0)).scatter(1, top, rest[:, None])
    true = F.one_hot(labels, logits.shape[1]).bool()
    return -torch.where(true, log_u, log_not_u).sum(dim=1).mean()


@dataclass(frozen=True, kw_only=True)
class ETNOptions(AdversarialOptions):
    """Settings of ETN: weights of the target entropy and of the auxiliary classifier's two terms.

    `freeze_stem_norm` keeps norm layers directly under the backbone in evaluation mode, as the original does:
    of a ResNet's, the first. Their γ and β are trained. The two terms of the auxiliary classifier train it
    alone. At the common learning rate here, ten times ETN's, a tenth of the published weights trains it as fast
    as published; with the whole of them a run has diverged.
    """

    entropy_weight: NonNegative = 0.2
    auxiliary_domain: NonNegative = 1.0
    auxiliary_class: NonNegative = 0.1
    freeze_stem_norm: bool = False


@register(
    "etn",
    MethodInfo(
        title="ETN",
        reference="Cao et al., Learning to Transfer Examples for Partial Domain Adaptation, CVPR 2019",
        setting="partial",
        losses="checked",
        note="Source batches are class-balanced: classes take turns, where the original draws them at random.",
    ),
    {"office-home": Published(_RUN), "office31": _REUSED, "imagenet-caltech": _REUSED},
)
class ETN(DANN):
    """w·CE + w·L_adv + γ·H(target) + L_aux-domain + L_aux-class, with w = 1 - s of mean 1."""

    Options = ETNOptions
    options: ETNOptions

    def __init__(self, options: ETNOptions, network: Network) -> None:
        super().__init__(options, network)
        hidden, dropout = options.discriminator_hidden, options.discriminator_dropout
        self.auxiliary = Perceptron(network.feature_dim, hidden, network.num_classes, dropout)
        direct = network.backbone.named_children() if options.freeze_stem_norm else ()
        norms = [name for name, layer in direct if isinstance(layer, _BatchNorm)]
        self._frozen_norms = tuple(f"network.backbone.{name}" for name in norms)

    def recipe(self) -> Recipe:
        """Class-balanced source batches."""
        recipe = super().recipe().in_every_phase(frozen_norms=self._frozen_norms)
        return dataclasses.replace(recipe, balanced_source=True)

    def log_scalars(self, step: Step) -> dict[str, float]:
        """λ of the source samples."""
        return {"lambda": self.options.reversal(step, ahead=0)}

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """The five terms; λ of the target samples is one discriminator call, half an step, ahead."""
        c, source, target = self.options, outputs.source, outputs.target
        assert source.labels is not None
        z_source, z_target = domain_scores(self.auxiliary, source.features.detach(), target.features.detach())
        s_source, s_target = leaky_scores(z_source), leaky_scores(z_target)
        w = sample_weights(s_source, _EPS_WEIGHT)
        f_source = reverse_gradient(source.features, c.reversal(step, ahead=0))
        f_target = reverse_gradient(target.features, c.reversal(step, ahead=0.5))
        d_source, d_target = domain_scores(self.discriminator, f_source, f_target)
        # the original's sums of two means are twice our means of two
        return source_risk(source, c, w, form="paper") | {
            "alignment": 2 * losses.adversarial_loss(d_source, d_target, w),
            "entropy": c.entropy_weight * losses.entropy(target.logits, _EPS_ENTROPY).mean(),
            "auxiliary_domain": c.auxiliary_domain * 2 * losses.adversarial_loss(s_source, s_target),
            "auxiliary_class": c.auxiliary_class * leaky_cross_entropy(z_source, source.labels),
        }
