"""Training: the one loop, its configuration, checkpoints and progress."""

from ba3us.training.execution import Execution
from ba3us.training.hooks import Hook
from ba3us.training.loop import Trainer
from ba3us.training.progress import ProgressBar
from ba3us.training.result import Evaluation, Result
from ba3us.training.rules import Rule
from ba3us.training.seeding import seeded
from ba3us.training.step import TrainingStep
from ba3us.training.tensorboard import TensorBoard
from ba3us.training.watch import Watch

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
