"""The one training loop. It serves every method and never holds a target label."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd
from lightning_fabric import Fabric
from torch import Tensor

from ba3us import scores
from ba3us.data import BatchIndices, Source, Streams, Target
from ba3us.data.domain import check_alike
from ba3us.errors import UserError, require
from ba3us.methods.base import WARMUP, DomainOutputs, Method, Phase, Recipe, Step
from ba3us.nn import Network
from ba3us.training import checkpoint, devices, parameters, rules
from ba3us.training.batches import Feed
from ba3us.training.collapse import collapsed
from ba3us.training.diverging import MOST_TRIES, SMALLER, DivergedError, Terms, another_try, require_numbers
from ba3us.training.execution import Execution
from ba3us.training.hooks import Hook
from ba3us.training.leaving import Leaving
from ba3us.training.predict import predict_domain
from ba3us.training.result import Evaluation, Result
from ba3us.training.seeding import seeded
from ba3us.training.step import TrainingStep
from ba3us.training.team import Team


class Trainer:
    """Trains a method on a source and a target.

    Parameters
    ----------
    network, method : Network, Method
        What to train; both are changed in place.
    execution : Execution
        How to run.
    recipe : Recipe, optional
        In place of ``method.recipe()``.
    streams : optional
        In place of seeded streams: an object with ``draw(source, target, borrowed) -> BatchIndices``,
        ``positions()`` and ``seek(positions)``.
    hooks : sequence of Hook
        Onlookers; where several processes share a run, those of the first.
    rule : str or function
        Which evaluation's weights are selected: a name of :data:`ba3us.training.rules.RULES`, or a function
        from the target's :class:`~ba3us.methods.base.DomainOutputs` to a number, larger for better.
    """

    def __init__(
        self,
        network: Network,
        method: Method,
        execution: Execution | None = None,
        *,
        recipe: Recipe | None = None,
        streams: Any = None,
        hooks: Sequence[Hook] = (),
        rule: str | Callable[[DomainOutputs], Any] = "entropy",
    ) -> None:
        self.execution = execution or Execution()
        self.recipe = recipe or method.recipe()
        self.module = TrainingStep(network, method)
        self.streams = streams
        self.hooks = hooks
        self.rule = rules.rule_for(rule)
        self.rows: list[dict[str, Any]] = []
        self.evaluations: list[Evaluation] = []
        self.best_score = -math.inf
        self.selected = -1
        self.best_state: dict[str, Tensor] | None = None
        self.rate, self.tries = 1.0, list[str]()  # of the learning rate, and why it is no longer 1
        self.noticed: dict[str, str] = {}  # by onlookers: a few words for the progress, a sentence for the run
        self._trainable = parameters.trainable(self.module)
        self._terms = Terms()
        self._leaving = Leaving(wait=False)
        self._position = self._start = (0, 0)  # phase and update: where it is, and where to go on from
        self._resumed: dict[str, Any] | None = None
        self._good: dict[str, Any] | None = None  # the last state that may be gone back to
        self._work: devices.Prepared

    @property
    def method(self) -> Method:
        """The method being trained."""
        return self.module.method

    @property
    def team(self) -> Team:
        """The processes that share the run."""
        return self.module.team

    def resume(self, path: Path | str) -> Trainer:
        """Go on from a checkpoint; the run then equals one that was never interrupted."""
        state = checkpoint.load(Path(path))
        try:
            require(
                (state["identity"], state["rule"]) == (self.execution.identity, self.rule.name),
                f"The checkpoint {path} is of another run (other data, weights, options, rule, seed or "
                "threads): give the same, or start anew with --overwrite.",
            )
            self._restore(state)
            self._good = state.get("good", state)
        except (RuntimeError, KeyError) as error:
            raise UserError(
                f"The checkpoint {path} belongs to another method, network or number of classes."
            ) from error
        return self

    def _restore(self, state: dict[str, Any]) -> None:
        self.module.load_state_dict(state["module"])
        for name in ("best_score", "selected", "best_state", "rate"):
            setattr(self, name, state[name])
        self.rows, self.tries = list(state["rows"]), list(state["tries"])
        self.evaluations = [Evaluation.unpacked(e) for e in state["evaluations"]]
        self._start, self._resumed = tuple(state["position"]), copy.deepcopy(state)  # an optimiser changes it

    def fit(self, source: Source, target: Target) -> Result:
        """Run all phases of the recipe; returns the result with the selected weights loaded."""
        fabric, self.module.team = devices.start(self.execution)
        self._check(source, target)
        with seeded(self.execution.seed, self.execution.threads):
            if self.streams is None:
                labels = source.labels.numpy() if self.recipe.balanced_source else None
                self.streams = Streams(len(source), len(target), self.execution.seed, labels)
            with ExitStack() as ending:  # every hook hears of the end, whatever happens
                for hook in reversed(self.hooks if self.team.first else ()):
                    ending.callback(hook.on_end, self)
                self._notify("on_start")
                # several processes would not hear of a signal at the same update
                alone = self.execution.checkpoint is not None and self.team.size == 1
                self._leaving = ending.enter_context(Leaving(wait=alone))
                while not self._ran_through(fabric, source, target):
                    pass
        return self._result()

    # --- phases, one of them, one step -------------------------------------------------------------------

    def _ran_through(self, fabric: Fabric, source: Source, target: Target) -> bool:
        """Run what is left of the phases; whether that went well, or else the last good state is back."""
        try:
            for number, phase in enumerate(self.recipe.phases):
                if number >= self._start[0] and not self._stopped():
                    self._run_phase(fabric, number, phase, source, target)
        except DivergedError as error:
            self._go_back(error)
            return False
        return True

    def _go_back(self, error: DivergedError) -> None:
        """Return to the last good state with a smaller rate, if that is asked for; else keep all for a look."""
        rate, tries = SMALLER * self.rate, self.tries
        if self.execution.on_nan != "retry" or self._good is None or len(tries) == MOST_TRIES:
            if self.execution.checkpoint is not None:
                error.saved = checkpoint.beside(self.execution.checkpoint, "diverged")
                self._save(error.saved)
            raise error
        self._restore(self._good)
        at = f"update {self._start[1]} of phase {self.recipe.phases[self._start[0]].name!r}"
        self.rate, self.tries = rate, [*tries, another_try(error, at, rate)]

    def _run_phase(self, fabric: Fabric, number: int, phase: Phase, source: Source, target: Target) -> None:
        first = self._start[1] if number == self._start[0] else 0
        if first == 0 and self._resumed is None:
            self.method.begin_phase(self.module.network, phase)
        parameters.set_trained(self.module, phase, self._trainable)
        require(
            self.recipe.batch_size > 1 or not self.module.network.couples_samples,
            "The batch_size is 1, but the network has batch norm, which needs rows to compare: "
            "make it at least 2.",
        )
        work = devices.set_up(
            fabric, self.module, lambda: parameters.optimizer(self.module, self.recipe, phase)
        )
        dtype = next(self.module.parameters()).dtype
        feed = Feed(fabric, self.team, source, target, number, dtype)
        evaluated = self._resumed is not None
        if self._resumed is not None:
            work.optimizer.load_state_dict(self._resumed["optimizer"])
            work.precision.load_state_dict(self._resumed["precision"])
            self.streams.seek(self._resumed["streams"])
            checkpoint.set_random_state(self._resumed["random"])
            self._resumed = None

        self._work, self._terms = work, Terms()
        for index in range(first, phase.steps + 1):
            step, self._position = Step(index, phase.span, phase.name), (number, index)
            due = not evaluated and self._observe(phase, step, source, target)
            if due or (self._good is None and self.execution.on_nan == "retry"):
                self._keep_good()
            if due or self._leaving.asked:
                self._save(self.execution.checkpoint)
            if self._leaving.asked:
                self._leaving.now()
            evaluated = False
            if index == phase.steps or self._stopped():
                break
            self._update(work, phase, step, feed)
            self._notify("on_step", step)

    def _stopped(self) -> bool:
        return self.execution.on_collapse == "stop" and collapsed(self.evaluations) is not None

    def _update(self, work: devices.Prepared, phase: Phase, step: Step, feed: Feed) -> None:
        factor = self.rate * self.recipe.learning_rate * (phase.decay or self.recipe.decay)(step.number)
        for group in work.optimizer.param_groups:
            group["lr"] = factor * group["lr_scale"]
            for parameter in group["params"]:
                parameter.grad = None
        rows = self._draw(phase, step)
        inputs = feed.inputs(rows, step.number)
        if step.number + 1 < phase.steps:
            following = step._replace(number=step.number + 1)
            feed.announce(self.streams, lambda: self._draw(phase, following))
        loss, terms = work.module(inputs, step)
        work.backward(loss)
        self._notify("on_gradients", step)
        work.step()
        self._terms.keep(step, loss, terms)
        if step.number % self.execution.log_every == 0:
            self._log(step, factor, len(rows.borrowed), terms)

    def _draw(self, phase: Phase, step: Step) -> BatchIndices:
        batch = self.recipe.batch_size
        borrowed = self.method.borrow(step) if phase.adapts else 0
        return self.streams.draw(batch if phase.source else 0, batch if phase.target else 0, borrowed)

    # --- looking at the target ---------------------------------------------------------------------------

    def _observe(self, phase: Phase, step: Step, source: Source, target: Target) -> bool:
        """Refresh and evaluate if it is time; whether it was, or whether a checkpoint is due."""
        at_end, every = step.number == phase.steps, self.execution.evaluate_every
        refresh = phase.adapts and self.recipe.refresh.due(step.number, min(phase.steps, phase.span))
        look = phase.adapts and every is not None and step.number > 0 and step.number % every == 0
        saved = self.execution.checkpoint_every
        unseen = at_end and all(e.phase != phase.name for e in self.evaluations)
        if not (refresh or look or unseen):
            return saved is not None and step.number > 0 and step.number % saved == 0
        self._terms.check()
        self.team.average_statistics(self.module)
        outputs = self._refresh(step, source, target) if refresh else self._predict(target)
        entropy = scores.mean_entropy(outputs.logits)
        require_numbers(entropy, "The target's mean entropy", step)
        evaluation = Evaluation(
            phase=phase.name,
            step=step.number,
            candidate=phase.adapts and (step.number > 0 or at_end),
            score=self.rule(outputs),
            scores={"entropy": entropy} | rules.cheap_scores(outputs.logits),
            predictions=outputs.logits.argmax(dim=1).cpu().numpy(),
            mean_probabilities=scores.mean_probabilities(outputs.logits).cpu().numpy(),
        )
        self.evaluations.append(evaluation)
        if evaluation.candidate and self.rule.prefers(evaluation.score, self.best_score):
            self.best_score, self.selected = evaluation.score, len(self.evaluations) - 1
            self.best_state = self._copy_state()
        self._notify("on_evaluation", evaluation)
        return True

    def _predict(self, domain: Target, views: bool = False) -> DomainOutputs:
        batch, kept = self.execution.predict_batch, self.recipe.refresh.features or self.rule.features
        return predict_domain(self.module, domain, batch, views, self.team, kept)

    def _refresh(self, step: Step, source: Source, target: Target) -> DomainOutputs:
        """Show the method what its recipe asks for; returns the outputs for the whole target."""
        wanted = self.recipe.refresh
        if wanted.source:
            shown = self._predict(source)
            self.method.refresh_source(dataclasses.replace(shown, labels=source.labels.to(shown.rows.device)))
        outputs = self._predict(target, wanted.views)
        require_numbers(float(outputs.logits.sum()), "What the network says of the target", step)
        self.method.refresh(outputs)
        self.team.same_buffers(self.method)
        return self._predict(target) if wanted.again else outputs

    def _copy_state(self) -> dict[str, Tensor]:
        return {k: v.detach().cpu().clone() for k, v in self.module.state_dict().items()}

    def _log(self, step: Step, lr: float, borrowed: int, terms: dict[str, Tensor]) -> None:
        row = {"phase": step.phase, "step": step.number, "lr": lr, "borrowed": borrowed}
        row["loss"] = self._terms.checked()
        row |= {name: float(value.detach()) for name, value in terms.items()}
        if step.phase != WARMUP:
            row |= self.method.figures(step)
        self.rows.append(row)
        self._notify("on_row", row)

    def _save(self, path: Path | None) -> None:
        if path is None:
            return
        self.team.average_statistics(self.module)
        if self.team.first:
            here = self._good is None or self._good["position"] == list(self._position)
            checkpoint.save(path, self._state() | ({} if here else {"good": self._good}))

    def _keep_good(self) -> None:
        if self.execution.on_nan == "retry":
            self._good = copy.deepcopy(self._state())

    def _state(self) -> dict[str, Any]:
        """All that it takes to go on from here."""
        return {
            "position": list(self._position),
            "module": self._copy_state(),
            "optimizer": self._work.optimizer.state_dict(),
            "precision": self._work.precision.state_dict(),
            "streams": self.streams.positions(),
            "random": checkpoint.random_state(),
            "rows": list(self.rows),
            "evaluations": [e.packed() for e in self.evaluations],
            "rule": self.rule.name,
            "identity": self.execution.identity,
            "best_score": self.best_score,
            "selected": self.selected,
            "best_state": self.best_state,
            "rate": self.rate,
            "tries": self.tries,
        }

    def _result(self) -> Result:
        self.module.team = Team()  # from here on each process goes its own way
        last = self._copy_state()
        states = {"selected": self.best_state or last, "last": last}
        selected = self.selected if self.best_state else len(self.evaluations) - 1
        history = pd.DataFrame(self.rows)
        result = Result(self.module, self.recipe, history, self.evaluations, selected, states, self.rule.name)
        return result.use("selected")

    def _notify(self, event: str, *args: Any) -> None:
        for hook in self.hooks if self.team.first else ():
            getattr(hook, event)(self, *args)

    def _check(self, source: Source, target: Target) -> None:
        check_alike(source, target)
        require(bool(self.recipe.phases), "The recipe has no phases: give it at least one.")
        classes = self.module.network.num_classes
        require(
            source.num_classes == classes,
            f"The source has {source.num_classes} classes, the network {classes}: build it for the source.",
        )
        self.team.check_batch(self.recipe.batch_size)
        rows = (len(source), len(target))
        self.team.check_same("rows, seed or where to go on", (*rows, self.execution.seed, *self._start))
