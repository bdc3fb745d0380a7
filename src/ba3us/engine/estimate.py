"""What training more of a backbone would take on this machine, from steps that were timed."""

from __future__ import annotations

import copy
import dataclasses
import time

import torch
from torch import nn

from ba3us.engine.opening import OpenedImages
from ba3us.methods.base import MethodOptions
from ba3us.nn.backbones import Backbone
from ba3us.nn.depth import cut

_IMAGES = 4  # per timed pass
_VIEWS = 5  # of an image that `tail` keeps: four and the centre
_DOMAINS = 2.1  # source, target and a few borrowed rows


def deeper(opened: OpenedImages, config: MethodOptions) -> str:
    """One sentence: how long ``--train tail`` and ``--train all`` would take."""
    drawn = (config.steps + config.warmup_steps) * config.batch_size * _DOMAINS
    looks = 11 * opened.rows[1]
    front, tail_pass, tail_step = _timed(opened.backbone, "tail")
    _, whole_pass, whole_step = _timed(opened.backbone, "all")
    tail = sum(opened.rows) * _VIEWS * front + drawn * tail_step + looks * tail_pass
    whole = drawn * whole_step + looks * whole_pass
    return (
        "The backbone is used as it is (--train head). A named method can also train a part of it (--train "
        f"tail), in about {_words(tail)} here, or all of it (--train all), in about {_words(whole)}, by one "
        f"timed step of each and {config.steps + config.warmup_steps} updates."
    )


def _timed(backbone: Backbone, train: str) -> tuple[float, float, float]:
    """Seconds per image: through the frozen front, through the rest, and for a training step of the rest."""
    own = copy.deepcopy(backbone.module).requires_grad_(True)
    parts = cut(dataclasses.replace(backbone, module=own), train, check=False)
    x = torch.randn(_IMAGES, 3, backbone.size, backbone.size).to(memory_format=torch.channels_last)
    with torch.no_grad():
        front = _seconds(parts.front, x) if parts.front is not None else 0.0
        seen = x if parts.front is None else parts.front(x)
        rest = _seconds(parts.tail.eval(), seen)
    step = _seconds(parts.tail.train(), seen, backward=True)
    return front, rest, step


def _seconds(module: nn.Module, x: torch.Tensor, backward: bool = False) -> float:
    """Seconds per row, after one pass to get going."""
    spent = 0.0
    for _ in range(2):
        start = time.perf_counter()
        out = module(x)
        if backward:
            out.sum().backward()
        spent = time.perf_counter() - start
    return spent / len(x)


def _words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
