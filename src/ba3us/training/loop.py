"""The one training loop. It serves every method and never holds a target label."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from ba3us import scores
from ba3us.data import BatchIndices, Source, Streams, Target
from ba3us.data.domains import check_alike
from ba3us.data.streams import draw_numbers
from ba3us.errors import UserError, require
from ba3us.methods.base import WARMUP, Batch, DomainOutputs, Inputs, Method, Phase, Recipe, Step
from ba3us.nn import Network
from ba3us.nn.norms import Scale
from ba3us.training import checkpoints, distributed
from ba3us.training import evaluation as rules
from ba3us.training.checkpoints import GracefulShutdown, seeded
from ba3us.training.distributed import ProcessGroup
from ba3us.training.evaluation import Evaluation, Result, predict_domain
from ba3us.training.monitoring import (
    MOST_TRIES,
    ON_COLLAPSE,
    ON_NAN,
    SMALLER,
    Callback,
    DivergedError,
    Terms,
    another_try,
    collapsed,
    require_numbers,
)

# --- execution --------------------------------------------------------------------------------------------
# How a run is carried out.


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How a run is carried out: nothing here changes what a method is.

    Parameters
    ----------
    seed : int
        Decides initial weights, batches and dropout.
    threads : int, optional
        CPU threads; part of the configuration because sums depend on it in the last bit. Default: torch's.
    evaluate_every : int, optional
        Predict the target this often, besides at every refresh.
    log_every : int
        Updates between two rows of the history.
    predict_batch : int
        Rows per batch when the whole target is predicted.
    accelerator : str, optional
        "cpu", "cuda" or "auto".
    devices : int or "auto", optional
        Processes on each node, one per device. The recipe's batch is the joint batch of all of them. Default:
        as many as :func:`ba3us.training.distributed.launched` has started, or one.
    nodes : int, optional
        Machines; each runs the same command.
    precision : str
        Passed to Lightning Fabric.
    checkpoint : Path, optional
        Where to save the state of the run at every evaluation (and every `checkpoint_every` updates).
    identity : str
        A digest of all that the result depends on; a checkpoint of another one is not resumed.
    on_nan : str
        When a loss is no longer a number: ``stop``, or ``retry`` from the last evaluation (or the start) at
        half the learning rate, at most five times.
    on_collapse : str
        When predictions have fallen onto few classes: ``continue``, or ``stop``, with what was selected so far.
    """

    seed: int = 0
    n_threads: int | None = None
    evaluate_every: int | None = None
    log_every: int = 10
    predict_batch: int = 1024
    accelerator: str | None = None
    devices: int | str | None = None
    nodes: int | None = None
    precision: Any = "32-true"
    checkpoint: Path | None = None
    checkpoint_every: int | None = None
    identity: str = ""
    on_nan: str = "stop"
    on_collapse: str = "continue"

    def __post_init__(self) -> None:
        require(self.seed >= 0, f"The seed is {self.seed}: it must be 0 or more.")
        require(self.on_nan in ON_NAN, f"on_nan is {self.on_nan!r}: choose one of {', '.join(ON_NAN)}.")
        require(
            self.on_collapse in ON_COLLAPSE,
            f"on_collapse is {self.on_collapse!r}: choose one of {', '.join(ON_COLLAPSE)}.",
        )
        for name in ("n_threads", "evaluate_every", "log_every", "predict_batch", "checkpoint_every"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{name} is {value}: it must be at least 1.")


# --- parameters -------------------------------------------------------------------------------------------
# Which parameters a phase trains, and with what.


def trainable(module: nn.Module) -> frozenset[str]:
    """Names of the parameters that may be trained: those that come with gradients on."""
    return frozenset(name for name, parameter in module.named_parameters() if parameter.requires_grad)


def set_trained(module: nn.Module, phase: Phase, allowed: Collection[str]) -> None:
    """Gradients for the `allowed` parameters that `phase` names; what holds no such parameter is in eval mode.

    So a part that is frozen, by the phase or by the caller, keeps its batch-norm statistics and drops nothing.
    """

    def covered(name: str) -> bool:
        return any(f"{name}.".startswith(f"{t}.") for t in phase.trains)

    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in allowed and covered(name))
    for name, part in module.named_modules():  # parents before their children
        holds_trained = any(f"{t}.".startswith(f"{name}.") for t in phase.trains) or name == ""
        part.training = covered(name) or holds_trained
    for part in module.modules():
        parameters = list(part.parameters())
        if parameters and not any(p.requires_grad for p in parameters):
            part.eval()


