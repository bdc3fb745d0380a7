"""IWAN: a first discriminator, which the features never feel, weighs source rows for a second that aligns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from ba3us import losses
from ba3us.methods.base import Method, MethodInfo, Outputs, Step
from ba3us.methods.parts import (
    AdversarialConfig,
    TwoEncoders,
    TwoEncodersConfig,
    domain_scores,
    sample_weights,
    source_risk,
)
from ba3us.methods.published import Published, Settings
from ba3us.methods.registry import register
from ba3us.nn import Network, reverse_gradient

_EPS = 1e-5  # TLL's, in the entropy's logarithm and in the mean that weights are divided by
_REFERENCE = "Zhang et al., Importance Weighted Adversarial Nets for Partial Domain Adaptation, CVPR 2018"

_TLL: Settings = {
    "batch_size": 32,
    "refresh_every": 1000,
    "learning_rate": 1e-3,
    "ramp_slope": 1.0,
    "ramp_steps": 1000,
    "bottleneck_norm": True,
}
_CAFFE = Published(
    {
        "steps": 60000,
        "source_steps": 10000,
        "refresh_every": 500,
        "batch_size": 64,
        "learning_rate": 3e-3,
        "weight_decay": 5e-4,
    },
    note="Caffe settings for AlexNet on Office31; weight decay and the length of the source stage are ours",
)


def _weighed(
    weigher: nn.Module, discriminator: nn.Module, outputs: Outputs, reversal: float
) -> tuple[Tensor, Tensor]:
    """L_D of the first discriminator, on detached features, and L_D0 of the second, weighed by the first."""
    f_source, f_target = outputs.source.features, outputs.target.features
    seen = domain_scores(weigher, f_source.detach(), f_target.detach())
    d_source, d_target = domain_scores(
        discriminator, *(reverse_gradient(f, reversal) for f in (f_source, f_target))
    )
    w = sample_weights(seen[0], _EPS)
    return losses.adversarial_loss(*seen), losses.adversarial_loss(d_source, d_target, w)


@dataclass(frozen=True, kw_only=True)
class IWANConfig(AdversarialConfig):
    """Settings of IWAN: `trade_off` weighs both discriminators, the first `weigher_factor` times as much."""

    trade_off: float = 3.0
    weigher_factor: float = 1.5
    entropy_weight: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("trade_off", "weigher_factor", "entropy_weight"):
            self.check(name, getattr(self, name) >= 0, "0 or more")


@register(
    "iwan",
    MethodInfo(
        title="IWAN (shared encoder)",
        reference=_REFERENCE,
        setting="partial",
        fidelity="variant",
        note="The form of TLL, checked against it: one encoder for both domains, trained with the classifier.",
    ),
    {
        "office31": Published({**_TLL, "steps": 10000, "learning_rate": 3e-4}),
        "office-home": Published({**_TLL, "steps": 30000}),
        "imagenet-caltech": Published(
            {**_TLL, "steps": 10000}, {"I->C": {"keep_classifier": True}, "C->I": {"bottleneck": 2048}}
        ),
    },
)
class IWAN(Method):
    """CE + 1.5·t·L_D(sg f) + t·L_D0(w) + γ·H(target)."""

    Config = IWANConfig
    config: IWANConfig

    def __init__(self, config: IWANConfig, network: Network) -> None:
        super().__init__(config, network)
        self.weigher = config.discriminator(network.feature_dim)
        self.discriminator = config.discriminator(network.feature_dim)

    def figures(self, step: Step) -> dict[str, float]:
        """λ."""
        return {"lambda": self.config.reversal(step, ahead=0)}

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Cross-entropy, both discriminators, target entropy."""
        c = self.config
        first, second = _weighed(self.weigher, self.discriminator, outputs, c.reversal(step, ahead=0))
        return source_risk(outputs.source, c) | {
            "weighing": c.weigher_factor * c.trade_off * first,
            "alignment": c.trade_off * second,
            "entropy": c.entropy_weight * losses.entropy(outputs.target.logits, _EPS).mean(),
        }


@dataclass(frozen=True, kw_only=True)
class IWANOriginalConfig(TwoEncodersConfig):
    """Settings of the two-encoder IWAN; its λ stays below 0.1 and also scales the entropy's gradient."""

    ramp_high: float = 0.1
    ramp_slope: float = 5.0  # the released one over its 50,000 updates
    entropy_weight: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("entropy_weight", self.entropy_weight >= 0, "0 or more")


@register(
    "iwan-original",
    MethodInfo(
        title="IWAN (two encoders)",
        reference=_REFERENCE,
        setting="partial",
        fidelity="variant",
        needs=("two networks",),
        note="After the released Caffe description, on any backbone; no numbers of it to check against. Half "
        "of the steps train the source encoder.",
    ),
    dict.fromkeys(("office31", "office-home", "imagenet-caltech"), _CAFFE),
)
class IWANOriginal(TwoEncoders):
    """Source encoder and classifier are frozen; the target encoder meets the weighted source."""

    Config = IWANOriginalConfig
    config: IWANOriginalConfig

    def __init__(self, config: IWANOriginalConfig, network: Network) -> None:
        super().__init__(config, network)
        self.weigher = config.discriminator(network.feature_dim)
        self.discriminator = config.discriminator(network.feature_dim)

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Both discriminators and the target entropy, whose gradient the released net scales by λ again."""
        c = self.config
        reversal = c.reversal(step, ahead=0)
        first, second = _weighed(self.weigher, self.discriminator, outputs, reversal)
        entropy = losses.entropy(outputs.target.logits, _EPS).mean()
        return {"weighing": first, "alignment": second, "entropy": c.entropy_weight * reversal * entropy}
