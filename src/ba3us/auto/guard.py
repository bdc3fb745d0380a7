"""The verdict on a named system: it stays as it is, and is told what the automatic choice would say."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from ba3us.assess import verdict as verdicts
from ba3us.assess.calibration import Calibration, calibrate, recalibrated
from ba3us.assess.presence import (
    UNCERTAIN,
    class_proportions,
    em_proportions,
    presence_uncertainty,
    prior_shift,
    proportion_intervals,
)
from ba3us.assess.verdict import ADAPTED, NEAR, SOURCE_ONLY
from ba3us.auto.candidates import FAST, THREADS, train_candidates
from ba3us.auto.ensemble import Ensemble
from ba3us.data import Source, Target
from ba3us.data.domains import Part, SourcePart, check_alike, evenly_spaced_indices
from ba3us.errors import UserError, require
from ba3us.methods.auto import NAME as AUTO
from ba3us.methods.auto import AutoOptions
from ba3us.methods.base import Method
from ba3us.progress import bar
from ba3us.run.arrays import OpenedArrays
from ba3us.run.build import Model
from ba3us.run.run import Run
from ba3us.run.samples import Domains, Opened
from ba3us.run.spec import Spec
from ba3us.run.train import presence_table, train_one
from ba3us.scores import Neighbours
from ba3us.training import Callback
from ba3us.training.evaluation import sample_rows, target_neighbours


@dataclass(frozen=True, eq=False)
class AutoInputs:
    """Vectors of both domains, and what members are shown of the target: at most ten thousand rows."""

    opened: OpenedArrays
    domains: Domains
    rows: np.ndarray
    shown: Domains
    near: Neighbours
    standardize: bool

    def scaled(self, spec: Spec) -> Spec:
        """The spec with what was decided for all of its systems, not for each by what it is shown."""
        return dataclasses.replace(spec, standardize=self.standardize)

    @classmethod
    def of(cls, spec: Spec, opened: Opened, show: bool = False) -> AutoInputs:
        """From samples."""
        seen = opened.vectors(spec, show)
        rows = sample_rows(len(seen.target))
        inputs = dataclasses.replace(seen, target=seen.target[rows]) if len(rows) < len(seen.target) else seen
        shown = inputs.domains(None, spec, False)
        check_alike(*shown)
        scale = bool(opened.samples_for(spec).is_standardized)
        near = target_neighbours(*shown, np.arange(len(rows)), scale)
        return cls(inputs, seen.domains(None, spec, False), rows, shown, near, scale)


def add_fast_candidates(choice: Ensemble, inputs: AutoInputs, spec: Spec) -> None:
    """Let the members of the preset ``fast`` be heard."""
    for result in train_candidates(FAST, inputs.scaled(spec), inputs.opened, None, math.inf):
        choice.add(result)


def source_only_run(spec: Spec, opened: Opened, inputs: AutoInputs, callbacks: Sequence[Callback] = ()) -> Run:
    """Source-only, which everything is compared with."""
    return train_one(source_only_spec(spec), opened, domains=inputs.domains, callbacks=callbacks)[0]


def calibrate_run(run: Run, target: Target, spec: Spec, opened: Opened, inputs: AutoInputs) -> Run:
    """The run with a calibration; it must have a verdict.

    The held-out model is that of :func:`source_only_run`, trained on fewer samples. If its training fails, a
    note says so and there is no calibration.
    """

    def twin(part: Source) -> Run:
        return train_one(source_only_spec(spec), opened, domains=Domains(part, inputs.domains.target))[0]

    try:
        return dataclasses.replace(run, calibration=calibrated(run, target, inputs.domains.source, twin))
    except UserError as error:
        return run.with_note(f"There is no calibration: {error}")


def source_only_spec(spec: Spec) -> Spec:
    """:meth:`Spec.source_only` as the automatic choice trains it.

    One thread makes it repeat beside the candidates. Of images only the head is trained. Selection is by
    entropy, as in the published tables of the automatic choice.
    """
    of_images = spec.source is not None and spec.kind == "images"
    return dataclasses.replace(
        spec.source_only(), selection="entropy", n_threads=THREADS, train="head" if of_images else None
    )


# --- calibrating ------------------------------------------------------------------------------------------
# The calibration of a run: a twin that learns most of the source rows is asked of those put aside.


_SHARE = 5  # of so many rows of a class one is put aside
_MOST = 5_000  # rows put aside, and of the target that are looked at


def calibrated(run: Run, target: Target, source: Source, twin: Callable[[Source], Run]) -> Calibration:
    """Of a run that has a verdict.

    The run's own network has learned every source row; none is left to calibrate it with. `twin` trains
    source-only on the rows it is given: a network of the same kind and settings, which serves for that alone.
    """
    assert run.verdict is not None
    aside = _aside(source.labels.numpy())
    held_out, labels = np.zeros((0, source.num_classes)), np.zeros(0, np.int64)
    if aside.any():
        unseen = SourcePart(source, np.flatnonzero(aside))
        held_out, labels = (
            twin(SourcePart(source, np.flatnonzero(~aside))).logits(unseen),
            unseen.labels.numpy(),
        )
    seen = run.logits(Part(target, evenly_spaced_indices(len(target), _MOST)))
    return calibrate(seen, held_out, labels, run.verdict)


def _aside(labels: np.ndarray) -> np.ndarray:
    """A fifth of every class, drawn, as a mask; a class with fewer than two rows keeps what it has."""
    chance, share = np.random.default_rng(0), min(1 / _SHARE, _MOST / len(labels))
    aside = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        count = max(1, round(share * len(rows))) if len(rows) > 1 else 0
        aside[chance.choice(rows, count, replace=False)] = True
    return aside


# --- prior ------------------------------------------------------------------------------------------------
# A last step that any system can take when it is asked to: the prior of its classifier is put right.
#
# A classifier that learned the source expects the source's class proportions. EM on its calibrated
# probabilities estimates the target's (:mod:`ba3us.assess.presence`), and the classifier's biases are moved by
# the logarithm of the ratio. It helps if only the proportions differ, and reinforces mistakes otherwise.


_MOST_ROWS = 5_000  # rows of the target that shares are estimated from


def check_correctable(method: type[Method]) -> None:
    """Some systems do not predict with the network's classifier."""
    require(
        method.predict is Method.predict,
        f"`correct_prior` is for systems that predict with the network's classifier, but {method.__name__} has "
        "its own way: leave it out.",
    )


