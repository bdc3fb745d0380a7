"""Progress of a run, with the figures that matter."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ba3us.progress import Bar, bar
from ba3us.training.hooks import Hook

if TYPE_CHECKING:
    from ba3us.methods.base import Step
    from ba3us.training.loop import Trainer
    from ba3us.training.result import Evaluation

_SHOWN = {
    "loss": "loss {:.3f}",
    "target_entropy": "target entropy {:.3f}",
    "effective_classes": "classes {:.1f}",
    "borrowed": "borrowed {:d}",
}


class ProgressBar(Hook):
    """One bar over the updates of all phases: phase, loss, target entropy, effective classes, borrowed.

    Parameters
    ----------
    console : Console, optional
        Where to draw instead of the standard error.
    title : str
        What to write before the phase (a method's name, a seed).
    """

    def __init__(self, console: Console | None = None, *, title: str = "") -> None:
        self.console, self.title = console, title
        self._open = ExitStack()
        self._bar = Bar()
        self._figures: dict[str, Any] = {}

    def on_start(self, trainer: Trainer) -> None:
        """Draw the empty bar."""
        self._open.close()
        phases = trainer.recipe.phases
        self._figures = {}
        total = sum(p.steps for p in phases)
        self._bar = self._open.enter_context(bar(self._label(phases[0].name), total, console=self.console))

    def on_step(self, trainer: Trainer, step: Step) -> None:
        """Move on."""
        self._show(trainer, step.phase, step.number + 1)

    def on_row(self, trainer: Trainer, row: dict[str, Any]) -> None:
        """Take the row's figures."""
        self._figures |= row

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        """Show the target's mean entropy."""
        self._figures["target_entropy"] = evaluation.scores["entropy"]
        self._show(trainer, evaluation.phase, evaluation.step)

    def on_end(self, trainer: Trainer) -> None:
        """Give the terminal back, also when training stops early."""
        self._open.close()

    def _label(self, phase: str) -> str:
        return f"{self.title} {phase}".strip()

    def _show(self, trainer: Trainer, phase: str, done: int) -> None:
        shown = [text.format(self._figures[name]) for name, text in _SHOWN.items() if name in self._figures]
        shown += [f"rate × {trainer.rate:g}"] if trainer.rate != 1 else []
        shown += trainer.noticed
        self._bar.update(trainer.recipe.before(phase) + done, " · ".join(shown), self._label(phase))
