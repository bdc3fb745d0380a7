"""The hyper-parameters that every method has, and how options are checked."""

from __future__ import annotations

import dataclasses
import numbers
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ba3us.errors import did_you_mean, require


@dataclass(frozen=True, kw_only=True)
class MethodConfig:
    """Hyper-parameters that every method has.

    `learning_rate` is that of the new layers; it falls as (1 + `decay_gamma`·t)^(-0.75), where t counts
    updates or, with `decay_steps`, is the share of them that has passed (at most 1). `keep_classifier` keeps
    the backbone's own pretrained classifier, without a bottleneck, at the backbone's learning rate;
    `bottleneck_norm` adds batch norm and ReLU after the bottleneck.
    """

    steps: int = 2000
    warmup_steps: int = 0
    batch_size: int = 36
    learning_rate: float = 0.01
    backbone_scale: float = 0.1
    weight_decay: float = 1e-3
    momentum: float = 0.9
    decay_gamma: float = 0.001
    decay_steps: int | None = None
    bottleneck: int | None = 256
    bottleneck_norm: bool = False
    keep_classifier: bool = False
    refresh_every: int | None = None

    def __post_init__(self) -> None:
        # a pretrained classifier may be used as it is
        self.check("steps", self.steps >= (0 if self.keep_classifier else 1), "at least 1")
        self.check("batch_size", self.batch_size >= 1, "at least 1")
        for name in ("warmup_steps", "learning_rate", "backbone_scale", "weight_decay", "decay_gamma"):
            self.check(name, getattr(self, name) >= 0, "0 or more")
        self.check("momentum", 0 <= self.momentum < 1, "in [0, 1)")
        for name in ("refresh_every", "bottleneck", "decay_steps"):
            value = getattr(self, name)
            self.check(name, value is None or value >= 1, "at least 1")
        for name, kind in get_type_hints(type(self)).items():
            if choices := _choices(kind):
                words = [repr(c) for c in choices if c is not None]
                self.check(name, getattr(self, name) in choices, f"{', '.join(words[:-1])} or {words[-1]}")

    def check(self, name: str, holds: bool, must_be: str) -> None:
        """Raise a sentence naming the option, its value and what it must be, unless `holds`."""
        require(holds, f"Option {name!r} is {getattr(self, name)!r}: it must be {must_be}.")

    @classmethod
    def build(cls, **options: Any) -> MethodConfig:
        """Construct from named options; an unknown or ill-typed one is a sentence, not a traceback."""
        kinds = get_type_hints(cls)
        known = [f.name for f in dataclasses.fields(cls)]
        for name, value in options.items():
            require(name in known, f"Unknown option {name!r}: {did_you_mean(name, known)}")
            options[name] = _typed(name, value, kinds[name])
        return cls(**options)

    @property
    def interval(self) -> int:
        """Updates between two refreshes: N_u, by default a tenth of the steps."""
        return self.refresh_every or max(1, self.steps // 10)


def _choices(kind: Any) -> tuple[Any, ...]:
    """What an option declared as a Literal, or as one that may be None, can be; nothing for other types."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    literals = [_choices(part) for part in get_args(kind) if get_origin(part) is Literal]
    return (*literals[0], None) if literals else ()


def _typed(name: str, value: Any, kind: Any) -> Any:
    """`value` as the option's type, or a sentence. Literal options are checked by their config."""
    kinds = get_args(kind) or (kind,)
    if (value is None and type(None) in kinds) or not {int, float, bool} & set(kinds):
        return value
    if bool in kinds:
        require(isinstance(value, bool), f"Option {name!r} is {value!r}: it must be true or false.")
        return value
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    whole = int in kinds
    require(
        real and (not whole or float(value).is_integer()),
        f"Option {name!r} is {value!r}: it must be a {'whole ' if whole else ''}number.",
    )
    return int(value) if whole else float(value)
