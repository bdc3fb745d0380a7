"""Options, terms and base classes that several methods share."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ba3us import losses, scores
from ba3us.methods.base import (
    DomainOutputs,
    Inputs,
    Method,
    Outputs,
    Phase,
    Recipe,
    Refresh,
    Step,
    source_phase,
)
from ba3us.methods.options import BelowOne, Count, MethodOptions, NonNegative, Size, Whole
from ba3us.nn import Discriminator, Network, reverse_gradient
from ba3us.schedules import ramp


@dataclass(frozen=True, kw_only=True)
class SourceRiskOptions(MethodOptions):
    """Settings of a method with a source cross-entropy: `beta` > 0 adds AUS with exponent `xi`."""

    beta: NonNegative = 0.0
    xi: NonNegative = 1.0


def source_risk(
    source: DomainOutputs,
    options: SourceRiskOptions,
    weights: Tensor | None = None,
    form: losses.Form | None = None,
    smoothing: float = 0.0,
) -> dict[str, Tensor]:
    """Weighted source cross-entropy (its `form` included) and, where β > 0, uncertainty suppression."""
    assert source.labels is not None
    w = torch.ones_like(source.logits[:, 0]) if weights is None else weights
    risk = losses.weighted_cross_entropy(source.logits, source.labels, w, form, smoothing)
    terms = {"classification": risk}
    if options.beta:
        aus = losses.complement_entropy(source.logits, source.labels, w, options.xi)
        terms["uncertainty"] = options.beta * aus
    return terms


@dataclass(frozen=True, kw_only=True)
class SourceStageOptions(SourceRiskOptions):
    """Settings of a method that first trains on the source, for `source_steps` of its `steps`.

    None: half of them. `warmup_steps` come on top. `decay_steps` are those of the second stage; with them the
    rate of the first decays over its own length.
    """

    source_steps: Whole | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.source_steps
        self.check("source_steps", given is None or 0 <= given < self.steps, f"from 0 to {self.steps - 1}")

    @property
    def first_stage(self) -> int:
        """Steps of the source stage, out of `steps`."""
        return self.steps // 2 if self.source_steps is None else self.source_steps

    def staged(self, recipe: Recipe, **adapt: Any) -> Recipe:
        """`recipe` with the source stage as its warm-up; `adapt` describes the phase of the remaining steps."""
        first = self.warmup_steps + self.first_stage
        decay = replace(recipe.decay, period=first if recipe.decay.period else None)
        source = (source_phase(first, decay),) if first else ()
        phases = (*source, Phase("adapt", self.steps - self.first_stage, **adapt))
        return replace(recipe, phases=phases)


@dataclass(frozen=True, kw_only=True)
class AdversarialOptions(SourceRiskOptions):
    """Settings of a method with a discriminator and a gradient reversal.

    The reversal's λ rises to `ramp_high` with slope `ramp_slope` over `ramp_steps` steps (none: the whole
    phase).
    """

    discriminator_hidden: Size = 1024
    discriminator_dropout: BelowOne = 0.5
    ramp_high: NonNegative = 1.0
    ramp_slope: NonNegative = 10.0
    ramp_steps: Count | None = None

    def reversal(self, step: Step, ahead: float = 1.0) -> float:
        """λ at a step; most originals' discriminators count their own calls and so are one `ahead`."""
        horizon = self.ramp_steps or step.horizon
        return self.ramp_high * ramp(step.number + ahead, horizon, self.ramp_slope)

    def discriminator(self, in_features: int) -> Discriminator:
        """A discriminator of the configured size."""
        return Discriminator(in_features, self.discriminator_hidden, self.discriminator_dropout)


def domain_scores(discriminator: nn.Module, source: Tensor, target: Tensor) -> tuple[Tensor, ...]:
    """A discriminator's logits for source and for target samples, from one call."""
    return discriminator(torch.cat([source, target])).tensor_split([len(source)])


def reversed_domain_loss(
    discriminator: nn.Module, outputs: Outputs, reversal: float, weights: Tensor | None = None
) -> Tensor:
    """A discriminator's loss on the features of both domains, whose gradient is reversed."""
    features = (reverse_gradient(d.features, reversal) for d in (outputs.source, outputs.target))
    d_source, d_target = domain_scores(discriminator, *features)
    return losses.adversarial_loss(d_source, d_target, weights)


