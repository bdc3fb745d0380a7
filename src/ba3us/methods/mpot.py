"""m-POT: partial transport within a batch, which moves only a share of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ba3us.methods.base import MethodInfo, Step
from ba3us.methods.options import PositiveShare
from ba3us.methods.ot import FARTHEST, NOTE, PUBLISHED, Transport, TransportOptions, pot, uniform
from ba3us.methods.registry import register


@dataclass(frozen=True, kw_only=True)
class MPOTOptions(TransportOptions):
    """Settings of m-POT: the share of rows moved grows from `first_mass` to `mass` over half the steps."""

    mass: PositiveShare = 0.325
    first_mass: PositiveShare = 0.01


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
    """Partial transport: only the cheapest share of the mass is moved."""

    Options = MPOTOptions
    options: MPOTOptions

    def mass(self, step: Step) -> float:
        """The share of rows to be moved."""
        c = self.options
        return c.first_mass + (c.mass - c.first_mass) * min(1.0, step.number / max(1.0, step.horizon / 2))

    def figures(self, step: Step) -> dict[str, float]:
        """The share of rows moved."""
        return {"mass": self.mass(step)}

    def plan(self, cost: np.ndarray, step: Step) -> np.ndarray:
        """Partial transport, entropic or (ε = 0) exact."""
        solvers, weights, epsilon = pot().partial, uniform(cost), self.options.regularisation
        mass = min(self.mass(step), *(side.sum() for side in weights))  # equal shares add up to 1 but for a bit
        if epsilon == 0:
            return solvers.partial_wasserstein(*weights, cost, m=mass)
        # only differences of costs count; the original runs 1000 sweeps, most of which change nothing
        cost = np.minimum(cost - cost.min(), FARTHEST * epsilon)
        return solvers.entropic_partial_wasserstein(*weights, cost, epsilon, m=mass, stopThr=1e-8)
