"""What methods share that move source rows to target rows within a batch: optimal transport, solved by POT.

They minimise CE + η3·Σ π∘M with M_ij = η1‖f_i - f_j‖² - η2 log p_j[y_i] and the plan π held fixed, and
differ in which plan. It couples the rows of a batch, so with several processes each has its own.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from ba3us import losses
from ba3us.errors import UserError
from ba3us.methods.base import Method, Outputs, Step
from ba3us.methods.options import NonNegative
from ba3us.methods.parts import SourceRiskOptions, source_risk
from ba3us.methods.published import BUDGET, Published
from ba3us.nn import Network

FARTHEST = 600.0  # exp(-600) is as good as never and still above zero in float64
NOTE = "Checked against BenchmarkPDA's numbers; its settings are those of Office-Home."
PUBLISHED = {"office-home": Published({**BUDGET["office-home"], "batch_size": 65}, note="From BenchmarkPDA.")}


def pot() -> ModuleType:
    """The package POT, loaded when it is needed."""
    try:
        import ot
    except ImportError as error:
        raise UserError("JUMBOT and m-POT need the package POT, which is missing: pip install POT.") from error
    return ot


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
    """min  CE + η3·Σ π∘M."""

    Options = TransportOptions
    options: TransportOptions

    def __init__(self, options: TransportOptions, network: Network) -> None:
        super().__init__(options, network)
        pot()  # say so now if it is missing

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
        with warnings.catch_warnings():  # POT's remarks on its own defaults
            warnings.simplefilter("ignore")
            plan = self.plan(cost.detach().double().cpu().numpy(), step)
        transported = (torch.as_tensor(plan).to(cost) * cost).sum()
        return source_risk(source, c) | {"transport": c.transport_weight * transported}


def uniform(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same weight for every source row, and for every target row."""
    rows, columns = cost.shape
    return np.full(rows, 1 / rows), np.full(columns, 1 / columns)
