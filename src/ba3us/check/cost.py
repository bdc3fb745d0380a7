"""Time and memory that training takes on this machine, from a few timed steps."""

from __future__ import annotations

import copy
import dataclasses
import math
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ba3us.auto.choose import train_auto
from ba3us.methods.auto import NAME as AUTO
from ba3us.methods.options import MethodOptions
from ba3us.nn.backbones import Backbone, cut
from ba3us.run.arrays import OpenedArrays
from ba3us.run.spec import Spec
from ba3us.run.train import train_one

_IMAGES = 4  # per timed pass
_VIEWS = 5  # cached per image with `tail`: four and the centre
_DOMAINS = 2.1  # source, target and a few borrowed rows
_COPIES = 4  # of trained weights: themselves, gradients, momentum, the selected ones
_TIMED_STEPS = 20  # of the head, timed
NAMED = "ba3us"  # the method that stands for all named ones


@dataclass(frozen=True)
class Cost:
    """An estimate for one training; `gigabytes` are beyond the memory in use."""

    method: str
    train: str
    seconds: float
    gigabytes: float
    steps: int


def of_backbone(backbone: Backbone, rows: tuple[int, int], config: MethodOptions) -> tuple[Cost, Cost]:
    """Training the tail, and all, of a backbone with a named method; `rows` counts source and target images."""
    batch = config.batch_size * _DOMAINS
    steps = config.steps + config.warmup_steps
    drawn = steps * batch
    evaluated = 11 * rows[1]
    tail, whole = _timed(backbone, "tail"), _timed(backbone, "all")
    features = sum(rows) * _VIEWS * tail.front
    return (
        Cost(NAMED, "tail", features + drawn * tail.step + evaluated * tail.rest, tail.memory(batch), steps),
        Cost(NAMED, "all", drawn * whole.step + evaluated * whole.rest, whole.memory(batch), steps),
    )


def of_depths(backbone: Backbone, rows: tuple[int, int], features: OpenedArrays) -> tuple[Cost, ...]:
    """The automatic choice, and a named method at each depth; `features` are vectors of some of the images."""
    on_vectors, unseen = of_head(features), sum(rows) - sum(features.rows)
    if unseen > 0:
        x = torch.randn(_IMAGES, 3, backbone.size, backbone.size).to(memory_format=torch.channels_last)
        with torch.no_grad():
            more = unseen * _seconds(backbone.module.eval(), x)
        vectors = 4 * backbone.dim * unseen / 1e9
        on_vectors = tuple(
            dataclasses.replace(cost, seconds=cost.seconds + more, gigabytes=cost.gigabytes + vectors)
            for cost in on_vectors
        )
    return *on_vectors, *of_backbone(backbone, rows, Spec(method=NAMED).method_options())


def of_head(opened: OpenedArrays) -> tuple[Cost, ...]:
    """The automatic choice and a named method on vectors, from a few steps of each."""
    vectors = 4 * math.prod(opened.source.shape[1:]) * sum(opened.rows)
    costs, trainers = [], {AUTO: train_auto, NAMED: train_one}
    for method, train in trainers.items():
        spent = []
        for steps in (1, 1 + _TIMED_STEPS):  # the first also pays for what is done once
            start = time.perf_counter()
            train(Spec(method=method, method_params={"steps": steps}), opened)
            spent.append(time.perf_counter() - start)
        each = max(0.0, spent[1] - spent[0]) / _TIMED_STEPS
        config = Spec(method=method).method_options()
        steps = config.steps + config.warmup_steps
        costs.append(Cost(method, "head", spent[0] + each * steps, vectors / 1e9, steps))
    return tuple(costs)


@dataclass(frozen=True)
class _Timed:
    """Per image, in seconds: the frozen front, the rest, a training step of the rest; and bytes of memory."""

    front: float
    rest: float
    step: float
    activations: float
    weights: int

    def memory(self, batch: float) -> float:
        """10⁹ bytes that a step of so many images adds."""
        return (self.activations * batch + _COPIES * self.weights) / 1e9


def _timed(backbone: Backbone, train: str) -> _Timed:
    own = copy.deepcopy(backbone.module).requires_grad_(True)
    parts = cut(dataclasses.replace(backbone, module=own), train, check=False)
    x = torch.randn(_IMAGES, 3, backbone.size, backbone.size).to(memory_format=torch.channels_last)
    with torch.no_grad():
        front = _seconds(parts.front, x) if parts.front is not None else 0.0
        features = x if parts.front is None else parts.front(x)
        rest = _seconds(parts.body.eval(), features)
    step = _seconds(parts.body.train(), features, backward=True)
    weights = sum(p.numel() * p.element_size() for p in parts.body.parameters())
    return _Timed(front, rest, step, _kept_for_backward(parts.body, features), weights)


def _seconds(module: nn.Module, x: Tensor, backward: bool = False) -> float:
    """Seconds per image, after one pass to warm up."""
    spent = 0.0
    for _ in range(2):
        start = time.perf_counter()
        out = module(x)
        if backward:
            out.sum().backward()
        spent = time.perf_counter() - start
    return spent / len(x)


def _kept_for_backward(module: nn.Module, x: Tensor) -> float:
    """Bytes per image that a forward pass keeps for the backward pass, without weights."""
    own = {p.untyped_storage().data_ptr() for p in module.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = module(x)  # held until all is counted, so that no place is used twice
    total = sum(kept.values())
    del out
    return total / len(x)


def memory_in_use() -> float:
    """Peak memory of this process, in 10⁹ bytes; 0 where it is unknown."""
    try:
        import resource
    except ImportError:  # not on every method
        return 0.0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 1e9 if sys.platform == "darwin" else most * 1024 / 1e9


def in_words(seconds: float) -> str:
    """An estimated time, for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def to_dict(cost: Cost) -> dict[str, Any]:
    """Rounded figures, by name."""
    memory = memory_in_use() + cost.gigabytes
    return {
        "method": cost.method,
        "train": cost.train,
        "seconds": round(cost.seconds, 1),
        "gigabytes": round(memory, 2),
        "steps": cost.steps,
    }
