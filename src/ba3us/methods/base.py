"""The contract of a method: its options, what it asks of the training loop, and what it computes.

A method is a small module with a frozen dataclass of hyper-parameters. It never sees files, devices or target
labels. The loop asks it for a :class:`Recipe`, gives it batches, minimises the sum of its terms, and at every
refresh shows it the outputs for the whole target.

How unusual methods fit without a special case in the loop:

- ADDA, IWAN (two encoders): the method holds a frozen copy of the encoder for the source. ``begin_phase``
  renews it after the source phase, `outputs` sends each domain through its own encoder, and ``Phase.trains``
  names what learns. The generator's term calls the discriminator with detached weights, so one backward pass
  serves both players.
- TWINs (two networks): the second network is a submodule; `outputs` adds its logits under ``extra``.
- DRCN (a correction of one domain): a submodule that `outputs` adds to that domain's features.
- PADA, SAN, IWAN, MCC, TransNorm (batch norm over both domains): `joint` asks for one pass.
- TransNorm (other norm layers): the constructor replaces them in the network.
- ETN (a norm layer in evaluation mode): ``Phase.frozen_norms``.
- BA³US as released (a step in evaluation mode): ``Recipe.eval_step_after_refresh``.
- SSPDA (pixels): `outputs` gets the raw batch and shuffles its tiles; ``info.needs`` says "pixels".
- SHOT (target indices, frozen classifier): batches carry sample numbers, so `losses` looks up the pseudo-labels
  that `refresh` wrote; ``Phase.trains`` leaves the classifier out, ``Phase.source`` the source.
- MCS (no gradient): a last phase of zero steps; `refresh` solves in closed form, from the target and
  (``Refresh.source``) from what `refresh_source` kept of the source; `predict` uses the result.
- HAFN, ADDA, warm-up (stages): ``Recipe.phases``, each with its own steps, trained parts and optimiser.
- ETN, JUMBOT (class-balanced source batches): ``Recipe.balanced_source``.
- PADA (refresh at U-1 from ten views): ``Refresh(every=U, offset=-1, views=True)``.
"""

from __future__ import annotations

import dataclasses
import numbers
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from ba3us import losses
from ba3us.errors import did_you_mean, require
from ba3us.nn import Head, Network
from ba3us.schedules import InverseDecay

Setting = Literal["partial", "closed-set", "both"]
Parity = Literal["checked", "textbook", "variant", "reconstruction"]
WARMUP = "warmup"


