"""The contract of a method: its options, what it asks of the training loop, and what it computes.

A method is a small module with a frozen dataclass of hyper-parameters. It never sees files, devices or target
labels. The loop asks it for a :class:`Recipe`, gives it batches, minimises the sum of its terms, and at every
refresh shows it the outputs for the whole target.

How unusual methods fit without a special case in the loop:

- two encoders (ADDA, IWAN): the method holds a frozen copy for the source. `begin_phase` renews it, `outputs`
  sends each domain through its own;
- two networks (TWINs): the second is a submodule, whose logits `outputs` adds under ``extra``;
- features corrected in one domain (DRCN): a submodule that `outputs` adds to them;
- other norm layers (TransNorm): the constructor replaces them in the network;
- pixels (SSPDA): `outputs` gets the raw batch; ``info.needs`` says "pixels";
- no source while adapting, frozen classifier (SHOT): ``Phase.source`` and ``Phase.trains``; `losses` looks up
  the pseudo-labels that `refresh` wrote, by the batch's sample numbers;
- no gradient (MCS): a last phase of zero steps. `refresh` solves in closed form, `predict` uses the result;
- stages (HAFN, ADDA, warm-up): ``Recipe.phases``, each with its own steps, trained parts and optimiser.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ba3us import losses
from ba3us.methods.options import MethodOptions
from ba3us.nn import Head, Network
from ba3us.schedules import InverseDecay

Setting = Literal["partial", "closed-set", "both"]
Parity = Literal["checked", "textbook", "variant", "reconstruction"]
WARMUP = "warmup"


class Batch(NamedTuple):
    """Samples of one domain: inputs, their numbers and, for source and borrowed samples, their labels."""

    x: Tensor
    rows: Tensor
    labels: Tensor | None = None

    def none(self) -> Batch:
        """The same batch without any sample."""
        return Batch(self.x[:0], self.rows[:0], None if self.labels is None else self.labels[:0])


class Inputs(NamedTuple):
    """The batches of one step. `borrowed` may be empty. The target has no labels."""

    source: Batch
    target: Batch
    borrowed: Batch


@dataclass(frozen=True)
class DomainOutputs:
    """Features and logits of samples of one domain. For a whole domain, features only where requested."""

    features: Tensor
    logits: Tensor
    rows: Tensor
    labels: Tensor | None = None
    extra: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Outputs:
    """Features and logits of all samples of a step."""

    source: DomainOutputs
    target: DomainOutputs
    borrowed: DomainOutputs

    @classmethod
    def split(cls, features: Tensor, logits: Tensor, inputs: Inputs) -> Outputs:
        """From features and logits of all samples, in the order of `inputs`."""
        sizes = [len(batch.x) for batch in inputs]
        parts = zip(features.split(sizes), logits.split(sizes), inputs)
        return cls(*(DomainOutputs(f, z, batch.rows, batch.labels) for f, z, batch in parts))

    @property
    def domains(self) -> tuple[DomainOutputs, DomainOutputs, DomainOutputs]:
        """Source, target, borrowed."""
        return self.source, self.target, self.borrowed

    def together(self) -> tuple[Tensor, Tensor]:
        """Features and logits of all samples: source, target, borrowed."""
        return torch.cat([d.features for d in self.domains]), torch.cat([d.logits for d in self.domains])


class Step(NamedTuple):
    """Position in training: step `number` (from 0) of a phase whose schedules span `horizon` steps."""

    number: int
    horizon: int
    phase: str = "adapt"

    @property
    def progress(self) -> float:
        """0 … 1."""
        return self.number / max(1, self.horizon)


@dataclass(frozen=True)
class Phase:
    """A part of training with its own schedule and optimiser.

    `trains` lists prefixes of "network" and "method" parameters; the rest is frozen, in evaluation mode.
    `frozen_norms` names norm layers that stay in evaluation mode although their γ and β are trained (ETN).
    Schedules span `horizon` steps (by default `steps`); the rate falls by the phase's `decay`, or by the
    recipe's. In a phase that `adapts`, the method is refreshed and may borrow, and evaluations are candidates
    for selection; any other phase is evaluated at its end only. Without `source` or `target`, no batch of
    that domain is drawn.
    """

    name: str
    steps: int
    trains: tuple[str, ...] = ("network", "method")
    horizon: int | None = None
    adapts: bool = True
    source: bool = True
    target: bool = True
    decay: InverseDecay | None = None
    frozen_norms: tuple[str, ...] = ()

    @property
    def span(self) -> int:
        """Steps that the phase's schedules span."""
        return self.steps if self.horizon is None else self.horizon


@dataclass(frozen=True)
class Group:
    """Parameters by name prefix, with a factor on the learning rate and their momentum."""

    prefix: str
    lr_scale: float = 1.0
    momentum: float = 0.9


@dataclass(frozen=True)
class Refresh:
    """When the whole target is predicted for `Method.refresh`: before step i, i % every == offset % every.

    Step 0 never refreshes, unless `at_start`; the end of a phase always does. `views` asks for the target's
    extra views (ten crops), if it has any. `source` asks that `Method.refresh_source` gets the whole source
    first. `again` predicts the target anew afterwards, where a refresh changes predictions. `features` passes
    features as well as logits to both (otherwise they are empty: [n, 0]).
    """

    every: int
    offset: int = 0
    at_start: bool = False
    views: bool = False
    source: bool = False
    again: bool = False
    features: bool = False

    def due(self, index: int, steps: int) -> bool:
        """Whether to refresh before step `index`, where the phase or its schedules end after `steps`."""
        if index == 0 and steps > 0:
            return self.at_start
        return index % self.every == self.offset % self.every or index == steps


