"""The one place where the benchmark meets training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from ba3us.bench.domains import Domain, File, digest_of
from ba3us.bench.jobs import THREADS, Job
from ba3us.data import Source, Target
from ba3us.data.files import read_features
from ba3us.errors import require
from ba3us.training import Evaluation, RunConfig, fit

# label-free scores of an evaluation; a rule chooses the candidate whose score is lowest
RULES: dict[str, Callable[[Evaluation], float]] = {
    "entropy": lambda e: e.score,
    "information": lambda e: e.score - _entropy(e.mean_probabilities),
}


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run leaves behind; no target label had a part in it.

    `evaluations` has a row per look at the target (phase, step, candidate, and a column per label-free score),
    `predictions` the classes it gave then, [evaluations, rows]; `selected` is the row each rule chose.
    """

    history: pd.DataFrame
    evaluations: pd.DataFrame
    predictions: np.ndarray
    selected: dict[str, int]
    updates: int
    seconds: float
    cpu_seconds: float


def execute(job: Job) -> Outcome:
    """Carry a job out, on one thread."""
    pair = job.pair
    source = Source(_samples(pair.source)[pair.source_rows], pair.source_labels, num_classes=pair.num_classes)
    target = Target(_samples(pair.target)[pair.target_rows])
    start, cpu_start = time.perf_counter(), time.process_time()
    config = RunConfig(seed=job.seed, threads=THREADS)
    result = fit(job.method, source, target, options=job.options, config=config)
    table = pd.DataFrame(
        [
            {"phase": e.phase, "step": e.step, "candidate": e.candidate, **{r: f(e) for r, f in RULES.items()}}
            for e in result.evaluations
        ]
    )
    return Outcome(
        history=result.history,
        evaluations=table,
        predictions=np.stack([e.predictions for e in result.evaluations]),
        selected={rule: int(table[rule].where(table["candidate"]).argmin()) for rule in RULES},
        updates=sum(phase.steps for phase in result.recipe.phases),
        seconds=time.perf_counter() - start,
        cpu_seconds=time.process_time() - cpu_start,
    )


def check_trainable(domains: Iterable[Domain]) -> None:
    """Refuse what :func:`execute` can't train on."""
    for domain in domains:
        require(
            not domain.images,
            f"Domain {domain.name!r} ({domain.path}) is images: make features of it first (ba3us embed).",
        )


@lru_cache(maxsize=4)
def _samples(file: File) -> np.ndarray:
    """Features of a file; a worker reads those of a task once, not for every run."""
    same = digest_of(file.path.read_bytes()) == file.digest
    require(same, f"{file.path} is not what it was when the benchmark began: start it again.")
    return read_features(file.path).features


def _entropy(p: np.ndarray) -> float:
    return float(-np.sum(p * np.log(np.maximum(p, 1e-30))))