def sample_weights(source_scores: Tensor, eps: float) -> Tensor:
    """Weights of source samples by similarity to the target: w ∝ 1 - P(source), of mean 1, detached. [n] → [n].

    `source_scores` are logits of being source. Where all are large, the weights go to 0 (`eps`).
    """
    w = torch.sigmoid(-source_scores.detach())
    return w / (w.mean() + eps)


def target_mass(target: DomainOutputs, tau: float = 1.0) -> Tensor:
    """Mean of softmax(τ·logits) over the whole target, summed over its extra views if it has any. [C]."""
    views = target.extra.get("views", target.logits[None])
    return (tau * views).softmax(dim=-1).sum(dim=0).mean(dim=0)


class ClassWeighted(Method):
    """A method with one weight per source class, from what it predicts for the whole target.

    The weights start as ones; a refresh makes them proportional to :func:`target_mass`, the largest 1.
    """

    class_weights: Tensor
    tau: float = 1.0

    def __init__(self, options: MethodOptions, network: Network) -> None:
        super().__init__(options, network)
        self.register_buffer("class_weights", torch.ones(network.num_classes))

    def refresh(self, target: DomainOutputs) -> None:
        """Weights from the target's predictions."""
        mass = target_mass(target, self.tau)
        self.class_weights.copy_(mass / mass.max())


@dataclass(frozen=True, kw_only=True)
class SelectiveOptions(AdversarialOptions):
    """Settings of PADA and SAN: `gaussian_start` takes their initial weights in place of Xavier's."""

    gaussian_start: bool = False


class Selective(ClassWeighted):
    """Base of PADA and SAN: class weights one step before every U-th, from all views of the target."""

    options: SelectiveOptions
    joint = True

    def recipe(self) -> Recipe:
        """As any other, but for the refresh."""
        return replace(super().recipe(), refresh=Refresh(self.options.interval, offset=-1, views=True))

    def log_scalars(self, step: Step) -> dict[str, float]:
        """λ, and the effective number of classes."""
        return {
            "lambda": self.options.reversal(step),
            "effective_classes": scores.effective_classes(self.class_weights),
        }

    def start(self, network: Network, discriminator: Sequence[Tensor]) -> None:
        """Where asked for, small Gaussian weights for the new layers and the discriminator's layers."""
        if not self.options.gaussian_start:
            return
        if isinstance(network.bottleneck, nn.Linear):
            nn.init.normal_(network.bottleneck.weight, 0.0, 0.005)
        if isinstance(network.classifier, nn.Linear) and not self.options.keep_classifier:
            nn.init.normal_(network.classifier.weight, 0.0, 0.01)
        for weight, std in zip(discriminator, (0.01, 0.01, 0.3)):
            nn.init.normal_(weight, 0.0, std)


class TwoEncoders(Method):
    """Source and target each have an encoder; the classifier is the source's.

    First the network learns the source. Then its encoder is copied and frozen for the source, and the
    network goes on as the target's, with the classifier frozen.
    """

    options: SourceStageOptions

    def __init__(self, options: SourceStageOptions, network: Network) -> None:
        super().__init__(options, network)
        self.source_encoder = copy.deepcopy(_encoder(network)).requires_grad_(False)

    def recipe(self) -> Recipe:
        """A source stage, then the target's encoder and the method's own parts learn."""
        learning = [f"method.{name}" for name, _ in self.named_children() if name != "source_encoder"]
        trains = ("network.backbone", "network.bottleneck", *learning)
        return self.options.staged(super().recipe(), trains=trains)

    def begin_phase(self, network: Network, phase: Phase) -> None:
        """The source keeps the encoder as it is now."""
        self.source_encoder.load_state_dict(_encoder(network).state_dict())

    def warmup_losses(self, outputs: Outputs) -> dict[str, Tensor]:
        """The source's terms, which the second stage has none of."""
        return source_risk(outputs.source, self.options)

    def outputs(self, network: Network, inputs: Inputs) -> Outputs:
        """The source through its own encoder, once there is a target."""
        if not len(inputs.target.x):
            return super().outputs(network, inputs)
        source, target, borrowed = inputs
        with torch.no_grad():
            f_source = self.source_encoder(source.x)
            logits = network.classifier(f_source)
        f_target, z_target = network(target.x)
        return Outputs(
            DomainOutputs(f_source, logits, source.rows, source.labels),
            DomainOutputs(f_target, z_target, target.rows),
            DomainOutputs(f_source[:0], logits[:0], borrowed.rows, borrowed.labels),
        )


def _encoder(network: Network) -> nn.Sequential:
    return nn.Sequential(network.backbone, network.bottleneck)
