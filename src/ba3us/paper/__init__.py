"""The paper's tables and figures: what each needs (plans), how figures are drawn.

>>> from ba3us.paper import plan
>>> plan("figure4").on("caltech107-office10", ["C->W"]).parts[0].tasks
('C->W',)
"""

from ba3us.paper.figures import (
    accuracy_by_classes,
    class_weights,
    convergence,
    embedding,
    framework,
    in_plane,
    suppressed,
    uncertainty,
)
from ba3us.paper.produce import PLANS, Part, Plan, Row, plan

__all__ = [
    "PLANS",
    "Part",
    "Plan",
    "Row",
    "accuracy_by_classes",
    "class_weights",
    "convergence",
    "embedding",
    "framework",
    "in_plane",
    "plan",
    "suppressed",
    "uncertainty",
]
