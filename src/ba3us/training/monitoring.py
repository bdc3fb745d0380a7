"""Watch a run: callbacks, the progress bar, TensorBoard, and warnings about training that goes wrong.

Losses that become NaN or infinite raise :class:`DivergedError`. What goes wrong while numbers stay finite
(predictions that collapse, class weights that vanish, a saturated discriminator) becomes a warning of the run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from rich.console import Console
from torch import Tensor

from ba3us import scores
from ba3us.errors import UserError, optional_import
from ba3us.methods.base import Step
from ba3us.progress import Bar, bar
from ba3us.training.evaluation import Evaluation

if TYPE_CHECKING:
    from lightning_fabric.loggers import TensorBoardLogger

    from ba3us.training.loop import Trainer

Row = dict[str, Any]  # of the history


class Callback:
    """Base of callbacks; every method does nothing. A callback reads the trainer and changes nothing."""

    def on_start(self, trainer: Trainer) -> None:
        """Before the first step."""

    def on_gradients(self, trainer: Trainer, step: Step) -> None:
        """After backward, before the optimiser."""

    def on_log(self, trainer: Trainer, row: Row) -> None:
        """After a row was added to the history."""

    def on_step(self, trainer: Trainer, step: Step) -> None:
        """After a step."""

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        """After the whole target was predicted."""

    def on_end(self, trainer: Trainer) -> None:
        """After the last step, or when training stops early."""


# --- losses that are NaN or infinite ----------------------------------------------------------------------

ON_NAN = ("stop", "retry")
RETRY_LR_FACTOR = 0.5  # a retry multiplies the learning rate by it
MAX_RETRIES = 5


class DivergedError(UserError):
    """A loss, or an output for the target, is NaN or infinite."""

    def __init__(self, name: str, value: float, step: Step) -> None:
        super().__init__(name, value, step)  # all arguments, so that the error pickles
        self.name, self.value, self.step = name, value, step
        self.state_file: Path | None = None

    @property
    def event(self) -> str:
        """What became NaN or infinite, and when."""
        return f"{self.name} became {self.value} at step {self.step.number} of phase {self.step.phase!r}"

    def __str__(self) -> str:
        saved = "" if self.state_file is None else f" (the state then is in {self.state_file})"
        advice = "lower learning_rate or standardise the inputs; ba3us adapt can also retry: `on_nan='retry'`."
        return f"{self.event}{saved}: {advice}"


def require_finite(value: float, name: str, step: Step) -> None:
    """Raise :class:`DivergedError` if `value` is NaN or infinite."""
    if not math.isfinite(value):
        raise DivergedError(name, value, step)


class LossRecord:
    """The losses since the last row of the history, read late because reading may wait for the device."""

    def __init__(self) -> None:
        self._steps: list[tuple[Step, Tensor, dict[str, Tensor]]] = []

    def add(self, step: Step, loss: Tensor, terms: dict[str, Tensor]) -> None:
        """Store the loss of a step, and its terms."""
        self._steps.append((step, loss.detach(), terms))

    def check(self) -> float | None:
        """The last loss, if there is one; an error names the first step and term that are NaN or infinite."""
        if not self._steps:
            return None
        last_step, last_loss, _ = self._steps[-1]
        loss = float(last_loss)
        if not math.isfinite(loss):
            for step, _, terms in self._steps:
                wrong = {name: float(x) for name, x in terms.items() if not math.isfinite(float(x))}
                if wrong:
                    names, noun = " and ".join(map(repr, wrong)), "term" if len(wrong) == 1 else "terms"
                    raise DivergedError(f"The {noun} {names} of the loss", next(iter(wrong.values())), step)
            raise DivergedError("The sum of the loss's terms", loss, last_step)  # of terms that are finite
        self._steps.clear()
        return loss


# --- warnings about numbers that stay finite ---------------------------------------------------------------

ON_COLLAPSE = ("continue", "stop")
_COLLAPSE_CLASSES = 2.0  # effective classes: fewer are a collapse, or a target of one or two classes
_COLLAPSE_RATIO = 0.4  # of the run's largest number of effective classes: fewer are a collapse
_COLLAPSE_EVALUATIONS = 2  # in a row: a collapse that passes does not count
_WINDOW = 10  # rows of the history in a row: what passes does not count
_VANISHED_CLASSES = 1.05  # effective classes: with fewer, the weights are left with one class or none
_SATURATED_RATIO = 0.01  # of the first adversarial loss, which is that of guessing


class TrainingWarning(NamedTuple):
    """What goes wrong: in a few words for the progress bar, and in a sentence for the run's notes."""

    summary: str
    message: str


