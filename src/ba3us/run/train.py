"""From samples to a run: build, train and select one method. :mod:`ba3us.auto` chooses among several."""

from __future__ import annotations

import dataclasses
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ba3us import __version__, methods
from ba3us.assess.presence import presence
from ba3us.data import Target
from ba3us.data.domains import PseudoLabelledSource
from ba3us.nn.norms import Standardize
from ba3us.run import opening
from ba3us.run.build import Blueprint
from ba3us.run.run import Run
from ba3us.run.samples import Domains, Opened
from ba3us.run.spec import PRECISIONS, Spec, place
from ba3us.training import Callback, Evaluation, Execution, ProgressBar, Trainer, TrainingMonitor
from ba3us.training.checkpoints import seeded
from ba3us.training.distributed import ProcessGroup
from ba3us.training.evaluation import sample_batch


def train_one(
    spec: Spec,
    opened: Opened,
    *,
    domains: Domains | None = None,
    callbacks: Sequence[Callback] = (),
    state: Path | None = None,
    resume: bool = False,
    show: bool = False,
) -> tuple[Run, Target]:
    """Train the method of a spec; returns the run and the target as its network took it.

    Parameters
    ----------
    spec, opened
        The run as data, and its samples.
    domains : Domains, optional
        The network's inputs, in place of those of `opened`.
    callbacks : sequence of Callback
        Called at every step and evaluation.
    state : path, optional
        File for the state of the training, written at every evaluation.
    resume : bool
        Resume from `state` if it exists; an error if it is of another run.
    show : bool
        Show progress on the standard error.
    """
    config, start = spec.method_options(), time.perf_counter()
    samples = opened.samples_for(spec)
    blueprint = Blueprint.of(spec.method, config, opened.classes, samples)
    blueprint.check_memory()
    with seeded(spec.seed):
        model = blueprint.build(opened.backbone)
    network = model.module.network
    if spec.compile:
        network.backbone.compile()
    source, target = domains or opened.domains(model.front, spec, show)
    if isinstance(network.backbone, Standardize):
        labelled = source.labelled if isinstance(source, PseudoLabelledSource) else source
        network.backbone.fit(sample_batch(labelled))
    process_group = ProcessGroup.current()
    alone = process_group.size == 1  # else the processes have been started
    images_per_batch = 32 if place(spec) == "cpu" else 256
    workers = process_group.size, torch.get_num_threads()
    execution = Execution(
        seed=spec.seed,
        n_threads=spec.n_threads,
        evaluate_every=spec.evaluate_every,
        accelerator=spec.device,
        devices=spec.devices if alone else None,
        nodes=spec.nodes if alone else None,
        precision=PRECISIONS[spec.precision],
        predict_batch=1024 if len(source.shape) == 1 else images_per_batch,
        checkpoint=state,
        on_nan=spec.on_nan,
        on_collapse=spec.on_collapse,
        identity="" if state is None else opening.digest(spec, opened, workers),
    )
    callbacks = [TrainingMonitor(), *([ProgressBar(title=spec.method)] if show else ()), *callbacks]
    trainer = Trainer(network, model.module.method, execution, rule=spec.selection, callbacks=callbacks)
    checkpoint = state if resume and state is not None and state.is_file() else None
    if checkpoint is not None:
        trainer.resume(checkpoint)
    result = trainer.fit(source, target)
    best = result.evaluations[result.best_index]
    about: dict[str, Any] = {
        "version": __version__,
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__)},
        "settings": methods.get(spec.method).settings_note(config, spec.protocol, spec.task),
        "source_samples": opened.rows[0],
        "target_samples": opened.rows[1],
        "steps": result.steps,
        "trained": samples.trained_part,
        "processes": process_group.size,
        "resumed": checkpoint is not None,
        "selected": {
            "evaluation": result.best_index,
            "rule": result.rule,
            "phase": best.phase,
            "step": best.step,
            "scores": {name: round(value, 6) for name, value in best.scores.items()},
        },
        "seconds": round(time.perf_counter() - start, 2),
        "finished": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }
    full = dataclasses.replace(
        spec,
        method_params=dataclasses.asdict(config),
        n_threads=spec.n_threads or torch.get_num_threads(),
        train=samples.trained_part,
        standardize=samples.is_standardized,
    )
    model.module = result.module.eval()
    run = Run(
        spec=full,
        model=model,
        history=result.full_history(),
        evaluations=result.evaluations,
        best_index=result.best_index,
        presence=presence_table(best, opened.classes),
        about=about,
        notes=[*opened.notes, *trainer.retries, *trainer.warnings.values()],
        skipped=opened.skipped,
    )
    return run, target


def presence_table(
    evaluation: Evaluation,
    classes: Sequence[Any],
    others: Sequence[np.ndarray] = (),
    uncertainty: float = 0.0,
) -> pd.DataFrame:
    """Estimate which classes are present from an evaluation's predictions and those of `others`."""
    table = presence(evaluation.predictions, others, len(classes), uncertainty)
    table.insert(0, "class", pd.Series(classes, dtype=object))
    table.insert(4, "mean_probability", evaluation.mean_probabilities.astype(float))
    return table.round(dict.fromkeys(("proportion", "low", "high", "mean_probability"), 6))