def optimizer(module: nn.Module, recipe: Recipe, phase: Phase) -> torch.optim.SGD:
    """Fused SGD over what `phase` trains, in the groups of `recipe`."""
    groups: dict[int, list[Tensor]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            number = next(i for i, g in enumerate(recipe.groups) if f"{name}.".startswith(g.prefix))
            groups.setdefault(number, []).append(parameter)
    require(bool(groups) or phase.steps == 0, f"Phase {phase.name!r} has nothing to train.")
    chosen = [(recipe.groups[i], parameters) for i, parameters in sorted(groups.items())]
    return torch.optim.SGD(
        [
            {
                "params": parameters,
                "lr_scale": group.lr_scale,
                "momentum": group.momentum,
                "nesterov": recipe.nesterov and group.momentum > 0,
            }
            for group, parameters in chosen
        ]
        or [torch.zeros(1)],
        lr=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        fused=True,
    )


# --- batches ----------------------------------------------------------------------------------------------
# From drawn rows to the batches of a step.


class Feed:
    """What a phase is fed with: this process's share of the joint batches, on its device.

    Without labels of the target, even of a Source.
    """

    def __init__(
        self,
        fabric: Fabric,
        process_group: ProcessGroup,
        source: Source,
        target: Target,
        phase: int,
        dtype: torch.dtype,
    ) -> None:
        self.process_group, self.source, self.target, self.phase, self.dtype = (
            process_group,
            source,
            target,
            phase,
            dtype,
        )
        self.move = None if fabric.device.type == "cpu" else fabric.to_device

    def inputs(self, rows: BatchIndices, step: int) -> Inputs:
        """The batches of update `step`."""
        joint = rows.source, rows.target, rows.borrowed
        shares = [self.process_group.share(len(drawn)) for drawn in joint]
        mine = [torch.from_numpy(drawn[share]) for drawn, share in zip(joint, shares)]
        draws = [draw_numbers(self.phase, step, i, len(joint[i]))[shares[i]] for i in range(3)]
        drawn = zip((self.source, self.target, self.source), mine, draws)
        x = [domain.training_batch(index.numpy(), n, self.dtype) for domain, index, n in drawn]
        labels = self.source.labels
        made = Inputs(
            Batch(x[0], mine[0], labels.index_select(0, mine[0])),
            Batch(x[1], mine[1]),
            Batch(x[2], mine[2], labels.index_select(0, mine[2])),
        )
        return made if self.move is None else Inputs(*map(self.move, made))

    def announce(self, streams: Any, draw: Callable[[], BatchIndices]) -> None:
        """Tell domains that can read ahead which rows will come next; the streams stay where they are."""
        if not (self.source.prefetches or self.target.prefetches):
            return
        positions = streams.positions()
        rows = draw()
        streams.seek(positions)
        mine = [
            joint[self.process_group.share(len(joint))] for joint in (rows.source, rows.borrowed, rows.target)
        ]
        self.source.expect(np.concatenate(mine[:2]))
        self.target.expect(mine[2])


# --- step -------------------------------------------------------------------------------------------------
# One step of training as a module, so that devices can wrap it.


class TrainingStep(nn.Module):
    """Network and method as one module whose forward is a whole step: batches in, loss and terms out.

    In a `team` each process is given its share of the batches and returns what the joint batch gives.
    """

    def __init__(self, network: Network, method: Method) -> None:
        super().__init__()
        self.network, self.method = network, method
        self.process_group = ProcessGroup()

    def forward(self, inputs: Inputs, step: Step) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss to minimise, and the named terms that it is the sum of, detached."""
        with self.process_group.apart(step):
            outputs = self.method.outputs(self.network, inputs)
        outputs = self.process_group.joined(outputs)
        warm = step.phase == WARMUP
        terms = self.method.warmup_losses(outputs) if warm else self.method.losses(outputs, step)
        loss = functools.reduce(operator.add, terms.values())
        return loss, {name: term.detach() for name, term in terms.items()}


# --- loop -------------------------------------------------------------------------------------------------
# The one training loop. It serves every method and never holds a target label.


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
    hooks : sequence of Callback
        Onlookers; where several processes share a run, those of the first.
    rule : str or function
        Which evaluation's weights are selected: a name of :data:`ba3us.training.evaluation.RULES`, or a
        function from the target's :class:`~ba3us.methods.base.DomainOutputs` to a number, larger for better.
    """

    def __init__(
        self,
        network: Network,
        method: Method,
        execution: Execution | None = None,
        *,
        recipe: Recipe | None = None,
        streams: Any = None,
        callbacks: Sequence[Callback] = (),
        rule: str | Callable[[DomainOutputs], Any] = "entropy",
    ) -> None:
        self.execution = execution or Execution()
        self.recipe = recipe or method.recipe()
        self.module = TrainingStep(network, method)
        self.streams = streams
        self.callbacks = callbacks
        self.rule = rules.find_rule(rule)
        self.rows: list[dict[str, Any]] = []
        self.evaluations: list[Evaluation] = []
        self.best_score = -math.inf
        self.selected = -1
        self.best_state: dict[str, Tensor] | None = None
        self.rate, self.tries = 1.0, list[str]()  # of the learning rate, and why it is no longer 1
        self.noticed: dict[str, str] = {}  # by onlookers: a few words for the progress, a sentence for the run
        self._trainable = trainable(self.module)
        self._terms = Terms()
        self._shutdown = GracefulShutdown(wait=False)
        self._position = self._start = (0, 0)  # phase and update: where it is, and where to go on from
        self._resumed: dict[str, Any] | None = None
        self._good: dict[str, Any] | None = None  # the last state that may be gone back to
        self._work: distributed.Prepared

    @property
    def method(self) -> Method:
        """The method being trained."""
        return self.module.method

    @property
    def process_group(self) -> ProcessGroup:
        """The processes that share the run."""
        return self.module.process_group

    def resume(self, path: Path | str) -> Trainer:
        """Go on from a checkpoint; the run then equals one that was never interrupted."""
        state = checkpoints.load(Path(path))
        try:
            require(
                (state["identity"], state["rule"]) == (self.execution.identity, self.rule.name),
                f"The checkpoint {path} is of another run (other data, weights, options, rule, seed or "
                "threads): give the same, or start anew with `overwrite`.",
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
        self.evaluations = [Evaluation.from_dict(e) for e in state["evaluations"]]
        self._start, self._resumed = tuple(state["position"]), copy.deepcopy(state)  # an optimiser changes it

    def fit(self, source: Source, target: Target) -> Result:
        """Run all phases of the recipe; returns the result with the selected weights loaded."""
        fabric, self.module.process_group = distributed.start(self.execution)
        self._check(source, target)
        self.rule = self.rule.prepared(source, target, isinstance(self.module.network.backbone, Scale))
        with seeded(self.execution.seed, self.execution.n_threads):
            if self.streams is None:
                labels = source.labels.numpy() if self.recipe.balanced_source else None
                self.streams = Streams(len(source), len(target), self.execution.seed, labels)
            with ExitStack() as ending:  # every hook hears of the end, whatever happens
                for callback in reversed(self.callbacks if self.process_group.first else ()):
                    ending.callback(callback.on_end, self)
                self._notify("on_start")
                # several processes would not hear of a signal at the same update
                alone = self.execution.checkpoint is not None and self.process_group.size == 1
                self._shutdown = ending.enter_context(GracefulShutdown(wait=alone))
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
                error.saved = checkpoints.beside(self.execution.checkpoint, "diverged")
                self._save(error.saved)
            raise error
        self._restore(self._good)
        at = f"update {self._start[1]} of phase {self.recipe.phases[self._start[0]].name!r}"
        self.rate, self.tries = rate, [*tries, another_try(error, at, rate)]

    def _run_phase(self, fabric: Fabric, number: int, phase: Phase, source: Source, target: Target) -> None:
        first = self._start[1] if number == self._start[0] else 0
        if first == 0 and self._resumed is None:
            self.method.begin_phase(self.module.network, phase)
        set_trained(self.module, phase, self._trainable)
        require(
            self.recipe.batch_size > 1 or not self.module.network.couples_samples,
            "The batch_size is 1, but the network has batch norm, which needs rows to compare: "
            "make it at least 2.",
        )
        work = distributed.set_up(fabric, self.module, lambda: optimizer(self.module, self.recipe, phase))
        dtype = next(self.module.parameters()).dtype
        feed = Feed(fabric, self.process_group, source, target, number, dtype)
        evaluated = self._resumed is not None
        if self._resumed is not None:
            work.optimizer.load_state_dict(self._resumed["optimizer"])
            work.precision.load_state_dict(self._resumed["precision"])
            self.streams.seek(self._resumed["streams"])
            checkpoints.set_random_state(self._resumed["random"])
            self._resumed = None

        self._work, self._terms = work, Terms()
        for index in range(first, phase.steps + 1):
            step, self._position = Step(index, phase.span, phase.name), (number, index)
            due = not evaluated and self._observe(phase, step, source, target)
            if due or (self._good is None and self.execution.on_nan == "retry"):
                self._keep_good()
            if due or self._shutdown.asked:
                self._save(self.execution.checkpoint)
            if self._shutdown.asked:
                self._shutdown.now()
            evaluated = False
            if index == phase.steps or self._stopped():
                break
            self._update(work, phase, step, feed)
            self._notify("on_step", step)

    def _stopped(self) -> bool:
        return self.execution.on_collapse == "stop" and collapsed(self.evaluations) is not None

    def _update(self, work: distributed.Prepared, phase: Phase, step: Step, feed: Feed) -> None:
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
        self.process_group.average_statistics(self.module)
        outputs = self._refresh(step, source, target) if refresh else self._predict(target)
        entropy = scores.mean_entropy(outputs.logits)
        require_numbers(entropy, "The target's mean entropy", step)
        evaluation = Evaluation(
            phase=phase.name,
            step=step.number,
            candidate=phase.adapts and (step.number > 0 or at_end),
            score=self.rule(outputs),
            scores={"entropy": entropy} | rules.label_free_scores(outputs.logits),
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
        batch_size, features = self.execution.predict_batch, self.rule.reads == "features"
        features |= self.recipe.refresh.features
        return predict_domain(self.module, domain, batch_size, views, self.process_group, features)

    def _refresh(self, step: Step, source: Source, target: Target) -> DomainOutputs:
        """Show the method what its recipe asks for; returns the outputs for the whole target."""
        wanted = self.recipe.refresh
        if wanted.source:
            shown = self._predict(source)
            self.method.refresh_source(dataclasses.replace(shown, labels=source.labels.to(shown.rows.device)))
        outputs = self._predict(target, wanted.views)
        require_numbers(float(outputs.logits.sum()), "What the network says of the target", step)
        self.method.refresh(outputs)
        self.process_group.same_buffers(self.method)
        return self._predict(target) if wanted.again else outputs

    def _copy_state(self) -> dict[str, Tensor]:
        return {k: v.detach().cpu().clone() for k, v in self.module.state_dict().items()}

    def _log(self, step: Step, lr: float, borrowed: int, terms: dict[str, Tensor]) -> None:
        row = {"phase": step.phase, "step": step.number, "lr": lr, "borrowed": borrowed}
        row["loss"] = self._terms.checked()
        row |= {name: float(value.detach()) for name, value in terms.items()}
        if step.phase != WARMUP:
            row |= self.method.log_scalars(step)
        self.rows.append(row)
        self._notify("on_log", row)

    def _save(self, path: Path | None) -> None:
        if path is None:
            return
        self.process_group.average_statistics(self.module)
        if self.process_group.first:
            here = self._good is None or self._good["position"] == list(self._position)
            checkpoints.save(path, self._state() | ({} if here else {"good": self._good}))

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
            "random": checkpoints.random_state(),
            "rows": list(self.rows),
            "evaluations": [e.to_dict() for e in self.evaluations],
            "rule": self.rule.name,
            "identity": self.execution.identity,
            "best_score": self.best_score,
            "selected": self.selected,
            "best_state": self.best_state,
            "rate": self.rate,
            "tries": self.tries,
        }

    def _result(self) -> Result:
        self.module.process_group = ProcessGroup()  # from here on each process goes its own way
        last = self._copy_state()
        states = {"selected": self.best_state or last, "last": last}
        selected = self.selected if self.best_state else len(self.evaluations) - 1
        history = pd.DataFrame(self.rows)
        result = Result(self.module, self.recipe, history, self.evaluations, selected, states, self.rule.name)
        return result.use("selected")

    def _notify(self, event: str, *args: Any) -> None:
        for callback in self.callbacks if self.process_group.first else ():
            getattr(callback, event)(self, *args)

    def _check(self, source: Source, target: Target) -> None:
        check_alike(source, target)
        require(bool(self.recipe.phases), "The recipe has no phases: give it at least one.")
        classes = self.module.network.num_classes
        require(
            source.num_classes == classes,
            f"The source has {source.num_classes} classes, the network {classes}: build it for the source.",
        )
        self.process_group.check_batch(self.recipe.batch_size)
        rows = (len(source), len(target))
        self.process_group.check_same(
            "rows, seed or where to go on", (*rows, self.execution.seed, *self._start)
        )
