"""Vectors that no training changes: features as they are, or what a frozen backbone makes of images."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor

from ba3us.data import Source, Target
from ba3us.engine.opening import Opened, OpenedArrays, OpenedImages, some_rows
from ba3us.engine.samples import Arrays
from ba3us.engine.spec import Spec
from ba3us.errors import require
from ba3us.methods.base import DomainOutputs
from ba3us.neighbours import Neighbours
from ba3us.nn.scale import Scale
from ba3us.training import Rule

NEIGHBOURS = "neighbours"  # the selection rule
MOST_ROWS = 10_000  # of a target among which neighbours are looked for; a larger one is sampled


def vectors(opened: Opened, spec: Spec, show: bool = False) -> OpenedArrays:
    """The samples of both domains as arrays; images as the backbone sees their centres."""
    if not isinstance(opened, OpenedImages):
        return opened
    samples = dataclasses.replace(opened.samples, train="head")
    front = samples.encoder(backbone=opened.backbone).front
    seen = dataclasses.replace(spec, train="head", views=0, ten_crop=False)
    source, target = dataclasses.replace(opened, samples=samples).domains(front, seen, show)
    x, xt = (domain.batch(slice(0, len(domain))).numpy() for domain in (source, target))
    return OpenedArrays(Arrays(x.shape[1:]), x, opened.labels, xt, opened.classes, opened.paths)


def sampled(rows: int) -> np.ndarray:
    """Row numbers to look at: all, or :data:`MOST_ROWS` drawn from a larger number."""
    if rows <= MOST_ROWS:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).choice(rows, MOST_ROWS, replace=False))


def neighbours(source: Source, target: Target, rows: np.ndarray, scaled: bool = False) -> Neighbours:
    """Of the target's `rows`, seen from the source's mean; `scaled` as the network sees them."""
    seen, ours = _flat(target.batch(rows)), _flat(some_rows(source))
    if scaled:
        scale = Scale(ours.shape[1]).fit(ours)
        seen, ours = scale(seen), scale(ours)
    return Neighbours.among(seen, ours.mean(dim=0))


def rule_of_neighbours(source: Source, target: Target, scaled: bool = False) -> Rule:
    """Selects the evaluation on whose predictions neighbours agree most beyond chance."""
    require(
        len(target.shape) == 1,
        "The selection 'neighbours' needs vectors that stay as they are: give features, or train the head.",
    )
    rows = sampled(len(target))
    near = neighbours(source, target, rows, scaled)

    def agreed(outputs: DomainOutputs) -> float:
        return near.beyond_chance(outputs.logits.argmax(dim=1).cpu().numpy()[rows])

    return Rule(NEIGHBOURS, agreed, features=False)


def _flat(rows: Tensor) -> Tensor:
    return rows.reshape(len(rows), -1).to(torch.float32)
