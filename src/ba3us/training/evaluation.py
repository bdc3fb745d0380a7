"""Predict a whole target without its labels, score the predictions, and select the best evaluation of a run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from ba3us import scores
from ba3us.data import Source, Target
from ba3us.data.domains import random_indices
from ba3us.errors import UserError, did_you_mean, require
from ba3us.methods.base import DomainOutputs, Recipe
from ba3us.nn.norms import Standardize
from ba3us.scores import Neighbours
from ba3us.training.distributed import ProcessGroup

if TYPE_CHECKING:
    from ba3us.training.loop import TrainingStep

MAX_ROWS = 10_000  # of a domain, where a sample of its rows is enough


# --- predicting a domain ----------------------------------------------------------------------------------


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Switch to eval mode without gradients; afterwards every submodule has its mode back."""
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
    """Yield features and logits, one batch of rows after the other."""
    device = next(module.parameters()).device
    for start in range(rows.start, rows.stop, batch_size):
        with evaluating(module):
            x = read(slice(start, min(start + batch_size, rows.stop))).to(device)
            outputs = module.method.predict(module.network, x)
        features, logits = (part.float() if part.element_size() < 4 else part for part in outputs)
        yield features, logits


def predict_domain(
    module: TrainingStep,
    domain: Target,
    batch_size: int,
    views: bool = False,
    process_group: ProcessGroup | None = None,
    features: bool = True,
) -> DomainOutputs:
    """Predict every sample of a domain.

    Parameters
    ----------
    views : bool
        Also predict each augmented view of the domain: logits under ``extra["views"]``.
    process_group : ProcessGroup, optional
        Processes that divide the samples among them; each gets the outputs for all samples.
    features : bool
        Without them, which take most of the memory, ``outputs.features`` has shape [n, 0].
    """
    dtype, process_group = next(module.parameters()).dtype, process_group or ProcessGroup()
    local = range(len(domain))[process_group.share(len(domain))]

    def run(read: Callable[[slice], Tensor], features: bool = False) -> list[Tensor]:
        # a process without samples predicts one as well, to know how many columns the others send
        rows = local or range(1)
        outputs: list[Tensor] = []
        for start, batch in zip(rows[::batch_size], predict_batches(module, read, rows, batch_size)):
            if not outputs:  # allocated once, so that nothing is held twice
                widths = (batch[0].shape[1] if features else 0, batch[1].shape[1])
                outputs = [part.new_empty(len(rows), width) for part, width in zip(batch, widths)]
            for output, part in zip(outputs, batch):
                first = start - rows.start
                output[first : first + len(part)] = part[:, : output.shape[1]]
        return [
            process_group.whole(output[: len(local)], len(domain))
            if output.shape[1]
            else output.new_empty(len(domain), 0)
            for output in outputs
        ]

    all_features, logits = run(lambda rows: domain.batch(rows, dtype), features)
    extra = {}
    if views and domain.views:
        view_logits = [
            run(lambda rows, v=v: domain.view_batch(v, rows, dtype))[1]  # type: ignore[misc]
            for v in range(len(domain.views))
        ]
        extra["views"] = torch.stack(view_logits)
    index = torch.arange(len(domain), device=logits.device)
    return DomainOutputs(all_features, logits, index, extra=extra)


# --- the target's neighbourhoods --------------------------------------------------------------------------


