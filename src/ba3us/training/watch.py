"""What goes wrong while numbers stay finite, read from the rows of the history; a function per symptom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ba3us.training.collapse import collapsed
from ba3us.training.hooks import Hook, Symptom

if TYPE_CHECKING:
    from ba3us.training.loop import Trainer
    from ba3us.training.result import Evaluation

Row = dict[str, Any]
_WINDOW = 10  # rows in a row: a symptom that passes is none
_ONE_CLASS = 1.05  # effective classes, below which the weights have one class or none
_SATURATED = 0.01  # of its first value, which is that of guessing


def vanished_weights(first: Row, recent: Sequence[Row]) -> Symptom | None:
    """Class weights that have left all classes but one, or all: the others teach nothing any more."""
    kept = [row.get("shared_classes", row.get("effective_classes")) for row in recent]
    if not all(count is not None and count < _ONE_CLASS for count in kept):
        return None
    left = "one class alone" if kept[-1] else "no class at all"
    return Symptom(
        "class weights vanish",
        f"From update {recent[0]['step']} on the class weights stood on {left}, so that the "
        "others were no longer learnt: unless the target holds one class, do not trust it.",
    )


def saturated_discriminator(first: Row, recent: Sequence[Row]) -> Symptom | None:
    """An adversary that tells the domains apart without a mistake: its gradient is gone, and nothing aligns."""
    start = first.get("alignment", 0.0) if "lambda" in first else 0.0
    if start <= 0 or not all(row["alignment"] < _SATURATED * start for row in recent):
        return None
    return Symptom(
        "discriminator saturated",
        f"From update {recent[0]['step']} on the discriminator told source and target apart without a mistake, "
        "so that nothing drew them together: scale the inputs, or lower learning_rate.",
    )


SYMPTOMS: tuple[Callable[[Row, Sequence[Row]], Symptom | None], ...] = (
    vanished_weights,
    saturated_discriminator,
)


class Watch(Hook):
    """Looks at every row for symptoms; each is noticed once, and shown by the trainer from then on."""

    def on_start(self, trainer: Trainer) -> None:
        """A run that goes on has rows already."""
        self._look_back(trainer)

    def on_row(self, trainer: Trainer, row: Row) -> None:
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
        for symptom in SYMPTOMS:
            self._notice(trainer, symptom(first, recent))

    @staticmethod
    def _notice(trainer: Trainer, seen: Symptom | None) -> None:
        if seen is not None:
            trainer.noticed.setdefault(seen.short, seen.said)