def source_phase(steps: int, decay: InverseDecay | None = None) -> Phase:
    """A phase that trains the network on the source alone."""
    return Phase(WARMUP, steps, trains=("network",), adapts=False, target=False, decay=decay)


@dataclass(frozen=True)
class Recipe:
    """How to train a method, as data.

    With `balanced_source` source batches are class-balanced. With `eval_step_after_refresh` the network takes
    the step right after each refresh in evaluation mode: norms use their running statistics and leave them as
    they are (BA³US as released).
    """

    phases: tuple[Phase, ...]
    refresh: Refresh
    groups: tuple[Group, ...]
    learning_rate: float
    decay: InverseDecay
    weight_decay: float
    batch_size: int
    nesterov: bool = True
    balanced_source: bool = False
    eval_step_after_refresh: bool = False

    def before(self, phase: str) -> int:
        """Steps of the phases before the one of that name."""
        names = [each.name for each in self.phases]
        return sum(each.steps for each in self.phases[: names.index(phase)])

    def in_every_phase(self, **changes: Any) -> Recipe:
        """The same recipe with `changes` to all its phases."""
        return replace(self, phases=tuple(replace(phase, **changes) for phase in self.phases))


@dataclass(frozen=True)
class MethodInfo:
    """What a user should know before choosing a method.

    `losses` says what they were compared with: ``checked`` against numbers of the original program (or the one
    that `note` names), the plain ``textbook`` form, a ``variant`` that departs knowingly, a ``reconstruction``
    without any code to read. It says nothing of the settings.
    """

    title: str
    reference: str
    setting: Setting
    losses: Parity
    needs: tuple[str, ...] = ()
    note: str = ""


class Method(nn.Module):
    """Base of every method. A subclass needs `Options` and `losses`; all else has a default.

    Parameters
    ----------
    options : MethodOptions
    network : Network
        The shared network F, G. The method may read its sizes, copy it or swap layers in it; it does not
        keep it (the loop passes it in).
    """

    Options: ClassVar[type[MethodOptions]] = MethodOptions
    joint: ClassVar[bool] = False  # one pass for all domains, even where batch norm then mixes them
    single_borrowed: bool = False  # one borrowed sample alone passes batch norm of maps, by its positions

    def __init__(self, options: MethodOptions, network: Network) -> None:
        super().__init__()
        self.options = options
        self.num_classes = network.num_classes

    @classmethod
    def head(cls, options: MethodOptions) -> Head:
        """The layers on the backbone."""
        keep, norm = options.keep_classifier, options.bottleneck_norm
        return Head(None if keep else options.bottleneck, batch_norm=norm, relu=norm, keep_classifier=keep)

    def recipe(self) -> Recipe:
        """How to train it. Default: an optional source-only warm-up, then one phase of `steps` steps."""
        c = self.options
        warmup = (source_phase(c.warmup_steps),) if c.warmup_steps else ()
        return Recipe(
            phases=(*warmup, Phase("adapt", c.steps)),
            refresh=Refresh(every=c.interval),
            groups=(
                Group("network" if c.keep_classifier else "network.backbone", c.backbone_scale, c.momentum),
                Group("", 1.0, c.momentum),
            ),
            learning_rate=c.learning_rate,
            decay=InverseDecay(c.decay_gamma, period=c.decay_steps),
            weight_decay=c.weight_decay,
            batch_size=c.batch_size,
        )

    def begin_phase(self, network: Network, phase: Phase) -> None:
        """Called before the first step of a phase (copy an encoder, reset a counter)."""

    def borrow(self, step: Step) -> int:
        """Number of extra source samples on the target's side in this step."""
        return 0

    def outputs(self, network: Network, inputs: Inputs) -> Outputs:
        """Default: one pass per domain through the shared network (joined where the maths is the same)."""
        source, target, borrowed = inputs
        passes_alone = self.joint or (self.single_borrowed and not network.couples_vectors)
        if len(borrowed.x) == 1 and network.couples_samples and not passes_alone:
            borrowed = borrowed.none()  # one sample has no batch statistics
        features, logits = network.passes(source.x, target.x, borrowed.x, joint=self.joint)
        return Outputs.split(features, logits, Inputs(source, target, borrowed))

    def warmup_losses(self, outputs: Outputs) -> dict[str, Tensor]:
        """The terms of the warm-up phase: unweighted source cross-entropy."""
        source = outputs.source
        assert source.labels is not None
        ones = torch.ones_like(source.logits[:, 0])
        return {"classification": losses.weighted_cross_entropy(source.logits, source.labels, ones)}

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Named terms, already weighted; their sum is minimised."""
        raise NotImplementedError

    def log_scalars(self, step: Step) -> dict[str, float]:
        """Scalars for the training history (ramps, effective classes)."""
        return {}

    def refresh_source(self, source: DomainOutputs) -> None:
        """Keep what `refresh` needs of the whole source, with labels; called before it where requested."""

    def refresh(self, target: DomainOutputs) -> None:
        """Update class weights and the like from the network's outputs for the whole target."""

    def predict(self, network: Network, x: Tensor) -> tuple[Tensor, Tensor]:
        """(features, logits) at test time. Default: the shared network."""
        return network(x)