def prior_corrected(run: Run, target: Target, labels: np.ndarray) -> Run:
    """The run with its classifier's prior put right by the target; `labels` are the source's.

    The verdict stays that of the model before; a note says how many rows changed. Confidence is worked out
    anew. A class on which the model before and this one disagree is ``unsure``, and its interval spans both;
    three more columns of ``presence`` have the share of each class by EM, and the ends of its interval.
    """
    why = "the run has no calibration" if run.calibration is None else ""
    if run.leaderboard is not None and run.verdict is not None and run.verdict.model_used == ADAPTED:
        why = "the model was taught the target's own rows, so its prior is not the source's (name a `method`)"
    if why or run.calibration is None:
        return run.with_note(f"The prior was not corrected: {why}.")
    logits, warmth = run.logits(target), run.calibration.held_out
    prior = class_proportions(labels, logits.shape[1])
    p = softmax(logits[evenly_spaced_indices(len(logits), _MOST_ROWS)] / warmth, axis=1)
    shares = em_proportions(p, prior)
    shift = warmth * prior_shift(shares, prior)
    moved = logits + shift
    model = Model(run.model.blueprint, copy.deepcopy(run.model.module), run.model.front)
    bias = model.module.network.classifier.bias
    assert isinstance(bias, Tensor)
    with torch.no_grad():
        bias += torch.as_tensor(shift, dtype=bias.dtype)
    before, predictions = run.best.predictions, moved.argmax(axis=1)
    changed = float(np.mean(predictions != before))
    mean_probabilities = softmax(moved, axis=1).mean(axis=0).astype(np.float32)
    best = dataclasses.replace(run.best, predictions=predictions, mean_probabilities=mean_probabilities)
    evaluations = [*run.evaluations]
    evaluations[run.best_index] = best
    table, known = presence_table(best, model.blueprint.classes, [before]), run.presence
    table["low"], table["high"] = (
        pick(table[end], known[end]) for pick, end in ((np.minimum, "low"), (np.maximum, "high"))
    )
    table.loc[(table["present"] != known["present"]).to_numpy(), "present"] = UNCERTAIN
    low, high = proportion_intervals(p, prior)
    for name, values in (("em_proportion", shares), ("em_low", low), ("em_high", high)):
        table[name] = np.round(values, 6)
    corrected = dataclasses.replace(
        run,
        model=model,
        evaluations=evaluations,
        calibration=recalibrated(run.calibration, moved),
        presence=table,
    )
    return corrected.with_note(
        f"The prior was corrected after the verdict: {changed:.1%} of the samples changed class."
    )


# --- reference --------------------------------------------------------------------------------------------
# The verdict on a named system: it stays as it is, and is told what the automatic choice would say.


def with_verdict(run: Run, target: Target, spec: Spec, opened: Opened, show: bool = False) -> Run:
    """The run with a verdict and a calibration, and what is known of the classes; nothing else of it changes.

    Source-only and one robust system are trained on the vectors that the run began with, with the automatic
    choice's own settings and no more updates than the run had. Where that can't
    be done, the run says so and has no verdict.
    """
    if run.verdict is not None or spec.method == SOURCE_ONLY:
        return run
    options = {"steps": max(1, min(AutoOptions().steps, spec.method_options().steps))}
    auto = dataclasses.replace(
        spec,
        method=AUTO,
        method_params=options,
        protocol=None,
        task=None,
        train=None,
        views=None,
        ten_crop=False,
    )
    try:
        with bar("Comparing with source-only", 2, show) as shown:
            seen = opened.vectors(auto, show)
            inputs = AutoInputs.of(auto, seen)
            plain = source_only_run(auto, seen, inputs)
            shown.update(1)
            choice = Ensemble(inputs.near, plain.probabilities(inputs.shown.target))
            add_fast_candidates(choice, inputs, auto)
    except UserError as error:
        return run.with_note(f"There is no verdict: {error}")
    known = verdicts.has_evidence(choice.best.standing, choice.plain)
    labels = choice.labels() if known else None
    own, base = (each.best.predictions[inputs.rows] for each in (run, plain))
    verdict = verdicts.judge_run(own, base, labels, inputs.near)
    uncertainty = presence_uncertainty(choice.best.standing.kappa, NEAR, verdict.figures["changed"])
    table = presence_table(run.best, opened.classes, choice.smoothed, uncertainty)
    judged = dataclasses.replace(run, verdict=verdict, presence=table)
    return calibrate_run(judged, target, auto, seen, inputs)
