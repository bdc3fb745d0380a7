"""The one place where the benchmark meets training."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from ba3us.bench.domains import File, digest_of
from ba3us.bench.images import FIELDS, check_same, open_pair
from ba3us.bench.jobs import THREADS, Job
from ba3us.data import Target
from ba3us.data.files import read_features
from ba3us.engine import Spec, train
from ba3us.engine.model import Model
from ba3us.engine.opening import Opened, OpenedArrays
from ba3us.engine.samples import Arrays
from ba3us.engine.vectors import NEIGHBOURS, neighbours, sampled
from ba3us.methods.auto import NAME as AUTO
from ba3us.methods.base import Step
from ba3us.neighbours import Neighbours
from ba3us.training import Hook, Trainer

_OFTEN = 2.0  # seconds between two words on how far a run has come
Place = Callable[[Model, Target, Target], pd.DataFrame]  # of source and target

# rules that choose among the evaluations of a run afterwards: which of their label-free scores, and its sign
RULES = {"entropy": ("entropy", -1), "information-maximisation": ("information_maximisation", 1)}
RULES |= {"nuclear-norm": ("nuclear_norm", 1), NEIGHBOURS: ("beyond_chance", 1)}


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run leaves behind; no target label had a part in it.

    `evaluations` has a row per look at the target (phase, step, candidate, and a column per label-free score),
    `predictions` the classes it gave then, [evaluations, rows], and `probabilities` their means over the rows,
    [evaluations, classes]; `selected` is the row each rule chose; `said` what the run says of itself: verdict,
    classes, leaderboard. `points` are rows of both domains in the plane, where somebody wants to draw them.
    """

    history: pd.DataFrame
    evaluations: pd.DataFrame
    predictions: np.ndarray
    probabilities: np.ndarray
    selected: dict[str, int]
    updates: int
    seconds: float
    cpu_seconds: float
    said: dict[str, Any]
    points: pd.DataFrame | None = None


def execute(job: Job, place: Place | None = None) -> Outcome:
    """Carry a job out, on one thread; `place` puts both domains into the plane as the model sees them."""
    spec, opened = opened_job(job)
    start, cpu_start = time.perf_counter(), time.process_time()
    # of the automatic choice only parts could be told
    hooks = [_Telling(job.tell)] if job.tell is not None and job.method != AUTO else []
    run, target = train(spec, opened, hooks=hooks)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    table = pd.DataFrame(
        [{"phase": e.phase, "step": e.step, "candidate": e.candidate, **e.scores} for e in run.evaluations]
    )
    if isinstance(opened, OpenedArrays):
        near, rows = _neighbours(job.data, opened, spec)
        table["beyond_chance"] = [near.beyond_chance(e.predictions[rows]) for e in run.evaluations]
    chosen = {
        rule: (sign * table[score]).where(table["candidate"])
        for rule, (score, sign) in RULES.items()
        if score in table
    }
    return Outcome(
        history=run.history,
        evaluations=table,
        predictions=np.stack([e.predictions for e in run.evaluations]),
        probabilities=np.stack([e.mean_probabilities for e in run.evaluations]).astype(np.float32),
        selected={rule: int(values.argmax()) for rule, values in chosen.items()},
        updates=run.about["updates"],
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        said={name: run.summary().get(name) for name in ("verdict", "classes", "leaderboard")},
        points=place(run.model, opened.domains(run.model.front, spec, False).source, target) if place else None,
    )


class _Telling(Hook):
    """Passes on how far a run has come, now and then."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        self.tell, self.told = tell, time.monotonic()

    def on_step(self, trainer: Trainer, step: Step) -> None:
        """After an update."""
        if time.monotonic() - self.told >= _OFTEN:
            done, every = step.number + 1, sum(phase.steps for phase in trainer.recipe.phases)
            self.told = time.monotonic()
            self.tell((trainer.recipe.before(step.phase) + done) / every)


_found: dict[
    str, tuple[Neighbours, np.ndarray]
] = {}  # of the last target; the runs of a task follow each other


def _neighbours(data: str, opened: OpenedArrays, spec: Spec) -> tuple[Neighbours, np.ndarray]:
    """The target's neighbourhoods, and the rows among which they were looked for."""
    if data not in _found:
        rows = sampled(len(opened.target))
        _found.clear()
        _found[data] = neighbours(*opened.domains(None, spec, False), rows), rows
    return _found[data]


def opened_job(job: Job) -> tuple[Spec, Opened]:
    """What a job asks of the engine, and its samples."""
    pair = job.pair
    spec = Spec(
        method=job.method,
        options=job.options,
        seed=job.seed,
        threads=THREADS,
        evaluate_every=job.evaluate_every,
    )
    if job.images is not None:
        seen = {name: getattr(job.images.spec, name) for name in (*FIELDS, "ten_crop")}
        return dataclasses.replace(spec, workers=1, **seen), open_pair(job.images, pair)
    source, target = pair.shipped or (samples(pair.source), samples(pair.target))
    x, xt = source[pair.source_rows], target[pair.target_rows]
    classes = list(range(pair.num_classes))
    return spec, OpenedArrays(Arrays(x.shape[1:]), x, pair.source_labels, xt, classes)


@lru_cache(maxsize=4)
def samples(file: File) -> np.ndarray:
    """Features of a file; a worker reads those of a task once, not for every run."""
    check_same(file.path, digest_of(file.path.read_bytes()) == file.digest)
    return read_features(file.path).features
