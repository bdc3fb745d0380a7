"""JUMBOT and m-POT: optimal transport from source to target samples within a batch, solved by POT.

Both minimise CE + η3·Σ π∘M with M_ij = η1‖f_i - f_j‖² - η2 log p_j[y_i]. The plan π is a constant for the
gradient; the methods differ in how it is found. It couples the samples of a batch, so each of several processes
has its own plan.
"""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ba3us import losses
from ba3us.methods.base import Method, MethodInfo, Outputs, Recipe, Step
from ba3us.methods.options import NonNegative, Positive, PositiveFraction
from ba3us.methods.registry import BUDGET, Published, register
from ba3us.methods.shared import SourceRiskOptions, source_risk

FARTHEST = 600.0  # a cost, in units of ε: exp(-600) is almost 0, and above 0 in float64
NOTE = "Checked against BenchmarkPDA's numbers; its settings are those of Office-Home."
PUBLISHED = {"office-home": Published({**BUDGET["office-home"], "batch_size": 65}, note="From BenchmarkPDA.")}


@dataclass(frozen=True, kw_only=True)
class TransportOptions(SourceRiskOptions):
    """Settings of transport methods.

    `feature_weight`, `label_weight` and `transport_weight` are η1, η2, η3; `regularisation` is that of the
    plan's entropy.
    """

    feature_weight: NonNegative = 0.03
    label_weight: NonNegative = 7.5
    transport_weight: NonNegative = 1.0
    regularisation: NonNegative = 0.5


class Transport(Method):
    """min  CE + η3·Σ π∘M, by the plan of a subclass."""

    options: TransportOptions

    def plan(self, cost: np.ndarray, step: Step) -> np.ndarray:
        """π for a cost matrix, with uniform weights on both sides."""
        raise NotImplementedError

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and the cost of the plan."""
        c, source, target = self.options, outputs.source, outputs.target
        assert source.labels is not None
        cost = losses.transport_cost(
            source.features, target.features, source.labels, target.logits, c.feature_weight, c.label_weight
        )
        with warnings.catch_warnings():  # POT warns about its own defaults
            warnings.simplefilter("ignore")
            plan = self.plan(cost.detach().double().cpu().numpy(), step)
        transported = (torch.as_tensor(plan).to(cost) * cost).sum()
        return source_risk(source, c) | {"transport": c.transport_weight * transported}


def uniform(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equal weights for the source samples, and for the target samples."""
    rows, columns = cost.shape
    return np.full(rows, 1 / rows), np.full(columns, 1 / columns)


@dataclass(frozen=True, kw_only=True)
class JumbotOptions(TransportOptions):
    """Settings of JUMBOT: `marginal_penalty` is the cost of leaving a sample out."""

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
    """Unbalanced transport: samples far from all others may be left out, at a cost."""

    Options = JumbotOptions
    options: JumbotOptions

    def recipe(self) -> Recipe:
        """Source batches are class-balanced."""
        return dataclasses.replace(super().recipe(), balanced_source=True)

    def plan(self, cost: np.ndarray, step: Step) -> np.ndarray:
        """Unbalanced Sinkhorn with the kernel exp(-M/ε), as POT had it when the paper was written."""
        from ot.unbalanced import sinkhorn_knopp_unbalanced

        c = self.options
        cost = np.minimum(cost, FARTHEST * c.regularisation)
        return sinkhorn_knopp_unbalanced(
            *uniform(cost), cost, c.regularisation, c.marginal_penalty, reg_type="entropy"
        )


@dataclass(frozen=True, kw_only=True)
class MPOTOptions(TransportOptions):
    """Settings of m-POT: the moved proportion grows from `first_mass` to `mass` over half the steps."""

    mass: PositiveFraction = 0.325
    first_mass: PositiveFraction = 0.01


@register(
    "m-pot",
    MethodInfo(
        title="m-POT",
        reference="Nguyen et al., Improving Mini-batch Optimal Transport via Partial Transportation, ICML 2022",
        setting="both",
        losses="checked",
        needs=("POT",),
        note=NOTE,
    ),
    protocols=PUBLISHED,
)
class MPOT(Transport):
    """Partial transport: only the cheapest part of the mass is moved."""

    Options = MPOTOptions
    options: MPOTOptions

    def mass(self, step: Step) -> float:
        """The proportion of samples to move."""
        c = self.options
        return c.first_mass + (c.mass - c.first_mass) * min(1.0, step.number / max(1.0, step.horizon / 2))

    def log_scalars(self, step: Step) -> dict[str, float]:
        """The proportion of samples moved."""
        return {"mass": self.mass(step)}

    def plan(self, cost: np.ndarray, step: Step) -> np.ndarray:
        """Partial transport, entropic or (ε = 0) exact."""
        from ot import partial

        weights, epsilon = uniform(cost), self.options.regularisation
        # equal weights add up to 1 except for rounding
        mass = min(self.mass(step), *(side.sum() for side in weights))
        if epsilon == 0:
            return partial.partial_wasserstein(*weights, cost, m=mass)
        # only differences of costs count; the original runs 1000 sweeps, most of which change nothing
        cost = np.minimum(cost - cost.min(), FARTHEST * epsilon)
        return partial.entropic_partial_wasserstein(*weights, cost, epsilon, m=mass, stopThr=1e-8)
