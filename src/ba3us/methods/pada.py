"""PADA: the mean target prediction weighs the source classes, for the classifier and the discriminator."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ba3us.methods.base import MethodInfo, Outputs, Step
from ba3us.methods.dann import DANN
from ba3us.methods.options import Positive
from ba3us.methods.registry import Published, Settings, register
from ba3us.methods.shared import Selective, SelectiveOptions, source_risk
from ba3us.nn import Network

_RUN: Settings = {
    "steps": 12004,
    "refresh_every": 500,
    "learning_rate": 1e-2,
    "weight_decay": 5e-4,
    "ramp_steps": 10000,
    "gaussian_start": True,
}
_SLOW: Settings = {"learning_rate": 3e-3}
_SHARP: Settings = {"tau": 10.0}
_GENTLE: Settings = {**_SLOW, **_SHARP, "ramp_high": 0.5}
_PUBLISHED = {
    "office31": Published(_RUN, {"D->A": _SLOW, "W->A": _SLOW}, oracle=True),
    "office-home": Published(
        _RUN,
        {
            "Rw->Ar": _SLOW,
            "Rw->Cl": _SHARP,
            "Rw->Pr": _SHARP,
            **dict.fromkeys(("Ar->Cl", "Ar->Pr", "Pr->Ar", "Pr->Cl", "Cl->Ar", "Cl->Pr"), _GENTLE),
            "Ar->Rw": {**_GENTLE, "ramp_high": 0.25},
            "Pr->Rw": {**_GENTLE, "ramp_high": 0.3},
            "Cl->Rw": {**_GENTLE, "refresh_every": 1000},
        },
        oracle=True,
    ),
    "imagenet-caltech": Published(
        _RUN, {"I->C": {**_SLOW, "refresh_every": 2000, "keep_classifier": True}}, oracle=True
    ),
}


@dataclass(frozen=True, kw_only=True)
class PADAOptions(SelectiveOptions):
    """Settings of PADA: class weights are means of softmax(`tau`·logits), over the target and its views."""

    tau: Positive = 1.0


@register(
    "pada",
    MethodInfo(
        title="PADA",
        reference="Cao et al., Partial Adversarial Domain Adaptation, ECCV 2018",
        setting="partial",
        losses="checked",
        note="As released: the discriminator's weights are divided by the batch's largest, the paper's by the "
        "largest of all.",
    ),
    _PUBLISHED,
)
class PADA(Selective, DANN):
    """min_{F,G} max_D  CE weighted by γ + λ·L_adv with γ on the source's side."""

    Options = PADAOptions
    options: PADAOptions

    def __init__(self, options: PADAOptions, network: Network) -> None:
        super().__init__(options, network)
        self.tau = options.tau
        self.start(network, [p for p in self.discriminator.parameters() if p.dim() == 2])

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Weighted cross-entropy and weighted domain loss."""
        gamma = self.class_weights[outputs.source.labels]
        largest = gamma.max()
        weights = gamma / torch.where(largest > 0, largest, torch.ones_like(largest))
        alignment = self.alignment(outputs, step, weights)
        return source_risk(outputs.source, self.options, gamma) | {"alignment": alignment}
