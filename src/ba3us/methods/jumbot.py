"""JUMBOT: unbalanced transport within a batch, which may leave rows out."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from ba3us.methods.base import MethodInfo, Recipe, Step
from ba3us.methods.options import NonNegative, Positive
from ba3us.methods.ot import FARTHEST, NOTE, PUBLISHED, Transport, TransportOptions, pot, uniform
from ba3us.methods.registry import register


@dataclass(frozen=True, kw_only=True)
class JumbotOptions(TransportOptions):
    """Settings of JUMBOT: `marginal_penalty` is what it costs a row to be left out."""

    feature_weight: NonNegative = 0.003
    label_weight: NonNegative = 0.75
    transport_weight: NonNegative = 10.0
    regularisation: Positive = 0.01
    marginal_penalty: Positive = 0.06


@register(
    "jumbot",
    MethodInfo(
        title="JUMBOT",
        reference="Fatras et al., Unbalanced minibatch Optimal Transport, ICML 2021",
        setting="both",
        losses="checked",
        needs=("POT",),
        note=NOTE + " Its plan is that of POT up to 0.9.1, which the paper used.",
    ),
    protocols=PUBLISHED,
)
class Jumbot(Transport):
    """Unbalanced transport: rows that are far from everything may be left out, at a price."""

    Options = JumbotOptions
    options: JumbotOptions

    def recipe(self) -> Recipe:
        """Source batches are class-balanced."""
        return dataclasses.replace(super().recipe(), balanced_source=True)

    def plan(self, cost: np.ndarray, step: Step) -> np.ndarray:
        """Unbalanced Sinkhorn with the kernel exp(-M/ε), as POT had it when the paper was written."""
        c = self.options
        return pot().unbalanced.sinkhorn_knopp_unbalanced(
            *uniform(cost),
            np.minimum(cost, FARTHEST * c.regularisation),
            c.regularisation,
            c.marginal_penalty,
            reg_type="entropy",
        )
