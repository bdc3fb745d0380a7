"""What goes with a trained model: source-only, a calibration, a verdict on a method, a corrected prior."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from ba3us.assess.calibration import calibrate, recalibrated
from ba3us.assess.presence import (
    UNCERTAIN,
    class_proportions,
    em_proportions,
    presence_uncertainty,
    prior_shift,
    proportion_intervals,
)
from ba3us.assess.verdict import ADAPTED, NEAR, SOURCE_ONLY, has_evidence, judge_run
from ba3us.auto.candidates import FAST, THREADS, train_candidates
from ba3us.auto.ensemble import Ensemble
from ba3us.data import Target
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

_HELD_OUT = 1 / 5  # proportion of each class's source samples that is held out for the calibration
_MAX_SAMPLES = 5_000  # that are held out, and of the target that the calibration or EM uses


class AutoInputs(NamedTuple):
    """Vectors of both domains for the automatic choice.

    `domains` are whole. `sampled` has at most ten thousand target samples, those at `indices`: candidates are
    trained on its `vectors`, and `neighbours` are among them. `standardize` holds for all methods alike.
    """

    domains: Domains
    indices: np.ndarray
    vectors: OpenedArrays
    sampled: Domains
    neighbours: Neighbours
    standardize: bool

    @classmethod
    def of(cls, spec: Spec, opened: Opened, show: bool = False) -> AutoInputs:
        """Compute them from samples."""
        vectors = opened.vectors(spec, show)
        domains, indices = vectors.domains(None, spec, False), sample_rows(len(vectors.target))
        if len(indices) < len(vectors.target):
            vectors = dataclasses.replace(vectors, target=vectors.target[indices])
        sampled = vectors.domains(None, spec, False)
        check_alike(*sampled)
        standardize = bool(opened.samples_for(spec).is_standardized)
        neighbours = target_neighbours(*sampled, np.arange(len(indices)), standardize)
        return cls(domains, indices, vectors, sampled, neighbours, standardize)


def source_only_spec(spec: Spec) -> Spec:
    """:meth:`Spec.source_only` as the automatic choice trains it.

    One thread makes it repeat beside the candidates. Of images only the head is trained. Selection is by
    entropy, as in the published tables of the automatic choice.
    """
    of_images = spec.source is not None and spec.kind == "images"
    return dataclasses.replace(
        spec.source_only(), selection="entropy", n_threads=THREADS, train="head" if of_images else None
    )


def source_only_run(spec: Spec, opened: Opened, inputs: AutoInputs, callbacks: Sequence[Callback] = ()) -> Run:
    """Train source-only, which everything is compared with."""
    return train_one(source_only_spec(spec), opened, domains=inputs.domains, callbacks=callbacks)[0]


def calibrate_run(run: Run, target: Target, spec: Spec, opened: Opened, inputs: AutoInputs) -> Run:
    """Add a calibration to a run with a verdict.

    The run's own network was trained on every source sample, so a held-out model stands in: source-only with
    the same settings, trained without a fifth of each class. If its training fails, a note says so and there is
    no calibration.
    """
    assert run.verdict is not None
    source, rng = inputs.domains.source, np.random.default_rng(0)
    labels = source.labels.numpy()
    held_out = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        of_class = np.flatnonzero(labels == label)
        count = max(1, round(min(_HELD_OUT, _MAX_SAMPLES / len(labels)) * len(of_class)))
        if len(of_class) > 1:  # else its only sample is needed for training
            held_out[rng.choice(of_class, count, replace=False)] = True
    logits = np.zeros((0, source.num_classes))
    try:
        if held_out.any():
            rest = SourcePart(source, np.flatnonzero(~held_out))
            domains = Domains(rest, inputs.domains.target)
            held_out_model, _ = train_one(source_only_spec(spec), opened, domains=domains)
            logits = held_out_model.logits(SourcePart(source, np.flatnonzero(held_out)))
        target_logits = run.logits(Part(target, evenly_spaced_indices(len(target), _MAX_SAMPLES)))
    except UserError as error:
        return run.with_note(f"There is no calibration: {error}")
    calibration = calibrate(target_logits, logits, labels[held_out], run.verdict)
    return dataclasses.replace(run, calibration=calibration)


def with_verdict(run: Run, target: Target, spec: Spec, opened: Opened, show: bool = False) -> Run:
    """Add a verdict, a calibration and the presence of classes to a run of a named method.

    Source-only and one robust candidate are trained on vectors that were not adapted, with the settings of the
    automatic choice, and with at most as many steps as the run had. If that fails, a note says so and there is
    no verdict.
    """
    if run.verdict is not None or spec.method == SOURCE_ONLY:
        return run
    auto_spec = dataclasses.replace(
        spec,
        method=AUTO,
        method_params={"steps": max(1, min(AutoOptions().steps, spec.method_options().steps))},
        protocol=None,
        task=None,
        train=None,
        views=None,
        ten_crop=False,
    )
    try:
        with bar("Comparing with source-only", 2, show) as progress_bar:
            vectors = opened.vectors(auto_spec, show)
            inputs = AutoInputs.of(auto_spec, vectors)
            source_only = source_only_run(auto_spec, vectors, inputs)
            progress_bar.update(1)
            ensemble = Ensemble(inputs.neighbours, source_only.probabilities(inputs.sampled.target))
            candidate_spec = dataclasses.replace(auto_spec, standardize=inputs.standardize)
            for result in train_candidates(FAST, candidate_spec, inputs.vectors, None, math.inf):
                ensemble.add(result)
    except UserError as error:
        return run.with_note(f"There is no verdict: {error}")
    agreement = ensemble.best.agreement
    reference = ensemble.labels() if has_evidence(agreement, ensemble.source_only) else None
    predictions, base = (each.best.predictions[inputs.indices] for each in (run, source_only))
    verdict = judge_run(predictions, base, reference, inputs.neighbours)
    uncertainty = presence_uncertainty(agreement.kappa, NEAR, verdict.figures["changed"])
    presence = presence_table(run.best, opened.classes, ensemble.alternatives, uncertainty)
    judged = dataclasses.replace(run, verdict=verdict, presence=presence)
    return calibrate_run(judged, target, auto_spec, vectors, inputs)


def check_correctable(method: type[Method]) -> None:
    """Raise an error for a method that does not predict with the network's classifier."""
    require(
        method.predict is Method.predict,
        f"`correct_prior` is for methods that predict with the network's classifier, but {method.__name__} has "
        "its own way: leave it out.",
    )


