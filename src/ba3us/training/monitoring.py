"""What TensorBoard shows of a training: losses, ramps and label-free scores over the updates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from ba3us import scores
from ba3us.errors import UserError, optional_import
from ba3us.methods.base import Step
from ba3us.progress import Bar, bar
from ba3us.training.evaluation import Evaluation

if TYPE_CHECKING:
    from lightning_fabric.loggers import TensorBoardLogger

    from ba3us.methods.base import Step
    from ba3us.training.evaluation import Evaluation
    from ba3us.training.loop import Trainer


# --- hooks ------------------------------------------------------------------------------------------------
# Points where something may look on as training goes by.


class TrainingWarning(NamedTuple):
    """What an onlooker noticed, in a few words for a line of progress, and in a sentence."""

    short: str
    said: str


class Callback:
    """Base of onlookers; every method does nothing. A hook reads, it never steers."""

    def on_start(self, trainer: Trainer) -> None:
        """Before the first update."""

    def on_gradients(self, trainer: Trainer, step: Step) -> None:
        """After backward, before the optimiser."""

    def on_log(self, trainer: Trainer, row: dict[str, Any]) -> None:
        """After a row was added to the history."""

    def on_step(self, trainer: Trainer, step: Step) -> None:
        """After an update."""

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        """After the whole target was predicted."""

    def on_end(self, trainer: Trainer) -> None:
        """After the last update, or when training stops early."""


# --- collapse ---------------------------------------------------------------------------------------------
# Predictions that fall onto few classes: noticed from what a run says of the target, without its labels.


ON_COLLAPSE = ("continue", "stop")
_FEW = 2.0  # effective classes, below which predictions have collapsed, or the target holds one or two classes
_LEFT = 0.4  # of the largest number of effective classes that was seen
_LOOKS = 2  # in a row: a collapse that passes is none


def collapsed(evaluations: Sequence[Evaluation]) -> TrainingWarning | None:
    """Whether the last looks at the target, of phases that adapt, have all but few classes lost."""
    looks = [each for each in evaluations if each.candidate]
    if len(looks) < _LOOKS:
        return None
    spread, classes = [_effective(each) for each in looks], len(looks[0].mean_probabilities)
    least = max(min(_FEW, classes / 2), _LEFT * max(spread))
    if max(spread[-_LOOKS:]) >= least:
        return None
    return TrainingWarning(
        "predictions collapse",
        f"At update {looks[-1].step} predictions had fallen onto {spread[-1]:.1f} effective classes of "
        f"{classes} ({max(spread):.1f} at the most): unless the target holds so few, they have collapsed.",
    )


def _effective(evaluation: Evaluation) -> float:
    return scores.effective_classes(torch.from_numpy(np.bincount(evaluation.predictions)))


# --- diverging --------------------------------------------------------------------------------------------
# Numbers that go wrong: at which update, in which term of the loss, and what is left to look at.


ON_NAN = ("stop", "retry")
SMALLER = 0.5  # the learning rate of another try, times that of the one before
MOST_TRIES = 5


class DivergedError(UserError):
    """A loss, or what the network says of the target, is no longer a number."""

    def __init__(self, what: str, value: float, step: Step) -> None:
        self.what, self.value, self.step = what, value, step
        self.saved: Path | None = None
        super().__init__(what)

    @property
    def happened(self) -> str:
        """What went wrong, and when."""
        return f"{self.what} became {self.value} at update {self.step.number} of phase {self.step.phase!r}"

    def __str__(self) -> str:
        kept = "" if self.saved is None else f" (the state then is in {self.saved})"
        return (
            f"{self.happened}{kept}: lower learning_rate, scale the inputs, or try again with `on_nan='retry'`."
        )


class _Kept(NamedTuple):
    step: Step
    loss: Tensor
    terms: dict[str, Tensor]


class Terms:
    """The loss's terms since the history's last row: looked at only for a reason, as a device may wait."""

    def __init__(self) -> None:
        self._kept: list[_Kept] = []

    def keep(self, step: Step, loss: Tensor, terms: dict[str, Tensor]) -> None:
        """Remember an update's."""
        self._kept.append(_Kept(step, loss.detach(), terms))

    def checked(self) -> float:
        """The last loss, if it is a number; else the first update and term that were none are the error."""
        last = float(self._kept[-1].loss)
        if not math.isfinite(last):
            raise self.first_wrong()
        self._kept.clear()
        return last

    def check(self) -> None:
        """As :meth:`checked`, where there may be none."""
        if self._kept:
            self.checked()

    def first_wrong(self) -> DivergedError:
        """The error that names where it began."""
        for kept in self._kept:
            values = {name: float(term) for name, term in kept.terms.items()}
            wrong = [name for name, value in values.items() if not math.isfinite(value)]
            if wrong:
                named = " and ".join(map(repr, wrong))
                of = "term" if len(wrong) == 1 else "terms"
                return DivergedError(f"The {of} {named} of the loss", values[wrong[0]], kept.step)
        last = self._kept[-1]  # terms that are too large together
        return DivergedError("The sum of the loss's terms", float(last.loss), last.step)


def require_numbers(value: float, what: str, step: Step) -> None:
    """An error unless `value` is finite."""
    if not math.isfinite(value):
        raise DivergedError(what, value, step)


def another_try(error: DivergedError, position: str, rate: float) -> str:
    """What a run says of having gone back."""
    return f"{error.happened}: went on from {position} at {rate:g} times the learning rate."


