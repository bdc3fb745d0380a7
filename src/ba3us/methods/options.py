"""Options of methods: the kinds of values, their checks, and the hyper-parameters that every method has."""

from __future__ import annotations

import dataclasses
import numbers
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args, get_origin, get_type_hints

from ba3us.errors import did_you_mean, require


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
    words = {"true": True, "false": False, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
