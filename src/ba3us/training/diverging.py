"""Numbers that go wrong: at which update, in which term of the loss, and what is left to look at."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from ba3us.errors import UserError
from ba3us.methods.base import Step

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
            f"{self.happened}{kept}: lower learning_rate, scale the inputs, or try again with --on-nan retry."
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
