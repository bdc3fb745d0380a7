"""DANN: one discriminator on the features, fooled through gradient reversal (Eq. 1)."""

from __future__ import annotations

from torch import Tensor

from ba3us.methods.base import Method, MethodInfo, Outputs, Step
from ba3us.methods.registry import register, with_budget
from ba3us.methods.shared import AdversarialOptions, reversed_domain_loss, source_risk
from ba3us.nn import Network


@register(
    "dann",
    MethodInfo(
        title="DANN",
        reference="Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016",
        setting="closed-set",
        losses="textbook",
        note="Ignores that classes may be absent; beta > 0 adds adaptive uncertainty suppression to it.",
    ),
    with_budget(),
)
class DANN(Method):
    """min_{F,G} max_D  CE + λ·L_adv, averaged over source and target samples."""

    Options = AdversarialOptions
    options: AdversarialOptions

    def __init__(self, options: AdversarialOptions, network: Network) -> None:
        super().__init__(options, network)
        self.discriminator = options.discriminator(network.feature_dim)

    def log_scalars(self, step: Step) -> dict[str, float]:
        """λ."""
        return {"lambda": self.options.reversal(step)}

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and domain loss."""
        return source_risk(outputs.source, self.options) | {"alignment": self.alignment(outputs, step)}

    def alignment(self, outputs: Outputs, step: Step, weights: Tensor | None = None) -> Tensor:
        """L_adv, with `weights` on the source samples."""
        return reversed_domain_loss(self.discriminator, outputs, self.options.reversal(step), weights)
