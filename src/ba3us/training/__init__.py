"""Training: the one loop, its configuration, checkpoints and progress."""

from ba3us.training.checkpoints import seeded
from ba3us.training.evaluation import Evaluation, Result, Rule
from ba3us.training.loop import Execution, Trainer, TrainingStep
from ba3us.training.monitoring import Hook, ProgressBar, TensorBoard, Watch

__all__ = [
    "Evaluation",
    "Execution",
    "Hook",
    "ProgressBar",
    "Result",
    "Rule",
    "TensorBoard",
    "Trainer",
    "TrainingStep",
    "Watch",
    "seeded",
]
