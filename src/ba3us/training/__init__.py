"""Training: the one loop, its configuration, checkpoints and progress."""

from ba3us.training.config import RunConfig
from ba3us.training.hooks import Hook
from ba3us.training.loop import Trainer, TrainingStep
from ba3us.training.progress import ProgressBar
from ba3us.training.result import Evaluation, Result

__all__ = [
    "Evaluation",
    "Hook",
    "ProgressBar",
    "Result",
    "RunConfig",
    "Trainer",
    "TrainingStep",
]
