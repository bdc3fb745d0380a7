"""Mechanisms that several methods share; each exists once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ba3us import losses
from ba3us.methods.base import DomainOutputs, MethodConfig, Step
from ba3us.schedules import ramp


@dataclass(frozen=True, kw_only=True)
class SourceRiskConfig(MethodConfig):
    """Settings of a method with a source cross-entropy: `beta` > 0 adds AUS with exponent `xi`."""

    beta: float = 0.0
    xi: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta", "xi"):
            self.check(name, getattr(self, name) >= 0, "0 or more")


@dataclass(frozen=True, kw_only=True)
class AdversarialConfig(SourceRiskConfig):
    """Settings of a method with a discriminator and a gradient reversal.

    The reversal's λ rises to `ramp_high` with slope `ramp_slope` over `ramp_steps` updates (none: the whole
    phase).
    """

    discriminator_hidden: int = 1024
    discriminator_dropout: float = 0.5
    ramp_high: float = 1.0
    ramp_slope: float = 10.0
    ramp_steps: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("discriminator_hidden", self.discriminator_hidden >= 1, "at least 1")
        self.check("discriminator_dropout", 0 <= self.discriminator_dropout < 1, "in [0, 1)")
        self.check("ramp_steps", self.ramp_steps is None or self.ramp_steps >= 1, "at least 1")

    def reversal(self, step: Step, ahead: int = 1) -> float:
        """λ at a step; the originals' discriminators count their own calls and so are one `ahead`."""
        horizon = self.ramp_steps or step.horizon
        return self.ramp_high * ramp(step.number + ahead, horizon, self.ramp_slope)


def source_risk(
    source: DomainOutputs, config: SourceRiskConfig, weights: Tensor | None = None
) -> dict[str, Tensor]:
    """Weighted source cross-entropy and, where β > 0, adaptive uncertainty suppression."""
    assert source.labels is not None
    w = torch.ones_like(source.logits[:, 0]) if weights is None else weights
    terms = {"classification": losses.weighted_cross_entropy(source.logits, source.labels, w)}
    if config.beta:
        aus = losses.complement_entropy(source.logits, source.labels, w, config.xi)
        terms["uncertainty"] = config.beta * aus
    return terms
