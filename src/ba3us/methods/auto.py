"""``auto``: not a method but a choice among methods, made by :mod:`ba3us.auto` without target labels.

The result is one ordinary network, trained on the source and on the labels that the chosen methods agree on. So
its own losses are those of source-only.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

from ba3us.methods.base import MethodInfo
from ba3us.methods.options import Count, MethodOptions, NormedBatch, Positive
from ba3us.methods.registry import register
from ba3us.methods.source_only import SourceOnly

NAME = "auto"


@dataclass(frozen=True, kw_only=True)
class AutoOptions(MethodOptions):
    """Settings of the automatic choice.

    `preset` is ``fast`` (one robust candidate beside source-only) or ``best`` (more candidates and seeds).
    After `time_limit` seconds no further candidate is trained. `force` uses the adapted model even without
    evidence that it helped. `steps` and `batch_size` are those of every candidate.
    """

    unused: ClassVar = tuple(
        f.name for f in dataclasses.fields(MethodOptions) if f.name not in ("steps", "batch_size")
    )

    preset: Literal["fast", "best"] = "fast"
    time_limit: Positive | None = None
    force: bool = False
    steps: Count = 300
    batch_size: NormedBatch = 36


@register(
    NAME,
    MethodInfo(
        title="Automatic choice",
        reference="ba3us",
        setting="partial",
        losses="textbook",
        note="Tries methods beside source-only, keeps those that the target's neighbours support and distils "
        "them into one network; without evidence, source-only is used.",
    ),
    choice=True,
)
class Auto(SourceOnly):
    """The network that is used: min CE over source samples and target samples with their assigned labels."""

    Options = AutoOptions
