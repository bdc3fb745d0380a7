"""A progress bar with the figures that matter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.errors import LiveError
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ba3us.training.hooks import Hook

if TYPE_CHECKING:
    from ba3us.methods.base import Step
    from ba3us.training.loop import Trainer
    from ba3us.training.result import Evaluation

_SHOWN = {"loss": "loss {:.3f}", "effective_classes": "classes {:.1f}", "borrowed": "borrowed {:d}"}


class ProgressBar(Hook):
    """One bar over the updates of all phases: phase, loss, target entropy, effective classes, borrowed.

    It goes to the standard error, so that a command's output stays clean. Nothing is written where that is
    no terminal, unless `force` says so; then a line is left behind at the end.

    Parameters
    ----------
    console : Console, optional
        Where to draw instead.
    force : bool
        Draw even if the console is no terminal.
    title : str
        What to write before the phase (a method's name, a seed).
    """

    def __init__(self, console: Console | None = None, *, force: bool = False, title: str = "") -> None:
        self.console = console or Console(stderr=True)
        self.force = force
        self.title = title
        self._progress: Progress | None = None

    def on_start(self, trainer: Trainer) -> None:
        """Draw the empty bar."""
        self._stop()
        if not (self.force or self.console.is_terminal):
            return
        phases = trainer.recipe.phases
        self._offsets = {p.name: sum(q.steps for q in phases[:i]) for i, p in enumerate(phases)}
        self._figures: dict[str, str] = {}
        progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[figures]}", markup=False),
            console=self.console,
            redirect_stdout=False,  # what a command prints may be piped on
            refresh_per_second=4,
        )
        total = sum(p.steps for p in phases)
        self._task: TaskID = progress.add_task(self._label(phases[0].name), total=total, figures="")
        try:
            progress.start()
        except LiveError:  # another bar holds this console: let it be
            return
        self._progress = progress

    def on_step(self, trainer: Trainer, step: Step) -> None:
        """Move on."""
        if self._progress is not None:
            done = self._offsets[step.phase] + step.number + 1
            self._progress.update(self._task, completed=done, description=self._label(step.phase))

    def on_row(self, trainer: Trainer, row: dict[str, Any]) -> None:
        """Show the row's figures."""
        if self._progress is not None:
            for name, text in _SHOWN.items():
                if name in row:
                    self._figures[name] = text.format(row[name])
            self._show()

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        """Show the target's mean entropy."""
        if self._progress is not None:
            self._figures["entropy"] = f"target entropy {evaluation.scores['entropy']:.3f}"
            self._show()

    def on_end(self, trainer: Trainer) -> None:
        """Give the terminal back, also when training stops early."""
        self._stop()

    def _label(self, phase: str) -> str:
        return f"{self.title} {phase}".strip()

    def _show(self) -> None:
        assert self._progress is not None
        order = ("loss", "entropy", "effective_classes", "borrowed")
        text = " · ".join(self._figures[name] for name in order if name in self._figures)
        self._progress.update(self._task, figures=text)

    def _stop(self) -> None:
        if self._progress is not None:
            progress, self._progress = self._progress, None
            progress.stop()