def collapsed(evaluations: Sequence[Evaluation]) -> TrainingWarning | None:
    """Whether predictions have fallen onto few classes, in the last evaluations of phases that adapt."""
    candidates = [each for each in evaluations if each.candidate]
    if len(candidates) < _COLLAPSE_EVALUATIONS:
        return None
    effective = [scores.effective_classes(np.bincount(each.predictions)) for each in candidates]
    classes = len(candidates[0].mean_probabilities)
    threshold = max(min(_COLLAPSE_CLASSES, classes / 2), _COLLAPSE_RATIO * max(effective))
    if max(effective[-_COLLAPSE_EVALUATIONS:]) >= threshold:
        return None
    return TrainingWarning(
        "predictions collapse",
        f"At step {candidates[-1].step} predictions had fallen onto {effective[-1]:.1f} effective classes of "
        f"{classes} ({max(effective):.1f} at the most): unless the target holds so few, they have collapsed.",
    )


def vanished_weights(first: Row, recent: Sequence[Row]) -> TrainingWarning | None:
    """Whether the class weights are left with one class or none, so that the others are no longer learned."""
    counts = [row.get("shared_classes", row.get("effective_classes")) for row in recent]
    if not all(count is not None and count < _VANISHED_CLASSES for count in counts):
        return None
    left = "one class alone" if counts[-1] else "no class at all"
    return TrainingWarning(
        "class weights vanish",
        f"From step {recent[0]['step']} on the class weights stood on {left}, so that the others were no "
        "longer learned: unless the target holds one class, do not trust it.",
    )


def saturated_discriminator(first: Row, recent: Sequence[Row]) -> TrainingWarning | None:
    """Whether the discriminator separates the domains without a mistake, so that its gradient is gone."""
    start = first.get("alignment", 0.0) if "lambda" in first else 0.0
    if start <= 0 or not all(row["alignment"] < _SATURATED_RATIO * start for row in recent):
        return None
    return TrainingWarning(
        "discriminator saturated",
        f"From step {recent[0]['step']} on the discriminator told source and target apart without a mistake, "
        "so that nothing drew them together: scale the inputs, or lower learning_rate.",
    )


class TrainingMonitor(Callback):
    """Checks the history and the evaluations, and puts each kind of warning once into ``trainer.warnings``."""

    def on_start(self, trainer: Trainer) -> None:
        """Check the rows and evaluations that a resumed run has already."""
        trainer.warnings.clear()
        self._first: dict[str, Row] = {}  # of each phase
        for end in range(1, len(trainer.history) + 1):
            self._check_rows(trainer, end)
        for end in range(1, len(trainer.evaluations) + 1):
            self._warn(trainer, collapsed(trainer.evaluations[:end]))

    def on_log(self, trainer: Trainer, row: Row) -> None:
        """Check the last rows."""
        self._check_rows(trainer, len(trainer.history))

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        """Check for a collapse."""
        self._warn(trainer, collapsed(trainer.evaluations))

    def on_end(self, trainer: Trainer) -> None:
        """Check again: a retry may have discarded rows that had led to a warning."""
        self.on_start(trainer)

    def _check_rows(self, trainer: Trainer, end: int) -> None:
        phase = trainer.history[end - 1]["phase"]
        first = self._first.setdefault(phase, trainer.history[end - 1])
        recent = trainer.history[max(0, end - _WINDOW) : end]
        if len(recent) < _WINDOW or recent[0]["phase"] != phase:
            return
        for check in (vanished_weights, saturated_discriminator):
            self._warn(trainer, check(first, recent))

    @staticmethod
    def _warn(trainer: Trainer, warning: TrainingWarning | None) -> None:
        if warning is not None:
            trainer.warnings.setdefault(warning.summary, warning.message)


