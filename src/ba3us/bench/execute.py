"""The one place where the benchmark meets training."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from ba3us.bench.domains import Domain, File, digest_of
from ba3us.bench.jobs import THREADS, Job
from ba3us.data.files import read_features
from ba3us.engine import Spec, train
from ba3us.engine.opening import OpenedArrays
from ba3us.engine.samples import Arrays
from ba3us.errors import require

# rules that choose among the evaluations of a run afterwards: which of their label-free scores, and its sign
RULES = {"entropy": ("entropy", -1), "information-maximisation": ("information_maximisation", 1)}
RULES |= {"nuclear-norm": ("nuclear_norm", 1)}


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
    x, xt = _samples(pair.source)[pair.source_rows], _samples(pair.target)[pair.target_rows]
    opened = OpenedArrays(Arrays(x.shape[1:]), x, pair.source_labels, xt, list(range(pair.num_classes)))
    spec = Spec(method=job.method, options=job.options, seed=job.seed, threads=THREADS)
    start, cpu_start = time.perf_counter(), time.process_time()
    run, _ = train(spec, opened)
    table = pd.DataFrame(
        [{"phase": e.phase, "step": e.step, "candidate": e.candidate, **e.scores} for e in run.evaluations]
    )
    chosen = {rule: (sign * table[score]).where(table["candidate"]) for rule, (score, sign) in RULES.items()}
    return Outcome(
        history=run.history,
        evaluations=table,
        predictions=np.stack([e.predictions for e in run.evaluations]),
        selected={rule: int(values.argmax()) for rule, values in chosen.items()},
        updates=run.about["updates"],
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
