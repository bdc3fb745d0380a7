"""BA³US, section 3 of the paper, and its ablations and combinations as settings of the same class.

min_{F,G} max_D  L_cls^w + α L_ent + β L_wce^w + λ L_adv^ba                              (Eq. 7)

The variants are registered at the end of the file.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from ba3us import losses, scores
from ba3us.methods.base import DomainOutputs, Method, MethodInfo, Outputs, Recipe, Step
from ba3us.methods.options import BelowOne, MethodOptions, NonNegative, Range, Size
from ba3us.methods.registry import BUDGET, Published, register
from ba3us.nn import Conditional, Discriminator, Network, Product, reverse_gradient
from ba3us.schedules import InverseDecay, borrowed_by_interval, borrowed_by_progress, ramp


@dataclass(frozen=True, kw_only=True)
class BA3USOptions(MethodOptions):
    """Settings of the BA³US family. The defaults are those of Algorithm 1 and section 4.1.

    `alpha`, `beta`, `xi` and `rho` are the paper's α, β, ξ and ρ0. Section 4.1 has β = 5 for Office31 and
    ImageNet-Caltech and β = 1 for Office-Home; the default is the value of two of the three.
    `weight_source` puts the class weights m into cross-entropy and AUS, `weight_alignment` into the
    adversarial term. `entropy_gradient` says what happens to the gradient that reaches the entropies through
    w(x): it is ``reversed`` by λ, as released, or ``detached``.
    `gradual_weights` mixes m with the uniform weights in proportion to the progress. An early, wrong estimate
    then can't remove a present class. It is not in the paper; ``ba3us-gradual`` uses it.
    `conditional` gives D the product of p and f, plain or randomly projected (`product`).
    `released_quirks` repeats two habits of the released program that change numbers where there is batch norm:
    the step after each refresh runs in evaluation mode, and a borrowed batch of one sample passes on its own.
    They are on in the published settings, and have no effect with ``form="paper"``.
    ``form="paper"`` follows the printed formulas where the released code differs (docs/fidelity.md).
    """

    alpha: NonNegative = 0.1
    beta: NonNegative = 5.0
    xi: NonNegative = 1.0
    rho: Annotated[float, Range("in [-1, 1] (negative: constant)", lambda v: -1 <= v <= 1)] = 0.25
    weight_source: bool = True
    weight_alignment: bool = True
    entropy_weights: bool = True
    entropy_gradient: Literal["reversed", "detached"] = "reversed"
    gradual_weights: bool = False
    conditional: bool = False
    product: Product = "plain"
    discriminator_hidden: Size = 1024
    discriminator_dropout: BelowOne = 0.5
    released_quirks: bool = False
    form: losses.Form = "released"


INFO = MethodInfo(
    "BA³US",
    "Liang et al., A Balanced and Uncertainty-aware Approach for Partial Domain Adaptation, ECCV 2020",
    "partial",
    "checked",
)
_BETA = {"office31": 5.0, "office-home": 1.0, "imagenet-caltech": 5.0}
PUBLISHED = {d: Published({**BUDGET[d], "beta": beta, "released_quirks": True}) for d, beta in _BETA.items()}


@register("ba3us", INFO, PUBLISHED)
class BA3US(Method):
    """Balanced adversarial alignment with adaptive uncertainty suppression."""

    Options = BA3USOptions
    options: BA3USOptions
    class_weights: Tensor

    def __init__(self, options: BA3USOptions, network: Network) -> None:
        super().__init__(options, network)
        width = network.feature_dim
        if options.conditional:
            self.condition = Conditional(width, network.num_classes, options.product)
            width = self.condition.out_features
        self.discriminator = Discriminator(width, options.discriminator_hidden, options.discriminator_dropout)
        self.single_borrowed = options.released_quirks and options.form == "released"
        # m_c = 1/C at first (Algorithm 1)
        self.register_buffer("class_weights", torch.full((network.num_classes,), 1 / network.num_classes))

    def recipe(self) -> Recipe:
        """The released schedule counts steps; the printed one, η0 (1 + 10 p)^(-0.75), progress."""
        recipe = super().recipe()
        if self.options.form == "paper":
            decay = InverseDecay(gamma=10.0, period=self.options.steps)
            return dataclasses.replace(recipe, decay=decay)
        return dataclasses.replace(recipe, eval_step_after_refresh=self.options.released_quirks)

    def refresh(self, target: DomainOutputs) -> None:
        """m ∝ Σ_j G(F(x_j^t)), over the whole target (section 3.4)."""
        if self.options.weight_source or self.options.weight_alignment:
            self.class_weights.copy_(scores.mean_probabilities(target.logits))

    def borrow(self, step: Step) -> int:
        """Number of source samples lent to the target: ρ·B, with ρ falling to 0 (section 3.2, Algorithm 1)."""
        c = self.options
        if c.form == "paper":
            return borrowed_by_progress(c.batch_size, c.rho, step.number, step.horizon)
        return borrowed_by_interval(c.batch_size, c.rho, step.number, step.horizon, c.interval)

    def log_scalars(self, step: Step) -> dict[str, float]:
        """λ of both gradient reversals, and the effective number of classes in m."""
        reversal, entropy_reversal = self._lambdas(step)
        return {
            "lambda": reversal,
            "lambda_entropy": entropy_reversal,
            "effective_classes": scores.effective_classes(self.class_weights),
        }

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """The terms of Eq. 7; λ sits in the gradient reversal."""
        c, source = self.options, outputs.source
        assert source.labels is not None
        m = self.effective_class_weights(step)
        m_source = self.sample_weights(m, source) if c.weight_source else torch.ones_like(source.logits[:, 0])
        terms = {
            # L_cls^w (Eq. 4)
            "classification": losses.weighted_cross_entropy(source.logits, source.labels, m_source, c.form),
            # α L_ent (Eq. 3)
            "entropy": c.alpha * losses.entropy(outputs.target.logits).mean(),
            # λ L_adv^ba (Eq. 5)
            "alignment": self.alignment(outputs, m, *self._lambdas(step)),
        }
        if c.beta:
            # β L_wce^w (Eq. 6)
            aus = losses.complement_entropy(source.logits, source.labels, m_source, c.xi, c.form)
            terms["uncertainty"] = c.beta * aus
        return terms

    def alignment(self, outputs: Outputs, m: Tensor, reversal: float, entropy_reversal: float) -> Tensor:
        """L_adv^ba (Eq. 5), or L_adv^e (Eq. 2) where nothing is borrowed and m is left out."""
        c, (source, target, borrowed) = self.options, outputs.domains
        sizes = len(source.logits), len(target.logits), len(borrowed.logits)
        features, logits = outputs.together()
        discriminated = reverse_gradient(features, reversal)
        if c.conditional:
            discriminated = self.condition(discriminated, logits)
        w = torch.ones_like(logits[:, 0])
        if c.entropy_weights:
            # w(x) = 1 + e^(-H(x)) (section 3.1)
            h = losses.entropy(logits)
            h = h.detach() if c.entropy_gradient == "detached" else reverse_gradient(h, entropy_reversal)
            w = losses.entropy_weights(h)
        if c.weight_alignment:
            m_target = w.new_ones(len(target.logits))
            w = w * torch.cat([self.sample_weights(m, source), m_target, self.sample_weights(m, borrowed)])
        return losses.balanced_adversarial_loss(self.discriminator(discriminated), w, sizes, c.form)

    def _lambdas(self, step: Step) -> tuple[float, float]:
        """λ, from 0 to 1 (section 3.4), for D and for the entropies; the released D runs one step ahead."""
        ahead = 1 if self.options.form == "released" else 0
        return ramp(step.number + ahead, step.horizon), ramp(step.number, step.horizon)

    def effective_class_weights(self, step: Step) -> Tensor:
        """m, or with `gradual_weights` (1 - p)/C + p·m at progress p."""
        if not self.options.gradual_weights:
            return self.class_weights
        return (1 - step.progress) / self.num_classes + step.progress * self.class_weights

    def sample_weights(self, m: Tensor, domain: DomainOutputs) -> Tensor:
        """m(y) of each source sample. The printed mean over n_s needs m of mean 1."""
        assert domain.labels is not None
        weights = m.index_select(0, domain.labels)
        return self.num_classes * weights if self.options.form == "paper" else weights


# Without `rho` nothing is borrowed, without `beta` there is no AUS. `weight_alignment` puts m into L_adv^ba:
# BAA and BA³US have it, E-DANN (Eq. 4) and AUS do not. For the closed set m is left out of L_cls^w, too.
# With +CDAN, D sees vec(p ⊗ f) in place of f.

_UNWEIGHTED: dict[str, Any] = {"weight_source": False, "weight_alignment": False}
_OUTER = {
    "setting": "both",
    "losses": "reconstruction",
    "note": "No code was released for the outer-product discriminator; everything else is the released method.",
}
_CLOSED = {
    "setting": "closed-set",
    "note": "Full target, no class weights; the paper gives no settings, so the partial ones are used.",
}
_CLOSED_OUTER = {**_CLOSED, "losses": "reconstruction"}
_GRADUAL = {
    "losses": "variant",
    "note": "Ours: class weights take effect in proportion to the progress, and β is 1. The rest is BA³US.",
}


def _variant(
    name: str, title: str, info: dict[str, Any] | None = None, note: str = "", **settings: Any
) -> None:
    """Register another setting of the class; `note` says why the published settings of BA³US are used."""
    protocols = {d: dataclasses.replace(p, note=note) for d, p in PUBLISHED.items()}
    register(name, dataclasses.replace(INFO, title=title, **info or {}), protocols, **settings)(BA3US)


_variant("e-dann", "E-DANN", rho=0.0, beta=0.0, weight_alignment=False)
_variant("aus", "AUS (E-DANN + AUS)", rho=0.0, weight_alignment=False)
_variant("baa", "BAA", beta=0.0)
_variant("ba3us-gradual", "BA³US, gradual", _GRADUAL, "those of BA³US, but β", gradual_weights=True, beta=1.0)
_variant("baa+cdan", "BAA + CDAN", _OUTER, beta=0.0, conditional=True)
_variant("ba3us+cdan", "BA³US + CDAN", _OUTER, conditional=True)
_FULL = "those of the partial task; none were published for the full target"
_variant("baa-closed", "BAA, closed set", _CLOSED, _FULL, beta=0.0, **_UNWEIGHTED)
_variant("ba3us-closed", "BA³US, closed set", _CLOSED, _FULL, **_UNWEIGHTED)
_variant(
    "baa+cdan-closed", "BAA + CDAN, closed set", _CLOSED_OUTER, _FULL, beta=0.0, conditional=True, **_UNWEIGHTED
)
_variant("ba3us+cdan-closed", "BA³US + CDAN, closed set", _CLOSED_OUTER, _FULL, conditional=True, **_UNWEIGHTED)
