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
    """Scores an evaluation; the largest score is selected, and of equal ones the first (or the `latest`)."""

    name: str
    score: Callable[[DomainOutputs], Any]
    latest: bool = False

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


def _of_logits(score: Callable[[Tensor], float], sign: int = 1) -> Callable[[DomainOutputs], float]:
    """A score of logits as one of outputs."""
    return lambda outputs: sign * score(outputs.logits)


RULES = {
    rule.name: rule
    for rule in (
        Rule("entropy", _of_logits(scores.mean_entropy, -1)),  # the paper's
        Rule("information-maximisation", _of_logits(scores.information_maximisation)),
        Rule("diversity", _of_logits(scores.diversity)),
        Rule("nuclear-norm", _of_logits(scores.nuclear_norm)),
        Rule("density", _of_logits(lambda logits: scores.neighbourhood_density(logits.softmax(dim=1)))),
        Rule("last", lambda outputs: 0.0, latest=True),
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