def sample_batch(domain: Target) -> Tensor:
    """At most :data:`MAX_ROWS` samples of a domain, evenly spaced."""
    step = -(-len(domain) // MAX_ROWS)
    return domain.batch(np.arange(0, len(domain), step))


def sample_rows(count: int) -> np.ndarray:
    """Row numbers of `count` samples: all, or :data:`MAX_ROWS` drawn at random with a fixed seed."""
    return random_indices(count, MAX_ROWS)


def target_neighbours(
    source: Source, target: Target, rows: np.ndarray, standardize: bool = False
) -> Neighbours:
    """Neighbourhoods among the target's `rows`, measured from the source's mean.

    With `standardize`, in the units of the network: every column scaled by the source.
    """
    vectors, reference = (x.reshape(len(x), -1).float() for x in (target.batch(rows), sample_batch(source)))
    if standardize:
        scale = Standardize(reference.shape[1]).fit(reference)
        vectors, reference = scale(vectors), scale(reference)
    return Neighbours.among(vectors, reference.mean(dim=0))


# --- selection rules --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SelectionRule:
    """Scores every evaluation of a run, without target labels; the largest score is selected.

    Parameters
    ----------
    name : str
        What ``selection=`` and ``--selection`` call it.
    score : function
        From the outputs for the whole target (:class:`~ba3us.methods.base.DomainOutputs`) to a number, larger
        for better. Of a rule that reads ``"predictions"``: from the predicted classes, an integer array [n].
    reads : {"features", "logits", "predictions"}
        What the score depends on. Features are held in memory only for rules that read them.
    latest : bool
        Of equal scores, select the latest evaluation instead of the first.
    recorded : (str, int), optional
        The entry of :attr:`Evaluation.scores` that equals the score, and its sign. With it, a benchmark can
        apply the rule to runs that have ended.
    prepare : function, optional
        From source, target and whether the network standardises its inputs to `score`. Called before training,
        for scores that depend on the domains themselves.
    """

    name: str
    score: Callable[[Any], Any] | None = None
    reads: str = "features"
    latest: bool = False
    recorded: tuple[str, int] | None = None
    prepare: Callable[[Source, Target, bool], Callable[[Any], Any]] | None = None

    def prepared(self, source: Source, target: Target, standardize: bool = False) -> SelectionRule:
        """The rule for these domains, ready to score."""
        if self.prepare is None:
            return self
        return dataclasses.replace(self, score=self.prepare(source, target, standardize), prepare=None)

    def __call__(self, outputs: DomainOutputs) -> float:
        """The score of the outputs for the whole target; larger is better."""
        if self.reads == "predictions":
            return self._checked(outputs.logits.argmax(dim=1).cpu().numpy())
        return self._checked(outputs)

    def score_recorded(self, evaluation: Evaluation) -> float:
        """The score of a recorded evaluation, from its label-free scores or its predictions."""
        if self.recorded is None:
            return self._checked(evaluation.predictions)
        name, sign = self.recorded
        return sign * evaluation.scores[name]

    def _checked(self, values: Any) -> float:
        assert self.score is not None, f"{self.name} is not prepared"
        score = self.score(values)
        try:
            number = float(score)
        except (TypeError, ValueError, RuntimeError) as error:
            raise UserError(
                f"The selection rule {self.name!r} gave {type(score).__name__}: it must give a number."
            ) from error
        require(
            math.isfinite(number),
            f"The selection rule {self.name!r} gave {number}: it must give a finite number, larger for better.",
        )
        return number


RULES: dict[str, SelectionRule] = {}


def register_rule(rule: SelectionRule) -> SelectionRule:
    """Add a rule: the estimator, specs, ``adapt`` and, if it works on records, ``bench`` then know its name."""
    require(rule.name not in RULES, f"There is a selection rule {rule.name!r} already: choose another name.")
    RULES[rule.name] = rule
    return rule


def rules_for_records() -> dict[str, SelectionRule]:
    """The rules that :meth:`SelectionRule.score_recorded` can apply to runs that have ended."""
    return {name: rule for name, rule in RULES.items() if rule.recorded or rule.reads == "predictions"}


def find_rule(selection: str | SelectionRule | Callable[[DomainOutputs], Any]) -> SelectionRule:
    """A registered rule by its name, or one from a function of a target's outputs (larger is better)."""
    if isinstance(selection, SelectionRule):
        return selection
    if isinstance(selection, str):
        require(selection in RULES, f"Unknown selection {selection!r}: {did_you_mean(selection, RULES)}")
        return RULES[selection]
    require(
        callable(selection), f"The selection is {selection!r}: give a name, such as 'entropy', or a function."
    )
    return SelectionRule(getattr(selection, "__name__", type(selection).__name__), selection)


def _score_logits(score: Callable[[Tensor], float], sign: int, outputs: DomainOutputs) -> float:
    return sign * score(outputs.logits)


def _density(logits: Tensor) -> float:
    return scores.neighbourhood_density(logits.softmax(dim=1))


def _same(logits: Tensor) -> float:
    return 0.0


def _neighbour_agreement(source: Source, target: Target, standardize: bool) -> Callable[[np.ndarray], float]:
    require(
        len(target.shape) == 1,
        "The selection 'neighbours' needs vectors that stay as they are: give features, or train the head.",
    )
    rows = sample_rows(len(target))
    return partial(_agreement_of, target_neighbours(source, target, rows, standardize), rows)


def _agreement_of(neighbours: Neighbours, rows: np.ndarray, predictions: np.ndarray) -> float:
    return neighbours.beyond_chance(predictions[rows])


for _name, _score, _sign, _recorded in (
    ("entropy", scores.mean_entropy, -1, "entropy"),  # the paper's
    ("information-maximisation", scores.information_maximisation, 1, "information_maximisation"),
    ("nuclear-norm", scores.nuclear_norm, 1, "nuclear_norm"),
    ("diversity", scores.diversity, 1, None),
    ("density", _density, 1, None),
    ("last", _same, 1, None),
):
    register_rule(
        SelectionRule(
            _name,
            partial(_score_logits, _score, _sign),
            "logits",
            latest=_name == "last",
            recorded=None if _recorded is None else (_recorded, _sign),
        )
    )
register_rule(SelectionRule("neighbours", reads="predictions", prepare=_neighbour_agreement))


# --- what training returns --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evaluation:
    """Predictions for the whole target after `step` steps of `phase`, without its labels.

    `score` is that of the selection rule (larger is better); `scores` are label-free scores by name. Only a
    `candidate` can be selected.
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
        """From what :meth:`to_dict` gave."""
        arrays: dict[str, Any] = {k: v.numpy() if isinstance(v, Tensor) else v for k, v in state.items()}
        return cls(**arrays)


@dataclass
class Result:
    """A trained module, the history of its steps, and every evaluation, one of them selected by `rule`.

    The module holds the selected weights at first; :meth:`use` switches between ``"selected"`` and ``"last"``.
    """

    module: TrainingStep
    recipe: Recipe
    history: pd.DataFrame
    evaluations: list[Evaluation]
    best_index: int
    states: dict[str, dict[str, Tensor]]
    rule: str

    @property
    def steps(self) -> int:
        """Number of training steps: all of the recipe's, unless a collapse stopped the run."""
        last = self.evaluations[-1]
        return self.recipe.before(last.phase) + last.step

    def full_history(self) -> pd.DataFrame:
        """The history merged with the evaluations, in columns ``target_…``, ``score`` and ``selected``.

        A row describes the weights after `step` steps of `phase`: the losses of the next step, the evaluation,
        or both.
        """
        order = {phase.name: number for number, phase in enumerate(self.recipe.phases)}
        evaluations: list[dict[Any, Any]] = [
            {"phase": e.phase, "step": e.step}
            | {f"target_{name}": value for name, value in e.scores.items()}
            | {"score": e.score, "selected": number == self.best_index}
            for number, e in enumerate(self.evaluations)
        ]
        rows: dict[tuple[int, int], dict[Any, Any]] = {}
        for row in self.history.to_dict("records") + evaluations:
            rows.setdefault((order[row["phase"]], row["step"]), {}).update(row)
        return pd.DataFrame([rows[key] for key in sorted(rows)])

    def use(self, which: str) -> Result:
        """Load the weights called `which` and return self."""
        require(
            which in self.states, f"There are no weights called {which!r}: {did_you_mean(which, self.states)}"
        )
        self.module.load_state_dict(self.states[which])
        return self

    def predict(self, domain: Target, batch_size: int = 1024) -> DomainOutputs:
        """Features and logits for every sample of a domain, with the weights in use."""
        return predict_domain(self.module, domain, batch_size)
