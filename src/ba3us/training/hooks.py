"""Points where something may look on as training goes by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ba3us.methods.base import Step
    from ba3us.training.loop import Trainer
    from ba3us.training.result import Evaluation


class Symptom(NamedTuple):
    """What an onlooker noticed, in a few words for a line of progress, and in a sentence."""

    short: str
    said: str


class Hook:
    """Base of onlookers; every method does nothing. A hook reads, it never steers."""

    def on_start(self, trainer: Trainer) -> None:
        """Before the first update."""

    def on_gradients(self, trainer: Trainer, step: Step) -> None:
        """After backward, before the optimiser."""

    def on_row(self, trainer: Trainer, row: dict[str, Any]) -> None:
        """After a row was added to the history."""

    def on_step(self, trainer: Trainer, step: Step) -> None:
        """After an update."""

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        """After the whole target was predicted."""

    def on_end(self, trainer: Trainer) -> None:
        """After the last update, or when training stops early."""
