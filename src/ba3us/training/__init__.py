"""Training: the one loop, its configuration, checkpoints and progress."""

from ba3us.training.checkpoints import seeded
from ba3us.training.evaluation import Evaluation, Result, SelectionRule
from ba3us.training.loop import Execution, Trainer, TrainingStep
from ba3us.training.monitoring import Callback, ProgressBar, TensorBoard, TrainingMonitor

__all__ = [
    "Callback",
    "Evaluation",
    "Execution",
    "ProgressBar",
    "Result",
    "SelectionRule",
    "TensorBoard",
    "Trainer",
    "TrainingMonitor",
    "TrainingStep",
    "seeded",
]
