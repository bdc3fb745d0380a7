"""DANN: one discriminator on the features, fooled through gradient reversal (Eq. 1)."""

from __future__ import annotations

from torch import Tensor

from ba3us import losses
from ba3us.methods.base import Method, MethodInfo, Outputs, Step
from ba3us.methods.registry import BUDGET, Published, register
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
    {name: Published(budget, note="the budget of BA³US") for name, budget in BUDGET.items()},
)
class DANN(Method):
    """min_{F,G} max_D  CE + λ·L_adv, averaged over source and target rows."""

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
        shown = reverse_gradient(outputs.together()[0], self.options.reversal(step))
        d_source, d_target = self.discriminator(shown).tensor_split([len(outputs.source.features)])
        alignment = losses.adversarial_loss(d_source, d_target)
        return source_risk(outputs.source, self.options) | {"alignment": alignment}