class Range(NamedTuple):
    """Allowed values of a number, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


# the kinds of numbers that options are; an option may also have a Range of its own
NonNegative = Annotated[float, Range("0 or more", lambda v: v >= 0)]
Positive = Annotated[float, Range("above 0", lambda v: v > 0)]
Fraction = Annotated[float, Range("in [0, 1]", lambda v: 0 <= v <= 1)]
BelowOne = Annotated[float, Range("in [0, 1)", lambda v: 0 <= v < 1)]
PositiveFraction = Annotated[float, Range("in (0, 1]", lambda v: 0 < v <= 1)]
Whole = Annotated[int, Range("0 or more", lambda v: v >= 0)]
Count = Annotated[int, Range("at least 1", lambda v: v >= 1)]
Size = Annotated[int, Range("from 1 to 100,000", lambda v: 1 <= v <= 100_000)]
NormedBatch = Annotated[int, Range("from 2 to 100,000, because of batch norm", lambda v: 2 <= v <= 100_000)]


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """Hyper-parameters that every method has.

    `learning_rate` is that of the new layers. It falls as (1 + `decay_gamma`·t)^(-0.75), where t counts steps
    or, with `decay_steps`, is the fraction of them that has passed (at most 1). `keep_classifier` keeps the
    backbone's own pretrained classifier, without a bottleneck, at the backbone's learning rate.
    `bottleneck_norm` adds batch norm and ReLU after the bottleneck.
    """

    unused: ClassVar[tuple[str, ...]] = ()  # options without effect on this method; they keep their defaults

    steps: Whole = 1000
    warmup_steps: Whole = 0
    batch_size: Size = 36
    learning_rate: NonNegative = 0.01
    backbone_scale: NonNegative = 0.1
    weight_decay: NonNegative = 1e-3
    momentum: BelowOne = 0.9
    decay_gamma: NonNegative = 0.001
    decay_steps: Count | None = None
    bottleneck: Size | None = 256
    bottleneck_norm: bool = False
    keep_classifier: bool = False
    refresh_every: Count | None = None

    def __post_init__(self) -> None:
        kinds = get_type_hints(type(self), include_extras=True)
        for each in dataclasses.fields(self):
            value = _checked(each.name, getattr(self, each.name), kinds[each.name])
            object.__setattr__(self, each.name, value)
            if each.name in self.unused:
                words = f"left at {each.default!r}, because this method does not use it"
                self.check(each.name, value == each.default, words)
        # a pretrained classifier may be used as it is
        self.check("steps", self.steps >= 1 or self.keep_classifier, "at least 1")

    def check(self, name: str, holds: bool, must_be: str) -> None:
        """Raise an error with the option, its value and what it must be, unless `holds`."""
        require(holds, f"Option {name!r} is {getattr(self, name)!r}: it must be {must_be}.")

    @classmethod
    def build(cls, **options: Any) -> MethodOptions:
        """Construct from named options; an unknown name raises a UserError with a suggestion."""
        every = [f.name for f in dataclasses.fields(cls)]
        known = [name for name in every if name not in cls.unused]
        for name in options:
            require(name in every, f"Unknown option {name!r}: {did_you_mean(name, known)}")
        return cls(**options)

    @property
    def interval(self) -> int:
        """Steps between two refreshes: N_u, by default a tenth of all."""
        return self.refresh_every or max(1, self.steps // 10)


def _checked(name: str, value: Any, kind: Any) -> Any:
    """`value` as the option's type (bool, a Literal, a number with its Range, or one of these or None)."""

    def must(holds: bool, words: str) -> None:
        require(holds, f"Option {name!r} is {reprlib.repr(value)}: it must be {words}.")

    if type(None) in get_args(kind):
        if value is None:
            return None
        kind = get_args(kind)[0]
    if kind is bool:
        must(isinstance(value, bool), "true or false")
        return value
    if get_origin(kind) is Literal:
        words = [repr(choice) for choice in get_args(kind)]
        must(value in get_args(kind), f"{', '.join(words[:-1])} or {words[-1]}")
        return value
    number, allowed = get_args(kind)
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if number is int:
        must(real and abs(value) < 10**18 and value == int(value), "a whole number of at most 18 digits")
    else:
        must(real and abs(value) <= 1e30, "a number between -1e30 and 1e30")
    must(allowed.holds(value), allowed.words)
    return number(value)


_WORDS = {"true": True, "false": False, "null": None}


def parse_options(pairs: Iterable[str]) -> dict[str, Any]:
    """Options from ``name=value`` pairs; values are numbers (also 1e-3), true, false, null or words."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        require(bool(equals and name), f"Setting {pair!r} is not of the form name=value: write beta=1, say.")
        require(name not in options, f"Setting {name!r} is given twice: leave one of them out.")
        options[name] = _value(text)
    return options


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


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
    `frozen_norms` names norm layers that stay in evaluation mode although their γ and β are trained.
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


@dataclass(frozen=True)
class Recipe:
    """How to train a method, as data.

    With `eval_step_after_refresh` the network takes the step right after each refresh in evaluation mode: norms
    use their running statistics and leave them as they are.
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
        Its hyper-parameters.
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
        kept, norm = options.keep_classifier, options.bottleneck_norm
        return Head(None if kept else options.bottleneck, batch_norm=norm, relu=norm, keep_classifier=kept)

    def recipe(self) -> Recipe:
        """How to train it. Default: an optional source-only warm-up, then one phase of `steps` steps."""
        c = self.options
        phases: tuple[Phase, ...] = (Phase("adapt", c.steps),)
        if c.warmup_steps:
            warmup = Phase(WARMUP, c.warmup_steps, trains=("network",), adapts=False, target=False)
            phases = (warmup, *phases)
        return Recipe(
            phases=phases,
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
