"""JUMBOT and m-POT: optimal transport between the source and target rows of a batch, solved by POT.

Both minimise CE + η3·Σ π∘M with M_ij = η1‖f_i - f_j‖² - η2 log p_j[y_i] and the plan π held fixed; they
differ in which plan. A plan couples the rows of a batch, so with several processes each has its own.
"""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from ba3us import losses
from ba3us.errors import UserError
from ba3us.methods.base import Method, MethodInfo, Outputs, Recipe, Step
from ba3us.methods.parts import SourceRiskConfig, source_risk
from ba3us.methods.published import BUDGET, Published
from ba3us.methods.registry import register
from ba3us.nn import Network

_FARTHEST = 600.0  # exp(-600) is as good as never and still above zero in float64
_NOTE = "Checked against BenchmarkPDA's numbers; its settings are those of Office-Home."
_PUBLISHED = {"office-home": Published({**BUDGET["office-home"], "batch_size": 65}, note="From BenchmarkPDA.")}


def _pot() -> ModuleType:
    try:
        import ot
    except ImportError as error:
        raise UserError("JUMBOT and m-POT need the package POT, which is missing: pip install POT.") from error
    return ot


@dataclass(frozen=True, kw_only=True)
class TransportConfig(SourceRiskConfig):
    """Settings of transport methods.

    `feature_weight`, `label_weight` and `transport_weight` are η1, η2, η3; `regularisation` is that of the
    plan's entropy.
    """

    feature_weight: float = 0.03
    label_weight: float = 7.5
    transport_weight: float = 1.0
    regularisation: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("feature_weight", "label_weight", "transport_weight", "regularisation"):
            self.check(name, getattr(self, name) >= 0, "0 or more")


class Transport(Method):
    """min  CE + η3·Σ π∘M."""

    Config = TransportConfig
    config: TransportConfig

    def __init__(self, config: TransportConfig, network: Network) -> None:
        super().__init__(config, network)
        _pot()  # say so now if it is missing

    def plan(self, cost: np.ndarray, step: Step) -> np.ndarray:
        """π for a cost matrix, with uniform weights on both sides."""
        raise NotImplementedError

    def losses(self, outputs: Outputs, step: Step) -> dict[str, Tensor]:
        """Cross-entropy and the cost of the plan."""
        c, source, target = self.config, outputs.source, outputs.target
        assert source.labels is not None
        cost = losses.transport_cost(
            source.features, target.features, source.labels, target.logits, c.feature_weight, c.label_weight
        )
        with warnings.catch_warnings():  # POT's remarks on its own defaults
            warnings.simplefilter("ignore")
            plan = self.plan(cost.detach().double().cpu().numpy(), step)
        transported = (torch.as_tensor(plan).to(cost) * cost).sum()
        return source_risk(source, c) | {"transport": c.transport_weight * transported}


@dataclass(frozen=True, kw_only=True)
class JumbotConfig(TransportConfig):
    """Settings of JUMBOT: `marginal_penalty` is what it costs a row to be left out."""

    feature_weight: float = 0.003
    label_weight: float = 0.75
    transport_weight: float = 10.0
    regularisation: float = 0.01
    marginal_penalty: float = 0.06

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("regularisation", "marginal_penalty"):
            self.check(name, getattr(self, name) > 0, "above 0")


@register(
    "jumbot",
    MethodInfo(
        title="JUMBOT",
        reference="Fatras et al., Unbalanced minibatch Optimal Transport, ICML 2021",
        setting="both",
        fidelity="faithful",
        needs=("POT",),
        note=_NOTE + " Its plan is that of POT up to 0.9.1, which the paper used.",
    ),
    protocols=_PUBLISHED,
)
class Jumbot(Transport):
    """Unbalanced transport: rows that are far from everything may be left out, at a price."""

    Config = JumbotConfig
    config: JumbotConfig

    def recipe(self) -> Recipe:
        """Source batches are class-balanced."""
        return dataclasses.replace(super().recipe(), balanced_source=True)

    def plan(self, cost: np.ndarray, step: Step) -> np.ndarray:
        """Unbalanced Sinkhorn with the kernel exp(-M/ε), as POT had it when the paper was written."""
        c = self.config
        return _pot().unbalanced.sinkhorn_knopp_unbalanced(
            *_uniform(cost),
            np.minimum(cost, _FARTHEST * c.regularisation),
            c.regularisation,
            c.marginal_penalty,
            reg_type="entropy",
        )


@dataclass(frozen=True, kw_only=True)
class MPOTConfig(TransportConfig):
    """Settings of m-POT: the share of rows moved grows from `first_mass` to `mass` over half the steps."""

    mass: float = 0.325
    first_mass: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("mass", "first_mass"):
            self.check(name, 0 < getattr(self, name) <= 1, "in (0, 1]")


@register(
    "m-pot",
    MethodInfo(
        title="m-POT",
        reference="Nguyen et al., Improving Mini-batch Optimal Transport via Partial Transportation, ICML 2022",
        setting="both",
        fidelity="faithful",
        needs=("POT",),
        note=_NOTE,
    ),
    protocols=_PUBLISHED,
)
class MPOT(Transport):
    """Partial transport: only the cheapest share of the mass is moved."""

    Config = MPOTConfig
    config: MPOTConfig

    def mass(self, step: Step) -> float:
        """The share of rows to be moved."""
        c = self.config
        return c.first_mass + (c.mass - c.first_mass) * min(1.0, step.number / max(1.0, step.horizon / 2))

    def figures(self, step: Step) -> dict[str, float]:
        """The share of rows moved."""
        return {"mass": self.mass(step)}

    def plan(self, cost: np.ndarray, step: Step) -> np.ndarray:
        """Partial transport, entropic or (ε = 0) exact."""
        solvers, mass, epsilon = _pot().partial, self.mass(step), self.config.regularisation
        if epsilon == 0:
            return solvers.partial_wasserstein(*_uniform(cost), cost, m=mass)
        # only differences of costs count; the original runs 1000 sweeps, most of which change nothing
        cost = np.minimum(cost - cost.min(), _FARTHEST * epsilon)
        return solvers.entropic_partial_wasserstein(*_uniform(cost), cost, epsilon, m=mass, stopThr=1e-8)


def _uniform(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = cost.shape
    return np.full(rows, 1 / rows), np.full(columns, 1 / columns)
