"""Which evaluation a run keeps: rules that score the outputs for the whole target, without its labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ba3us import scores
from ba3us.errors import UserError, did_you_mean, require
from ba3us.methods.base import DomainOutputs


@dataclass(frozen=True)
class Rule:
    """Scores an evaluation; the largest score is selected, and of equal ones the first (or the `latest`).

    `features` says whether the score looks at those of the outputs; else they are not kept for it.
    """

    name: str
    score: Callable[[DomainOutputs], Any]
    latest: bool = False
    features: bool = True

    def __call__(self, outputs: DomainOutputs) -> float:
        """The score of the outputs for the whole target; larger is better."""
        given = self.score(outputs)
        try:
            value = float(given)
        except (TypeError, ValueError, RuntimeError) as error:
            raise UserError(
                f"The selection rule {self.name!r} gave {type(given).__name__}: it must give a number."
            ) from error
        require(
            math.isfinite(value),
            f"The selection rule {self.name!r} gave {value}: it must give a finite number, larger for better.",
        )
        return value

    def prefers(self, score: float, best: float) -> bool:
        """Whether an evaluation with `score` takes the place of an earlier one with `best`."""
        return score >= best if self.latest else score > best


def _of_logits(name: str, score: Callable[[Tensor], float], sign: int = 1, latest: bool = False) -> Rule:
    """A score of logits as one of outputs."""
    return Rule(name, lambda outputs: sign * score(outputs.logits), latest, features=False)


RULES = {
    rule.name: rule
    for rule in (
        _of_logits("entropy", scores.mean_entropy, -1),  # the paper's
        _of_logits("information-maximisation", scores.information_maximisation),
        _of_logits("diversity", scores.diversity),
        _of_logits("nuclear-norm", scores.nuclear_norm),
        _of_logits("density", lambda logits: scores.neighbourhood_density(logits.softmax(dim=1))),
        _of_logits("last", lambda logits: 0.0, latest=True),
    )
}


def rule_for(selection: str | Callable[[DomainOutputs], Any]) -> Rule:
    """A rule by its name, or from a function that scores a target's outputs (larger is better)."""
    if isinstance(selection, Rule):
        return selection
    if isinstance(selection, str):
        require(selection in RULES, f"Unknown selection {selection!r}: {did_you_mean(selection, RULES)}")
        return RULES[selection]
    require(
        callable(selection), f"The selection is {selection!r}: give a name, such as 'entropy', or a function."
    )
    return Rule(getattr(selection, "__name__", type(selection).__name__), selection)


def cheap_scores(logits: Tensor) -> dict[str, float]:
    """What stands in the history at every evaluation, besides the mean entropy.

    All of it costs a twentieth of predicting 1000 rows of 2048 features. The density costs four times as
    much as that, so it is worked out only where it selects.
    """
    return {
        "information_maximisation": scores.information_maximisation(logits),
        "effective_classes": scores.effective_classes(scores.mean_probabilities(logits)),
        "nuclear_norm": scores.nuclear_norm(logits),
    }
