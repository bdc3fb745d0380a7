"""CDAN and CDAN+E: the discriminator is conditioned on the prediction through p ⊗ f. CDAN+TransNorm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ba3us import losses
from ba3us.methods.base import Method, MethodInfo, Outputs, Recipe, Step
from ba3us.methods.options import Count, NormedBatch, Size
from ba3us.methods.registry import Published, Settings, register
from ba3us.methods.shared import AdversarialOptions, source_risk
from ba3us.nn import Conditional, Network, Product, reverse_gradient, swap_batch_norm
from ba3us.schedules import ramp

_EPS = 1e-5  # inside the logarithm of CDAN's entropy
_REFERENCE = "Long et al., Conditional Adversarial Domain Adaptation, NeurIPS 2018"
_NOTE = "Ignores that classes may be absent. Checked against thuml/CDAN and, as form='tll', against TLL."

_RUN: Settings = {
    "steps": 100004,
    "refresh_every": 500,
    "learning_rate": 1e-2,
    "ramp_steps": 10000,
    "product": "plain",
}
PUBLISHED = {
    "office31": Published(_RUN, {task: {"learning_rate": 3e-3} for task in ("A->D", "D->W")}, oracle=True),
    "office-home": Published(_RUN),
    "imagenet-caltech": Published(
        {**_RUN, "product": "random"}, note="not run by its authors; as for Office-Home, randomly projected"
    ),
}


@dataclass(frozen=True, kw_only=True)
class CDANOptions(AdversarialOptions):
    """Settings of CDAN.

    `product` is how p and f meet: plain, projected to `random_dims`, or (auto) projected above 4096 plain
    dimensions. `entropy_weights` makes it CDAN+E. In the ``released`` form the gradient that reaches the
    entropies is reversed by λ and each domain's weights have mean 1; in the ``tll`` form they are constants
    and have mean 1 over both domains.
    """

    product: Product = "auto"
    random_dims: Size = 1024
    entropy_weights: bool = False
    form: Literal["released", "tll"] = "released"


@register("cdan", MethodInfo("CDAN", _REFERENCE, "closed-set", "checked", note=_NOTE), PUBLISHED)
@register(
    "cdan+e",
    MethodInfo("CDAN+E", _REFERENCE, "closed-set", "checked", note=_NOTE),
    PUBLISHED,
    entropy_weights=True,
)
class CDAN(Method):
    """min_{F,G} max_D  CE + λ·L_adv with D(p ⊗ f)."""

    Options = CDANOptions
    options: CDANOptions

    def __init__(self, options: CDANOptions, network: Network) -> None:
        super().__init__(options, network)
        self.condition = Conditional(
            network.feature_dim, network.num_classes, options.product, options.random_dims
        )
        self.discriminator = options.discriminator(self.condition.out_features)

    def log_scalars(self, step: Step) -> dict[str, float]:
        """λ of the discriminator."""
        return {"lambda": self.reversal(step)}

    def reversal(self, step: Step) -> float:
        """λ of the discriminator, one call ahead of that of the entropies."""
        return self.options.reversal(step)

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and conditional domain loss."""
        alignment = self.alignment(outputs, self.reversal(step), self.options.reversal(step, ahead=0))
        return source_risk(outputs.source, self.options) | {"alignment": alignment}

    def alignment(self, outputs: Outputs, reversal: float, entropy_reversal: float) -> Tensor:
        """L_adv, with w = 1 + e^(-H(p)) in CDAN+E."""
        c, at = self.options, [len(outputs.source.features)]
        features, logits = outputs.together()
        conditioned = self.condition(reverse_gradient(features, reversal), logits)
        d_source, d_target = self.discriminator(conditioned).tensor_split(at)
        if not c.entropy_weights:
            return losses.adversarial_loss(d_source, d_target)
        h = losses.entropy(logits, _EPS)
        if c.form == "tll":
            w = losses.entropy_weights(h.detach())
            w_source, w_target = (w / w.mean()).tensor_split(at)
        else:
            w = losses.entropy_weights(reverse_gradient(h, entropy_reversal))
            w_source, w_target = (part / part.mean().detach() for part in w.tensor_split(at))
        return losses.adversarial_loss(d_source, d_target, w_source, w_target)


@dataclass(frozen=True, kw_only=True)
class TransNormOptions(CDANOptions):
    """Settings of CDAN+TransNorm: CDAN+E with a norm layer and ReLU after the bottleneck.

    λ of the discriminator rises over `discriminator_ramp_steps` steps, as released half as many (None) as λ of
    the entropies.
    """

    entropy_weights: bool = True
    bottleneck_norm: bool = True
    batch_size: NormedBatch = 36
    discriminator_ramp_steps: Count | None = None


@register(
    "cdan+transnorm",
    MethodInfo(
        title="CDAN+TransNorm",
        reference="Wang et al., Transferable Normalization, NeurIPS 2019",
        setting="closed-set",
        losses="checked",
        needs=("batch norm",),
        note="On a backbone without batch norm only the bottleneck has a TransNorm layer.",
    ),
    PUBLISHED,
    entropy_weights=True,
    bottleneck_norm=True,
)
class CDANTransNorm(CDAN):
    """CDAN+E; both domains pass through the network together, in halves."""

    Options = TransNormOptions
    options: TransNormOptions
    joint = True

    def __init__(self, options: TransNormOptions, network: Network) -> None:
        swap_batch_norm(network)
        super().__init__(options, network)

    def reversal(self, step: Step) -> float:
        """λ of the discriminator, which rises twice as fast as that of the entropies."""
        c = self.options
        span = c.discriminator_ramp_steps or (c.ramp_steps or step.horizon) / 2
        return c.ramp_high * ramp(step.number + 1, span, c.ramp_slope)

    def recipe(self) -> Recipe:
        """The warm-up too draws target samples: a training pass always has two halves."""
        return super().recipe().in_every_phase(target=True)