def prior_corrected(run: Run, target: Target, labels: np.ndarray) -> Run:
    """Correct the prior of a run's classifier; `labels` are the source's.

    A classifier expects the class proportions of its training data. EM on its calibrated probabilities
    estimates the target's (:mod:`ba3us.assess.presence`), and its biases are moved by the logarithm of the
    ratio. This helps if only the proportions differ, and reinforces mistakes otherwise.

    The verdict remains that of the model before; a note says how many samples changed. Confidence is computed
    anew. In `presence` a class on which the two models disagree becomes ``uncertain``, its interval spans both,
    and three more columns have the proportion by EM and the ends of its interval.
    """
    calibration = run.calibration
    if run.leaderboard is not None and run.verdict is not None and run.verdict.model_used == ADAPTED:
        return run.with_note(
            "The prior was not corrected: the model was trained on the target's own samples, so its prior is "
            "not the source's (name a `method`)."
        )
    if calibration is None:
        return run.with_note("The prior was not corrected: the run has no calibration.")
    logits, temperature = run.logits(target), calibration.held_out
    prior = class_proportions(labels, logits.shape[1])
    probabilities = softmax(logits[evenly_spaced_indices(len(logits), _MAX_SAMPLES)] / temperature, axis=1)
    proportions = em_proportions(probabilities, prior)
    shift = temperature * prior_shift(proportions, prior)
    model = Model(run.model.blueprint, copy.deepcopy(run.model.module), run.model.front)
    bias = model.module.network.classifier.bias
    assert isinstance(bias, Tensor)
    with torch.no_grad():
        bias += torch.as_tensor(shift, dtype=bias.dtype)

    logits = logits + shift
    before, predictions = run.best.predictions, logits.argmax(axis=1)
    mean_probabilities = softmax(logits, axis=1).mean(axis=0).astype(np.float32)
    best = dataclasses.replace(run.best, predictions=predictions, mean_probabilities=mean_probabilities)
    evaluations = [*run.evaluations]
    evaluations[run.best_index] = best

    table = presence_table(best, model.blueprint.classes, [before])
    table["low"] = np.minimum(table["low"], run.presence["low"])
    table["high"] = np.maximum(table["high"], run.presence["high"])
    table.loc[(table["present"] != run.presence["present"]).to_numpy(), "present"] = UNCERTAIN
    low, high = proportion_intervals(probabilities, prior)
    for name, values in (("em_proportion", proportions), ("em_low", low), ("em_high", high)):
        table[name] = np.round(values, 6)
    corrected = dataclasses.replace(
        run,
        model=model,
        evaluations=evaluations,
        calibration=recalibrated(calibration, logits),
        presence=table,
    )
    changed = 100 * np.mean(predictions != before)
    return corrected.with_note(
        f"The prior was corrected after the verdict: {changed:.1f} % of the samples changed class."
    )
