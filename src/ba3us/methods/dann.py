"""DANN: one discriminator on the features, fooled through gradient reversal (Eq. 1)."""

from __future__ import annotations

from torch import Tensor

from ba3us import losses
from ba3us.methods.base import Method, MethodInfo, Outputs, Step
from ba3us.methods.registry import register, with_budget
from ba3us.methods.shared import AdversarialOptions, source_risk
from ba3us.nn import Network, reverse_gradient


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
        reversed_features = reverse_gradient(outputs.together()[0], self.options.reversal(step))
        d_source, d_target = self.discriminator(reversed_features).tensor_split([len(outputs.source.features)])
        alignment = losses.adversarial_loss(d_source, d_target)
        return source_risk(outputs.source, self.options) | {"alignment": alignment}
