"""``auto``: not a system but a choice among systems, made by :mod:`ba3us.auto.choose` without target labels.

What it serves is a plain network, taught by the systems it tried; so its own losses are source-only's.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

from ba3us.methods.base import Count, MethodInfo, MethodOptions, NormedBatch, Positive
from ba3us.methods.registry import register
from ba3us.methods.source_only import SourceOnly

NAME = "auto"


@dataclass(frozen=True, kw_only=True)
class AutoOptions(MethodOptions):
    """Settings of the automatic choice.

    `preset` is ``fast`` (one robust recipe beside source-only) or ``best`` (more recipes and seeds); after
    `time_limit` seconds no further one is begun. `force` serves what was adapted even without evidence that it
    helped. `steps` and `batch_size` are those of every member.
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
        reference="ours",
        setting="partial",
        losses="textbook",
        note="Tries systems beside source-only, keeps what the target's neighbours speak for and teaches it "
        "to one network; without evidence, source-only is served.",
    ),
    choice=True,
)
class Auto(SourceOnly):
    """The network that is served: min CE over source rows and the target rows as they were labelled."""

    Options = AutoOptions
