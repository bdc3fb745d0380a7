"""IWAN as first released: two encoders, of which only the target's still learns when the weighing begins."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ba3us import losses
from ba3us.methods.base import MethodInfo, Outputs, Step
from ba3us.methods.iwan import EPS, REFERENCE, Adversaries
from ba3us.methods.options import NonNegative
from ba3us.methods.parts import TwoEncoders, TwoEncodersOptions
from ba3us.methods.published import TASKS, Published
from ba3us.methods.registry import register
from ba3us.nn import Network

_PUBLISHED = Published(
    {
        "steps": 60000,
        "source_steps": 10000,
        "refresh_every": 500,
        "batch_size": 64,
        "learning_rate": 3e-3,
        "weight_decay": 5e-4,
        "ramp_high": 0.1,
    },
    note="Caffe settings for AlexNet on Office31; weight decay and the length of the source stage are ours",
)


@dataclass(frozen=True, kw_only=True)
class IWANOriginalOptions(TwoEncodersOptions):
    """Settings of the two-encoder IWAN; its λ stays small and also scales the entropy's gradient.

    The released λ of 0.1 belongs to a smaller learning rate; at ours it lost the classes in one of three
    runs on MNIST→digits, 0.03 in none.
    """

    ramp_high: NonNegative = 0.03
    ramp_slope: NonNegative = 5.0  # the released one over its 50,000 updates
    entropy_weight: NonNegative = 0.1


@register(
    "iwan-original",
    MethodInfo(
        title="IWAN (two encoders)",
        reference=REFERENCE,
        setting="partial",
        losses="variant",
        needs=("two networks",),
        note="After the released Caffe description, on any backbone; no numbers of it to check against. Half "
        "of the steps train the source encoder.",
    ),
    dict.fromkeys(TASKS, _PUBLISHED),
)
class IWANOriginal(TwoEncoders):
    """Source encoder and classifier are frozen; the target encoder meets the weighted source."""

    Options = IWANOriginalOptions
    options: IWANOriginalOptions

    def __init__(self, options: IWANOriginalOptions, network: Network) -> None:
        super().__init__(options, network)
        self.adversaries = Adversaries(options, network)

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Both discriminators and the target entropy, whose gradient the released net scales by λ again."""
        c = self.options
        reversal = c.reversal(step, ahead=0)
        first, second = self.adversaries(outputs, reversal)
        entropy = losses.entropy(outputs.target.logits, EPS).mean()
        return {"weighing": first, "alignment": second, "entropy": c.entropy_weight * reversal * entropy}