# --- display ------------------------------------------------------------------------------------------------


class ProgressBar(Callback):
    """One bar over the steps of all phases: phase, loss, target entropy, effective classes, borrowed.

    Parameters
    ----------
    console : Console, optional
        Where to draw instead of the standard error.
    title : str
        Text before the phase (a method's name, a seed).
    """

    _FORMATS: ClassVar = {
        "loss": "loss {:.3f}",
        "target_entropy": "target entropy {:.3f}",
        "effective_classes": "classes {:.1f}",
        "borrowed": "borrowed {:d}",
    }

    def __init__(self, console: Console | None = None, *, title: str = "") -> None:
        self.console, self.title = console, title
        self._stack = ExitStack()
        self._bar = Bar()
        self._values: Row = {}

    def on_start(self, trainer: Trainer) -> None:
        """Draw the empty bar."""
        self._stack.close()
        self._values = {}
        phases = trainer.recipe.phases
        total = sum(phase.steps for phase in phases)
        title = f"{self.title} {phases[0].name}".strip()
        self._bar = self._stack.enter_context(bar(title, total, console=self.console))

    def on_step(self, trainer: Trainer, step: Step) -> None:
        """Move on."""
        self._update(trainer, step.phase, step.number + 1)

    def on_log(self, trainer: Trainer, row: Row) -> None:
        """Take the row's values."""
        self._values |= row

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        """Show the target's mean entropy."""
        self._values["target_entropy"] = evaluation.scores["entropy"]
        self._update(trainer, evaluation.phase, evaluation.step)

    def on_end(self, trainer: Trainer) -> None:
        """Release the terminal, also when training stops early."""
        self._stack.close()

    def _update(self, trainer: Trainer, phase: str, steps: int) -> None:
        parts = [f.format(self._values[name]) for name, f in self._FORMATS.items() if name in self._values]
        parts += [f"rate × {trainer.lr_factor:g}"] if trainer.lr_factor != 1 else []
        parts += trainer.warnings
        self._bar.update(
            trainer.recipe.before(phase) + steps, " · ".join(parts), f"{self.title} {phase}".strip()
        )


class TensorBoard(Callback):
    """Logs losses, ramps and label-free scores through Fabric; each run has a folder of its own in `folder`."""

    def __init__(self, folder: str | Path) -> None:
        optional_import("tensorboard", "tensorboard")
        self.folder = Path(folder)
        self._logger: TensorBoardLogger | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"The folder {folder} can't be made ({error.strerror}): choose another with `tensorboard`."
            ) from error

    def on_start(self, trainer: Trainer) -> None:
        """Create a folder, named after the method."""
        from lightning_fabric.loggers import TensorBoardLogger

        name = type(trainer.method).__name__.lower()
        number = next(n for n in itertools.count(1) if not (self.folder / f"{name}-{n}").exists())
        self._logger = TensorBoardLogger(self.folder, name=None, version=f"{name}-{number}")

    def on_log(self, trainer: Trainer, row: Row) -> None:
        """Log the values of a step."""
        values = {key: value for key, value in row.items() if isinstance(value, int | float) and key != "step"}
        self._log(trainer, row["phase"], row["step"], "step", values)

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        """Log the target's label-free scores."""
        self._log(trainer, evaluation.phase, evaluation.step, "target", evaluation.scores)

    def on_end(self, trainer: Trainer) -> None:
        """Close the file."""
        if self._logger is not None:
            self._logger.finalize("success")

    def _log(self, trainer: Trainer, phase: str, step: int, group: str, values: dict[str, float]) -> None:
        assert self._logger is not None
        named = {f"{group}/{name}": value for name, value in values.items()}
        self._logger.log_metrics(named, trainer.recipe.before(phase) + step)
