"""The one training loop. It serves every method and never holds a target label.

Read :class:`Trainer` from top to bottom: ``fit`` → phases → ``training_step`` → ``evaluate`` → checkpoint.
"""

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
from torch import Tensor, nn

from ba3us import scores
from ba3us.data import BatchIndices, Source, Streams, Target
from ba3us.data.domains import check_alike
from ba3us.data.streams import draw_numbers
from ba3us.errors import UserError, require
from ba3us.methods.base import WARMUP, Batch, DomainOutputs, Inputs, Method, Phase, Recipe, Step
from ba3us.nn import Network
from ba3us.nn.norms import Standardize
from ba3us.training import checkpoints, distributed
from ba3us.training.checkpoints import GracefulShutdown, seeded
from ba3us.training.distributed import ProcessGroup
from ba3us.training.evaluation import Evaluation, Result, find_rule, predict_domain
from ba3us.training.monitoring import (
    MAX_RETRIES,
    ON_COLLAPSE,
    ON_NAN,
    RETRY_LR_FACTOR,
    Callback,
    DivergedError,
    LossRecord,
    collapsed,
    require_finite,
)


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How a run is carried out: nothing here changes what a method is.

    Parameters
    ----------
    seed : int
        Decides initial weights, batches and dropout.
    n_threads : int, optional
        CPU threads; part of the configuration because sums depend on it in the last bit. Default: torch's.
    evaluate_every : int, optional
        Predict the target every so many steps, besides at every refresh.
    log_every : int
        Steps between two rows of the history.
    predict_batch : int
        Samples per batch when the whole target is predicted.
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
        Where to save the state of the run at every evaluation (and every `checkpoint_every` steps).
    identity : str
        A digest of all that the result depends on; a checkpoint of another one is not resumed.
    on_nan : str
        When a loss is NaN or infinite: ``stop``, or ``retry`` from the last evaluation (or the start) at half
        the learning rate, at most five times.
    on_collapse : str
        When predictions fall onto few classes: ``continue``, or ``stop`` with the best evaluation so far.
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
        for name, choices in (("on_nan", ON_NAN), ("on_collapse", ON_COLLAPSE)):
            value = getattr(self, name)
            require(value in choices, f"{name} is {value!r}: choose one of {', '.join(choices)}.")
        for name in ("n_threads", "evaluate_every", "log_every", "predict_batch", "checkpoint_every"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{name} is {value}: it must be at least 1.")


class TrainingStep(nn.Module):
    """Network and method as one module whose forward is a whole step: batches in, loss and terms out.

    As one module, devices can wrap it. In a process group each process gets its part of the batches and returns
    the loss of the joint batch.
    """

    def __init__(self, network: Network, method: Method) -> None:
        super().__init__()
        self.network, self.method = network, method
        self.process_group = ProcessGroup()

    def forward(self, inputs: Inputs, step: Step) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss to minimise, and its named terms, detached."""
        with self.process_group.apart(step):
            outputs = self.method.outputs(self.network, inputs)
        outputs = self.process_group.joined(outputs)
        warmup = step.phase == WARMUP
        terms = self.method.warmup_losses(outputs) if warmup else self.method.losses(outputs, step)
        loss = functools.reduce(operator.add, terms.values())
        return loss, {name: term.detach() for name, term in terms.items()}


class Trainer:
    """Trains a method on a source and a target.

    The domains are arguments and never attributes, so that no callback can reach a target label.

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
    callbacks : sequence of Callback
        Called as training goes on; where several processes share a run, only those of the first.
    rule : str or function
        Which evaluation's weights are selected: a name of :data:`ba3us.training.evaluation.RULES`, or a
        function from the target's :class:`~ba3us.methods.base.DomainOutputs` to a number, larger for better.

    Attributes
    ----------
    history : list of dict
        Losses and ramps of logged steps.
    evaluations : list of Evaluation
        Of the whole target; ``best_index`` is the selected one (-1: none yet).
    lr_factor : float
        On every learning rate: 1, or less after a retry. ``retries`` has a sentence about each.
    warnings : dict
        From callbacks: a few words for the progress bar, a sentence for the run's notes.
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
        self.rule = find_rule(rule)
        self.history: list[dict[str, Any]] = []
        self.evaluations: list[Evaluation] = []
        self.best_score, self.best_index = -math.inf, -1
        self.best_state: dict[str, Tensor] | None = None
        self.lr_factor, self.retries = 1.0, list[str]()
        self.warnings: dict[str, str] = {}
        self._trainable = {name for name, p in self.module.named_parameters() if p.requires_grad}
        self._position = self._start = (0, 0)  # phase and step: now, and where to go on from
        self._resumed: dict[str, Any] | None = None  # the state to go on from
        self._good: dict[str, Any] | None = None  # the last state that a retry may go back to

    @property
    def method(self) -> Method:
        """The method being trained."""
        return self.module.method

    @property
    def process_group(self) -> ProcessGroup:
        """The processes that share the run."""
        return self.module.process_group

    def fit(self, source: Source, target: Target) -> Result:
        """Run all phases of the recipe; returns the result with the selected weights loaded."""
        self._fabric, self.module.process_group = distributed.start(self.execution)
        self._check(source, target)
        if not self.process_group.first:
            self.callbacks = ()
        standardize = isinstance(self.module.network.backbone, Standardize)
        self.rule = self.rule.prepared(source, target, standardize)
        with ExitStack() as stack:
            stack.enter_context(seeded(self.execution.seed, self.execution.n_threads))
            if self.streams is None:
                labels = source.labels.numpy() if self.recipe.balanced_source else None
                self.streams = Streams(len(source), len(target), self.execution.seed, labels)
            for callback in reversed(self.callbacks):  # each gets its on_end, whatever happens
                stack.callback(callback.on_end, self)
            self._notify("on_start")
            # several processes would not get a signal at the same step
            alone = self.execution.checkpoint is not None and self.process_group.size == 1
            self._shutdown = stack.enter_context(GracefulShutdown(wait=alone))
            while True:
                try:
                    for number, phase in enumerate(self.recipe.phases):
                        if number >= self._start[0] and not self._stops_early():
                            self._run_phase(number, phase, source, target)
                    break
                except DivergedError as error:
                    self._retry_or_raise(error)
        self.module.process_group = ProcessGroup()  # from here on each process works alone
        last = self._copy_weights()
        states = {"selected": self.best_state or last, "last": last}
        best = self.best_index if self.best_state else len(self.evaluations) - 1
        history = pd.DataFrame(self.history)
        result = Result(self.module, self.recipe, history, self.evaluations, best, states, self.rule.name)
        return result.use("selected")

    def _check(self, source: Source, target: Target) -> None:
        check_alike(source, target)
        require(bool(self.recipe.phases), "The recipe has no phases: give it at least one.")
        classes, batch_size, group = self.module.network.num_classes, self.recipe.batch_size, self.process_group
        require(
            source.num_classes == classes,
            f"The source has {source.num_classes} classes, the network {classes}: build it for the source.",
        )
        require(
            group.size == 1 or batch_size >= 2 * group.size,
            f"The batch_size is {batch_size} for {group.size} processes, which share it: make it at least "
            f"{2 * group.size}, or use fewer devices.",
        )
        start = (len(source), len(target), self.execution.seed, *self._start)
        group.check_same("rows, seed or where to go on", start)

    def _run_phase(self, number: int, phase: Phase, source: Source, target: Target) -> None:
        """Train a phase, from its first step or from the state to go on from."""
        first = self._start[1] if number == self._start[0] else 0
        evaluated = self._resumed is not None  # its checkpoint was written after the evaluation of its step
        if first == 0 and not evaluated:
            self.method.begin_phase(self.module.network, phase)
        set_trained(self.module, phase, self._trainable)
        require(
            self.recipe.batch_size > 1 or not self.module.network.couples_samples,
            "The batch_size is 1, but the network has batch norm, which needs rows to compare: "
            "make it at least 2.",
        )
        self._work = distributed.set_up(
            self._fabric, self.module, lambda: optimizer(self.module, self.recipe, phase)
        )
        self._losses = LossRecord()
        if self._resumed is not None:
            self._work.optimizer.load_state_dict(self._resumed["optimizer"])
            self._work.precision.load_state_dict(self._resumed["precision"])
            self.streams.seek(self._resumed["streams"])
            checkpoints.set_random_state(self._resumed["random"])
            self._resumed = None
        for index in range(first, phase.steps + 1):
            step, self._position = Step(index, phase.span, phase.name), (number, index)
            checkpoint_due = not evaluated and self._evaluate_if_due(phase, step, source, target)
            if self.execution.on_nan == "retry" and (checkpoint_due or self._good is None):
                self._good = copy.deepcopy(self._state())
            if checkpoint_due or self._shutdown.requested:
                self._save(self.execution.checkpoint)
            if self._shutdown.requested:
                self._shutdown.now()
            evaluated = False
            if index == phase.steps or self._stops_early():
                break
            self.training_step(phase, step, source, target)
            self._notify("on_step", step)

    def _stops_early(self) -> bool:
        return self.execution.on_collapse == "stop" and collapsed(self.evaluations) is not None

    # --- one step ---------------------------------------------------------------------------------------------

    def training_step(self, phase: Phase, step: Step, source: Source, target: Target) -> None:
        """Draw batches, run the forward pass and the losses, backward, and step the optimiser."""
        optimizer = self._work.optimizer
        lr = self.lr_factor * self.recipe.learning_rate * (phase.decay or self.recipe.decay)(step.number)
        for group in optimizer.param_groups:
            group["lr"] = lr * group["lr_scale"]
            for parameter in group["params"]:
                parameter.grad = None
        rows = self._draw(phase, step)
        inputs = self._inputs(rows, source, target)
        if step.number + 1 < phase.steps and (source.prefetches or target.prefetches):
            self._announce(phase, step._replace(number=step.number + 1), source, target)
        in_eval_mode = self.recipe.eval_step_after_refresh and self._refresh_due(phase, step)
        if in_eval_mode:
            self.module.network.eval()
        loss, terms = self._work.module(inputs, step)
        if in_eval_mode:
            set_trained(self.module, phase, self._trainable)
        self._work.backward(loss)
        self._notify("on_gradients", step)
        self._work.step()
        self._losses.add(step, loss, terms)
        if step.number % self.execution.log_every == 0:
            row = {"phase": step.phase, "step": step.number, "lr": lr, "borrowed": len(rows.borrowed)}
            row["loss"] = self._losses.check()
            row |= {name: float(value) for name, value in terms.items()}
            if step.phase != WARMUP:
                row |= self.method.log_scalars(step)
            self.history.append(row)
            self._notify("on_log", row)

    def _draw(self, phase: Phase, step: Step) -> BatchIndices:
        batch = self.recipe.batch_size
        borrowed = self.method.borrow(step) if phase.adapts else 0
        return self.streams.draw(batch if phase.source else 0, batch if phase.target else 0, borrowed)

    def _inputs(self, rows: BatchIndices, source: Source, target: Target) -> Inputs:
        """This process's part of the joint batches, on its device. A target that has labels gives none."""
        dtype, batches = next(self.module.parameters()).dtype, []
        drawn = ((source, rows.source), (target, rows.target), (source, rows.borrowed))
        for stream, (domain, joint) in enumerate(drawn):
            part = self.process_group.share(len(joint))
            numbers = draw_numbers(*self._position, stream, len(joint))[part]
            x, index = domain.training_batch(joint[part], numbers, dtype), torch.from_numpy(joint[part])
            labels = None if stream == 1 else source.labels.index_select(0, index)
            batches.append(Batch(x, index, labels))
        if self._fabric.device.type == "cpu":
            return Inputs(*batches)
        return Inputs(*map(self._fabric.to_device, batches))

    def _announce(self, phase: Phase, step: Step, source: Source, target: Target) -> None:
        """Tell domains that prefetch which samples `step` will draw; the streams stay where they are."""
        positions = self.streams.positions()
        rows = self._draw(phase, step)
        self.streams.seek(positions)
        local = [r[self.process_group.share(len(r))] for r in (rows.source, rows.borrowed, rows.target)]
        source.expect(np.concatenate(local[:2]))
        target.expect(local[2])

    # --- evaluation -------------------------------------------------------------------------------------------

    def _evaluate_if_due(self, phase: Phase, step: Step, source: Source, target: Target) -> bool:
        """Refresh the method and evaluate, each if due before `step`; returns whether a checkpoint is due."""
        last = step.number == phase.steps
        refresh = self._refresh_due(phase, step)
        requested = phase.adapts and _is_multiple(step.number, self.execution.evaluate_every)
        missing = last and all(e.phase != phase.name for e in self.evaluations)
        if not (refresh or requested or missing):
            return _is_multiple(step.number, self.execution.checkpoint_every)
        self._losses.check()
        self.process_group.average_statistics(self.module)
        outputs = self.refresh(step, source, target) if refresh else self._predict(target)
        self.evaluate(step, outputs, candidate=phase.adapts and (step.number > 0 or last))
        return True

    def _refresh_due(self, phase: Phase, step: Step) -> bool:
        return phase.adapts and self.recipe.refresh.due(step.number, min(phase.steps, phase.span))

    def refresh(self, step: Step, source: Source, target: Target) -> DomainOutputs:
        """Give the method the domain outputs its recipe asks for; returns those for the whole target."""
        wanted = self.recipe.refresh
        if wanted.source:
            outputs = self._predict(source)
            labels = source.labels.to(outputs.rows.device)
            self.method.refresh_source(dataclasses.replace(outputs, labels=labels))
        outputs = self._predict(target, wanted.views)
        require_finite(float(outputs.logits.sum()), "The sum of the target's logits", step)
        self.method.refresh(outputs)
        self.process_group.same_buffers(self.method)
        return self._predict(target) if wanted.again else outputs

    def evaluate(self, step: Step, outputs: DomainOutputs, candidate: bool) -> Evaluation:
        """Score the outputs for the whole target, and keep the weights if this candidate is the best so far."""
        entropy = scores.mean_entropy(outputs.logits)
        require_finite(entropy, "The target's mean entropy", step)
        mean_probabilities = scores.mean_probabilities(outputs.logits)
        evaluation = Evaluation(
            phase=step.phase,
            step=step.number,
            candidate=candidate,
            score=self.rule(outputs),
            scores={  # the density costs more than all of these, so only the rule that selects by it has it
                "entropy": entropy,
                "information_maximisation": scores.information_maximisation(outputs.logits),
                "effective_classes": scores.effective_classes(mean_probabilities),
                "nuclear_norm": scores.nuclear_norm(outputs.logits),
            },
            predictions=outputs.logits.argmax(dim=1).cpu().numpy(),
            mean_probabilities=mean_probabilities.cpu().numpy(),
        )
        self.evaluations.append(evaluation)
        tie_counts = self.rule.latest and evaluation.score == self.best_score
        if candidate and (evaluation.score > self.best_score or tie_counts):
            self.best_score, self.best_index = evaluation.score, len(self.evaluations) - 1
            self.best_state = self._copy_weights()
        self._notify("on_evaluation", evaluation)
        return evaluation

    def _predict(self, domain: Target, views: bool = False) -> DomainOutputs:
        features = self.recipe.refresh.features or self.rule.reads == "features"
        return predict_domain(
            self.module, domain, self.execution.predict_batch, views, self.process_group, features
        )

    # --- state: checkpoints, resuming, retrying ---------------------------------------------------------------

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

    def _state(self) -> dict[str, Any]:
        """All that it takes to go on from here."""
        return {
            "position": list(self._position),
            "module": self._copy_weights(),
            "optimizer": self._work.optimizer.state_dict(),
            "precision": self._work.precision.state_dict(),
            "streams": self.streams.positions(),
            "random": checkpoints.random_state(),
            "history": list(self.history),
            "evaluations": [e.to_dict() for e in self.evaluations],
            "rule": self.rule.name,
            "identity": self.execution.identity,
            "best_score": self.best_score,
            "best_index": self.best_index,
            "best_state": self.best_state,
            "lr_factor": self.lr_factor,
            "retries": self.retries,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.module.load_state_dict(state["module"])
        for name in ("best_score", "best_index", "best_state", "lr_factor"):
            setattr(self, name, state[name])
        self.history, self.retries = list(state["history"]), list(state["retries"])
        self.evaluations = [Evaluation.from_dict(e) for e in state["evaluations"]]
        self._start, self._resumed = tuple(state["position"]), copy.deepcopy(state)  # an optimiser changes it

    def _save(self, path: Path | None) -> None:
        if path is None:
            return
        self.process_group.average_statistics(self.module)
        if self.process_group.first:
            is_good = self._good is None or self._good["position"] == list(self._position)
            checkpoints.save(path, self._state() | ({} if is_good else {"good": self._good}))

    def _retry_or_raise(self, error: DivergedError) -> None:
        """Return to the last good state with a smaller learning rate; else save the state and raise."""
        lr_factor, retries = RETRY_LR_FACTOR * self.lr_factor, self.retries
        if self.execution.on_nan != "retry" or self._good is None or len(retries) == MAX_RETRIES:
            path = self.execution.checkpoint
            if path is not None:
                error.state_file = path.with_name(f"{path.name}.diverged")
                self._save(error.state_file)
            raise error
        self._restore(self._good)
        start = f"step {self._start[1]} of phase {self.recipe.phases[self._start[0]].name!r}"
        sentence = f"{error.event}: went on from {start} at {lr_factor:g} times the learning rate."
        self.lr_factor, self.retries = lr_factor, [*retries, sentence]

    def _copy_weights(self) -> dict[str, Tensor]:
        return {k: v.detach().cpu().clone() for k, v in self.module.state_dict().items()}

    def _notify(self, event: str, *args: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self, *args)


def _is_multiple(step: int, every: int | None) -> bool:
    return every is not None and step > 0 and step % every == 0


# --- what a phase trains -------------------------------------------------------------------------------------


def set_trained(module: nn.Module, phase: Phase, allowed: Collection[str]) -> None:
    """Turn gradients on for the `allowed` parameters that `phase` names; the other parts go into eval mode.

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
    for name in phase.frozen_norms:
        module.get_submodule(name).eval()


def optimizer(module: nn.Module, recipe: Recipe, phase: Phase) -> torch.optim.SGD:
    """Fused SGD over what `phase` trains, in the groups of `recipe`."""
    groups: list[dict[str, Any]] = [
        {
            "params": [],
            "lr_scale": group.lr_scale,
            "momentum": group.momentum,
            "nesterov": recipe.nesterov and group.momentum > 0,
        }
        for group in recipe.groups
    ]
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            number = next(i for i, g in enumerate(recipe.groups) if f"{name}.".startswith(g.prefix))
            groups[number]["params"].append(parameter)
    groups = [group for group in groups if group["params"]]
    require(bool(groups) or phase.steps == 0, f"Phase {phase.name!r} has nothing to train.")
    return torch.optim.SGD(
        groups or [{"params": torch.zeros(1)}],
        lr=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        fused=True,
    )
