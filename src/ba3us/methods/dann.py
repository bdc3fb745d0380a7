"""DANN: one discriminator on the features, fooled through gradient reversal (Eq. 1)."""

from __future__ import annotations

import torch
from torch import Tensor

from ba3us import losses
from ba3us.methods.base import Method, MethodInfo, Outputs, Step
from ba3us.methods.parts import AdversarialConfig, source_risk
from ba3us.methods.registry import register
from ba3us.nn import Discriminator, Network, reverse_gradient


@register(
    "dann",
    MethodInfo(
        title="DANN",
        reference="Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016",
        setting="closed-set",
        fidelity="faithful",
        note="Ignores that classes may be absent; beta > 0 adds adaptive uncertainty suppression to it.",
    ),
)
class DANN(Method):
    """min_{F,G} max_D  CE + λ·L_adv, averaged over source and target rows."""

    Config = AdversarialConfig
    config: AdversarialConfig

    def __init__(self, config: AdversarialConfig, network: Network) -> None:
        super().__init__(config, network)
        self.discriminator = Discriminator(
            network.feature_dim, config.discriminator_hidden, config.discriminator_dropout
        )

    def figures(self, step: Step) -> dict[str, float]:
        """λ."""
        return {"lambda": self.config.reversal(step)}

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and domain loss."""
        source, target = outputs.source.features, outputs.target.features
        features = reverse_gradient(torch.cat([source, target]), self.config.reversal(step))
        scores = self.discriminator(features)
        domain = torch.cat(
            [losses.domain_loss(scores[: len(source)], 1.0), losses.domain_loss(scores[len(source) :], 0.0)]
        )
        return source_risk(outputs.source, self.config) | {"alignment": domain.mean()}
