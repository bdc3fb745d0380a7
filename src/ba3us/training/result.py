"""What training leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ba3us.data import Target
from ba3us.errors import did_you_mean, require
from ba3us.methods.base import DomainOutputs, Recipe
from ba3us.training.predict import predict_domain

if TYPE_CHECKING:
    from ba3us.training.step import TrainingStep


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

    def packed(self) -> dict[str, Any]:
        """As tensors, numbers and strings, for a checkpoint."""
        return {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in vars(self).items()}

    @classmethod
    def unpacked(cls, state: dict[str, Any]) -> Evaluation:
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
    selected: int
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
            | {"score": e.score, "selected": number == self.selected}
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