# --- watch ------------------------------------------------------------------------------------------------
# What goes wrong while numbers stay finite, read from the rows of the history; a function per symptom.


Row = dict[str, Any]
_WINDOW = 10  # rows in a row: a symptom that passes is none
_ONE_CLASS = 1.05  # effective classes, below which the weights have one class or none
_SATURATED = 0.01  # of its first value, which is that of guessing


def vanished_weights(first: Row, recent: Sequence[Row]) -> TrainingWarning | None:
    """Class weights that have left all classes but one, or all: the others teach nothing any more."""
    kept = [row.get("shared_classes", row.get("effective_classes")) for row in recent]
    if not all(count is not None and count < _ONE_CLASS for count in kept):
        return None
    left = "one class alone" if kept[-1] else "no class at all"
    return TrainingWarning(
        "class weights vanish",
        f"From update {recent[0]['step']} on the class weights stood on {left}, so that the "
        "others were no longer learnt: unless the target holds one class, do not trust it.",
    )


def saturated_discriminator(first: Row, recent: Sequence[Row]) -> TrainingWarning | None:
    """An adversary that tells the domains apart without a mistake: its gradient is gone, and nothing aligns."""
    start = first.get("alignment", 0.0) if "lambda" in first else 0.0
    if start <= 0 or not all(row["alignment"] < _SATURATED * start for row in recent):
        return None
    return TrainingWarning(
        "discriminator saturated",
        f"From update {recent[0]['step']} on the discriminator told source and target apart without a mistake, "
        "so that nothing drew them together: scale the inputs, or lower learning_rate.",
    )


CHECKS: tuple[Callable[[Row, Sequence[Row]], TrainingWarning | None], ...] = (
    vanished_weights,
    saturated_discriminator,
)


class TrainingMonitor(Callback):
    """Looks at every row for symptoms; each is noticed once, and shown by the trainer from then on."""

    def on_start(self, trainer: Trainer) -> None:
        """A run that goes on has rows already."""
        self._look_back(trainer)

    def on_log(self, trainer: Trainer, row: Row) -> None:
        """Look at the last rows."""
        self._look(trainer, len(trainer.rows))

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        """Look at the classes that are predicted."""
        self._notice(trainer, collapsed(trainer.evaluations))

    def on_end(self, trainer: Trainer) -> None:
        """Rows may have been given up on the way: what remains is what the ones that are left show."""
        self._look_back(trainer)

    def _look_back(self, trainer: Trainer) -> None:
        trainer.noticed.clear()
        self._first: dict[str, Row] = {}
        for end in range(1, len(trainer.rows) + 1):
            self._look(trainer, end)
        for end in range(1, len(trainer.evaluations) + 1):
            self._notice(trainer, collapsed(trainer.evaluations[:end]))

    def _look(self, trainer: Trainer, end: int) -> None:
        phase = trainer.rows[end - 1]["phase"]
        first = self._first.setdefault(phase, trainer.rows[end - 1])
        recent = trainer.rows[max(0, end - _WINDOW) : end]
        if len(recent) < _WINDOW or recent[0]["phase"] != phase:
            return
        for symptom in CHECKS:
            self._notice(trainer, symptom(first, recent))

    @staticmethod
    def _notice(trainer: Trainer, seen: TrainingWarning | None) -> None:
        if seen is not None:
            trainer.noticed.setdefault(seen.short, seen.said)


# --- progress ---------------------------------------------------------------------------------------------
# Progress of a run, with the figures that matter.


_SHOWN = {
    "loss": "loss {:.3f}",
    "target_entropy": "target entropy {:.3f}",
    "effective_classes": "classes {:.1f}",
    "borrowed": "borrowed {:d}",
}


class ProgressBar(Callback):
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

    def on_log(self, trainer: Trainer, row: dict[str, Any]) -> None:
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


# --- tensorboard ------------------------------------------------------------------------------------------
# What TensorBoard shows of a training: losses, ramps and label-free scores over the updates.


class TensorBoard(Callback):
    """Writes through Fabric's logger; each training it looks on at has a folder of its own below `folder`."""

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
        """Begin a folder, named after the method."""
        from lightning_fabric.loggers import TensorBoardLogger

        name = type(trainer.method).__name__.lower()
        free = next(n for n in itertools.count(1) if not (self.folder / f"{name}-{n}").exists())
        self._logger = TensorBoardLogger(self.folder, name=None, version=f"{name}-{free}")

    def on_log(self, trainer: Trainer, row: dict[str, Any]) -> None:
        """The figures of an update."""
        figures = {key: value for key, value in row.items() if isinstance(value, int | float) and key != "step"}
        self._log(trainer, row["phase"], row["step"], "update", figures)

    def on_evaluation(self, trainer: Trainer, evaluation: Evaluation) -> None:
        """The target's label-free scores."""
        self._log(trainer, evaluation.phase, evaluation.step, "target", evaluation.scores)

    def on_end(self, trainer: Trainer) -> None:
        """Close the file."""
        if self._logger is not None:
            self._logger.finalize("success")

    def _log(self, trainer: Trainer, phase: str, step: int, group: str, figures: dict[str, Any]) -> None:
        assert self._logger is not None
        named = {f"{group}/{name}": value for name, value in figures.items()}
        self._logger.log_metrics(named, trainer.recipe.before(phase) + step)
