"""What training leaves behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from ba3us import scores
from ba3us.data import Target
from ba3us.errors import UserError, did_you_mean, require
from ba3us.methods.base import DomainOutputs, Recipe
from ba3us.training.distributed import ProcessGroup

if TYPE_CHECKING:
    from ba3us.training.loop import TrainingStep


# --- predict ----------------------------------------------------------------------------------------------
# Predicting a whole domain, batch by batch.


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode and no gradients; afterwards every submodule has the mode it had."""
    modes = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for m, mode in modes:
            m.training = mode


def predict_batches(
    module: TrainingStep, read: Callable[[slice], Tensor], rows: range, batch_size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Features and logits, one batch of rows after the other; nothing of a batch is kept."""
    device = next(module.parameters()).device
    for start in range(rows.start, rows.stop, batch_size):
        with evaluating(module):
            x = read(slice(start, min(start + batch_size, rows.stop))).to(device)
            features, logits = module.method.predict(module.network, x)
        yield _wide(features), _wide(logits)


def predict_domain(
    module: TrainingStep,
    domain: Target,
    batch_size: int,
    views: bool = False,
    process_group: ProcessGroup | None = None,
    features: bool = True,
) -> DomainOutputs:
    """Features and logits for every row; with `views`, logits of each extra view under ``extra["views"]``.

    A `team` shares the rows, and every process is given the outputs for all of them. Without `features`, which
    take more room than all else where rows are many, their place is empty ([n, 0]).
    """
    parameter, process_group = next(module.parameters()), process_group or ProcessGroup()
    mine = range(len(domain))[process_group.share(len(domain))]

    def run(batch: Callable[[slice], Tensor], features: bool = False) -> list[Tensor]:
        # a process without rows looks at one too, to know how many columns the others send
        made = mine or range(1)
        kept: list[Tensor] = []
        for start, pair in zip(made[::batch_size], predict_batches(module, batch, made, batch_size)):
            if not kept:  # room for all, so that nothing is held twice
                widths = (pair[0].shape[1] if features else 0, pair[1].shape[1])
                kept = [part.new_empty(len(made), width) for part, width in zip(pair, widths)]
            for place, part in zip(kept, pair):
                at = start - made.start
                place[at : at + len(part)] = part[:, : place.shape[1]]
        return [
            process_group.whole(place[: len(mine)], len(domain))
            if place.shape[1]
            else place.new_empty(len(domain), 0)
            for place in kept
        ]

    with evaluating(module):
        seen_features, logits = run(lambda rows: domain.batch(rows, parameter.dtype), features)
        extra = {}
        if views and domain.views:
            seen = [
                run(lambda rows, v=v: domain.view_batch(v, rows, parameter.dtype))[1]  # type: ignore[misc]
                for v in range(len(domain.views))
            ]
            extra["views"] = torch.stack(seen)
    index = torch.arange(len(domain), device=logits.device)
    return DomainOutputs(seen_features, logits, index, extra=extra)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.element_size() < 4 else x


# --- rules ------------------------------------------------------------------------------------------------
# Which evaluation a run keeps: rules that score the outputs for the whole target, without its labels.


@dataclass(frozen=True)
class SelectionRule:
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


def _of_logits(
    name: str, score: Callable[[Tensor], float], sign: int = 1, latest: bool = False
) -> SelectionRule:
    """A score of logits as one of outputs."""
    return SelectionRule(name, lambda outputs: sign * score(outputs.logits), latest, features=False)


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


def rule_for(selection: str | Callable[[DomainOutputs], Any]) -> SelectionRule:
    """A rule by its name, or from a function that scores a target's outputs (larger is better)."""
    if isinstance(selection, SelectionRule):
        return selection
    if isinstance(selection, str):
        require(selection in RULES, f"Unknown selection {selection!r}: {did_you_mean(selection, RULES)}")
        return RULES[selection]
    require(
        callable(selection), f"The selection is {selection!r}: give a name, such as 'entropy', or a function."
    )
    return SelectionRule(getattr(selection, "__name__", type(selection).__name__), selection)


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


# --- result -----------------------------------------------------------------------------------------------
# What training leaves behind.


@dataclass(frozen=True)
class Evaluation:
    """A look at the whole target after `step` updates of `phase`, without its labels.

    `score` is what the selection rule says of it (larger is better), `scores` are label-free scores by name.
    """

    phase: str
    step: int
    candidate: bool
    score: float
    scores: dict[str, float]
    predictions: np.ndarray
    mean_probabilities: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        """As tensors, numbers and strings, for a checkpoint."""
        return {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in vars(self).items()}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Evaluation:
        """From what :meth:`packed` gave."""
        arrays: dict[str, Any] = {k: v.numpy() if isinstance(v, Tensor) else v for k, v in state.items()}
        return cls(**arrays)


@dataclass
class Result:
    """A trained run: networks, the table of its updates and every evaluation, one of them selected by `rule`.

    The module starts out holding the selected weights; :meth:`use` switches between ``"selected"`` and
    ``"last"``.
    """

    module: TrainingStep
    recipe: Recipe
    history: pd.DataFrame
    evaluations: list[Evaluation]
    best_index: int
    states: dict[str, dict[str, Tensor]]
    rule: str

    @property
    def updates(self) -> int:
        """How many were made: all of the recipe's, unless a collapse ended the run."""
        last, before = self.evaluations[-1], 0
        for phase in self.recipe.phases:
            if phase.name == last.phase:
                break
            before += phase.steps
        return before + last.step

    def full_history(self) -> pd.DataFrame:
        """The updates and, in columns ``target_…``, ``score`` and ``selected``, every evaluation.

        A row tells of the weights after `step` updates of `phase`: what the next update found, what the
        evaluation found, or both.
        """
        order = {phase.name: number for number, phase in enumerate(self.recipe.phases)}
        looks: list[dict[Any, Any]] = [
            {"phase": e.phase, "step": e.step}
            | {f"target_{name}": value for name, value in e.scores.items()}
            | {"score": e.score, "selected": number == self.best_index}
            for number, e in enumerate(self.evaluations)
        ]
        rows: dict[tuple[int, int], dict[Any, Any]] = {}
        for row in self.history.to_dict("records") + looks:
            rows.setdefault((order[row["phase"]], row["step"]), {}).update(row)
        return pd.DataFrame([rows[place] for place in sorted(rows)])

    def use(self, which: str) -> Result:
        """Load the weights called `which` and return self."""
        require(
            which in self.states, f"There are no weights called {which!r}: {did_you_mean(which, self.states)}"
        )
        self.module.load_state_dict(self.states[which])
        return self

    def predict(self, domain: Target, batch_size: int = 1024) -> DomainOutputs:
        """Features and logits for every row of a domain, from the weights in use."""
        return predict_domain(self.module, domain, batch_size)
