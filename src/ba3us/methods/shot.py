"""SHOT for partial targets: source hypothesis transfer. While adapting, no source sample is seen."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from ba3us import losses
from ba3us.methods.base import DomainOutputs, Method, MethodInfo, Outputs, Recipe, Refresh, Step
from ba3us.methods.options import BelowOne, MethodOptions, NonNegative, NormedBatch, Whole
from ba3us.methods.registry import Published, Settings, by_epochs, register
from ba3us.methods.shared import SourceStageOptions, source_risk
from ba3us.nn import Head, Network

_EPS = 1e-5  # inside the logarithm of the entropy


@dataclass(frozen=True, kw_only=True)
class SHOTOptions(SourceStageOptions):
    """Settings of SHOT.

    The source stage smooths its labels by `smoothing`. Then `pseudo_weight` weighs the cross-entropy with
    pseudo-labels and `entropy_weight` the entropy. Only classes with more than `smallest_class` predictions
    (none: a hundredth of the target, at most the published 10, which was meant for 1,100 to 1,800 samples) are
    given as pseudo-labels. These are renewed every `refresh_every` steps (none: fifteen times).
    """

    unused: ClassVar = ("keep_classifier", "bottleneck_norm")

    batch_size: NormedBatch = 36
    smoothing: BelowOne = 0.1
    pseudo_weight: NonNegative = 0.3
    entropy_weight: NonNegative = 1.0
    smallest_class: Whole | None = None

    @property
    def interval(self) -> int:
        """Steps between two rounds of pseudo-labels."""
        return self.refresh_every or max(1, (self.steps - self.first_stage) // 15)


_RUN: Settings = {"batch_size": 64, "learning_rate": 0.01, "decay_gamma": 10.0, "smallest_class": 10}


def _stages(source: int, target: int) -> Settings:
    """50 epochs over nine tenths of the source, then 15 over the target."""
    stages = 50 * -(-source * 9 // 640), 15 * -(-target // 64)
    return {"steps": sum(stages), "source_steps": stages[0], "decay_steps": stages[1]}


def pseudo_labels(features: Tensor, logits: Tensor, smallest_class: int) -> Tensor:
    """Labels of the nearest class centre, by cosine, in two rounds. [n, d], [n, C] → [n].

    The first centres are means under the predictions, the second under the first labels. A class takes part
    if more than `smallest_class` samples are predicted as it; if none has that many, every predicted class.
    """
    p = logits.softmax(dim=1)
    counts = F.one_hot(p.argmax(dim=1), p.shape[1]).sum(dim=0)
    allowed = torch.nonzero(counts > (smallest_class if counts.max() > smallest_class else 0)).flatten()
    unit = F.normalize(torch.cat([features, torch.ones_like(features[:, :1])], dim=1), dim=1)
    for _ in range(2):
        centres = (p.T @ unit) / (1e-8 + p.sum(dim=0)[:, None])
        labels = allowed[(unit @ F.normalize(centres[allowed], dim=1).T).argmax(dim=1)]
        p = F.one_hot(labels, p.shape[1]).to(p)
    return labels


@register(
    "shot",
    MethodInfo(
        title="SHOT",
        reference="Liang et al., Do We Really Need to Access the Source Data?, ICML 2020",
        setting="partial",
        losses="variant",
        note="The released partial setting (no diversity term), not checked against its numbers. Ours: the "
        "smallest class that counts shrinks with the target (the released ten lost two of ten classes of 157 "
        "samples); where no class is large enough, every predicted one is used.",
    ),
    {"office-home": Published(_RUN, by_epochs("office-home", _stages))},
)
class SHOT(Method):
    """Source: smoothed CE. Target, classifier frozen: min  0.3·CE(pseudo-labels) + H."""

    Options = SHOTOptions
    options: SHOTOptions
    labels: Tensor

    def __init__(self, options: SHOTOptions, network: Network) -> None:
        super().__init__(options, network)
        # one pseudo-label per target sample, of which nothing is known yet
        self.register_buffer("labels", torch.zeros(0, dtype=torch.int64))

    @classmethod
    def head(cls, options: MethodOptions) -> Head:
        """A bottleneck with batch norm and a weight-normalised classifier."""
        return Head(options.bottleneck, batch_norm=True, weight_norm=True)

    def recipe(self) -> Recipe:
        """A source stage, then the target alone, with pseudo-labels from the start."""
        c = self.options
        encoder = ("network.backbone", "network.bottleneck")
        recipe = c.staged(super().recipe(), trains=encoder, source=False)
        return dataclasses.replace(recipe, refresh=Refresh(c.interval, at_start=True, features=True))

    def warmup_losses(self, outputs: Outputs) -> dict[str, Tensor]:
        """Cross-entropy with smoothed labels."""
        return source_risk(outputs.source, self.options, smoothing=self.options.smoothing)

    def refresh(self, target: DomainOutputs) -> None:
        """New pseudo-labels."""
        given = self.options.smallest_class
        smallest = min(10, len(target.logits) // 100) if given is None else given
        self.labels = pseudo_labels(target.features, target.logits, smallest)

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Cross-entropy with pseudo-labels, and entropy."""
        c, target = self.options, outputs.target
        ones = torch.ones_like(target.logits[:, 0])
        pseudo = losses.weighted_cross_entropy(target.logits, self.labels[target.rows], ones)
        entropy = losses.entropy(target.logits, eps=_EPS).mean()
        return {"pseudo": c.pseudo_weight * pseudo, "entropy": c.entropy_weight * entropy}

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        stored = state_dict.get(f"{prefix}labels")
        if stored is not None:  # as many as that run's target has samples
            self.labels = self.labels.new_zeros(stored.shape)
        super()._load_from_state_dict(state_dict, prefix, *args)
